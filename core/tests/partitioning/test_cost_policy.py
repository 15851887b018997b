"""``ByCost`` on IR: placement by figures, questions to backends, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import Estimate
from byoc_core.errors import HookError, OptionsError
from byoc_core.ir import Binding, Function, IRModule, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import (
    AnnotateSupported,
    ByCost,
    GreedyByOrder,
    MachineModel,
    PartitionLog,
    PartitionOptions,
    PartitionRequest,
    RunCodegen,
    check_partition,
    partition,
)
from byoc_core.partitioning.claiming.claim_filters import accept_all
from byoc_core.partitioning.op_sites import bodies_of
from byoc_core.partitioning.policies import POLICIES
from byoc_core.partitioning.policies.cost_model import Sizes, guess_host
from byoc_core.partitioning.policies.cost_problem import Body, Prices
from byoc_core.pattern import CompositePattern, Rejection, Support, is_op, wildcard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Cases, Placement
from core.tests.partitioning.graphs import Case

HOST = MachineModel(flops_per_second=1e15, bytes_per_second=1e15, op_seconds=10e-6)
"""A host with a time of 10 us for every op of these tests, up to six digits."""


def estimates(seconds: Mapping[str, float], **border: float) -> Callable[[Function], Estimate | None]:
    """Return microseconds by op name (the last op's, for a composite)."""

    def estimate(function: Function) -> Estimate | None:
        last = list(function.walk())[-1]
        op = last.regions[0].bindings[-1] if last.regions else last
        return Estimate(seconds[op.op.name] * 1e-6, **border) if op.op.name in seconds else None

    return estimate


def function(head: str, *lines: str) -> IRModule:
    """Return a module with ``main`` of a head and lines."""
    return R.parse("\n    ".join([f"def main({head}):", *lines]))


CHAIN = function('x: R.Tensor((1000,), "float32")', "a = R.nn.relu(x)", "b = R.tanh(a)", "c = R.nn.relu(b)", "return c")


def offloaded(module: IRModule, placement: type[Placement]) -> dict[str, str]:
    """Gives the backend of each offloaded op."""
    where = placement(module)
    return {name: where.backend_of[region] for name, region in where.region_of.items()}


def test_an_op_is_offloaded_where_that_saves_more_than_its_borders_cost(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    def offloaded_at(call_microseconds: float) -> dict[str, str]:
        estimate = estimates({"nn.relu": 1, "tanh": 12}, call_seconds=call_microseconds * 1e-6)
        backend = fake_backend("aone", ["nn.relu", "tanh"], estimate=estimate)
        return offloaded(partition(CHAIN, [backend], policy=ByCost(machines={"host": HOST})), placement)

    assert offloaded_at(1) == {"a": "aone", "c": "aone"}
    assert offloaded_at(3) == {"a": "aone", "b": "aone", "c": "aone"}
    assert offloaded_at(20) == {}


def test_moving_data_counts_once_for_each_border(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    """4,000 bytes in and 4,000 bytes out, with 3 us in the middle saved by a device at 1 us per op."""

    def offloaded_at(bytes_per_second: float) -> dict[str, str]:
        estimate = estimates({"nn.relu": 1, "tanh": 1}, bytes_per_second=bytes_per_second)
        backend = fake_backend("aone", ["nn.relu", "tanh"], estimate=estimate)
        return offloaded(partition(CHAIN, [backend], policy=ByCost(machines={"host": HOST})), placement)

    assert offloaded_at(8000 / 26e-6) == {"a": "aone", "b": "aone", "c": "aone"}
    assert offloaded_at(8000 / 28e-6) == {}


def test_a_refusal_gives_the_figures(fake_backend: type[FakeBackend]) -> None:
    estimate = estimates({"nn.relu": 8, "tanh": 1}, call_seconds=5e-6)
    first = fake_backend("aone", ["nn.relu"], estimate=estimate)
    second = fake_backend("btwo", ["nn.relu", "tanh"], estimate=estimates({"nn.relu": 1, "tanh": 1}, call_seconds=4e-6))
    log = PartitionLog()
    partition(CHAIN, [first], policy=ByCost(machines={"host": HOST}), log=log)
    (refusal,) = log.refusals("main", "a")
    assert (refusal.backend, refusal.rejection) == (
        "aone",
        Rejection("costs-more", "8 us on `aone` plus 5 us of transfers against 10 us on the host"),
    )
    assert log.refusals("main", "b")[0].rejection == Rejection("op", "no `tanh` here")
    log = PartitionLog()
    partition(CHAIN, [first, second], policy=ByCost(machines={"host": HOST}), log=log)
    assert [refusal.rejection.text for refusal in log.refusals("main", "a")] == [
        "8 us on `aone` plus 5 us of transfers against 1 us on `btwo`"
    ]


def test_the_report_says_why_an_op_stayed_on_the_host(fake_backend: type[FakeBackend]) -> None:
    backend = fake_backend("aone", ["tanh"], estimate=estimates({"tanh": 9}, call_seconds=2e-6))
    report = byoc_core.build(CHAIN, [backend], policy=ByCost(machines={"host": HOST})).report()
    text = "1 x tanh: aone: 9 us on `aone` plus 2 us of transfers against 10 us on the host [costs-more]"
    assert text in report


def test_a_composite_goes_as_a_whole(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    pattern = CompositePattern("aone.tanh_relu", is_op("nn.relu")(is_op("tanh")(wildcard())))
    both = fake_backend("aone", patterns=[pattern], estimate=estimates({"nn.relu": 6}))
    single = fake_backend("btwo", ["nn.relu"], estimate=estimates({"nn.relu": 1}))
    policy = ByCost(machines={"host": HOST})
    module = partition(CHAIN, [both], policy=policy)
    assert offloaded(module, placement) == {"b": "aone", "c": "aone"}
    assert sum(binding.op.name == "composite" for f in module.functions.values() for binding in f.bindings) == 1
    assert offloaded(partition(CHAIN, [both, single], policy=policy), placement) == {
        "a": "btwo",
        "b": "aone",
        "c": "aone",
    }
    cheap = fake_backend("cthree", ["tanh"], estimate=estimates({"tanh": 1}))
    assert offloaded(partition(CHAIN, [both, single, cheap], policy=policy), placement) == {
        "a": "btwo",
        "b": "cthree",
        "c": "btwo",
    }


def test_backends_without_estimates_are_weighed_by_a_machine_model(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    slow = MachineModel(flops_per_second=1e6, bytes_per_second=1e6)
    backends = [fake_backend("aone", None), fake_backend("btwo", ["tanh"])]
    greedy = offloaded(partition(CHAIN, backends, policy=ByCost()), placement)
    assert greedy == dict.fromkeys("abc", "aone"), "alike as they are, the first is preferred"
    policy = ByCost(machines={"aone": slow, "host": HOST})
    assert offloaded(partition(CHAIN, backends, policy=policy), placement) == {"b": "btwo"}


def test_a_machine_model_is_a_roofline() -> None:
    machine = MachineModel(1e9, 1e6, op_seconds=0.5, call_seconds=2.0, transfer_bytes_per_second=3.0)
    assert machine.estimate(2 * 10**9, 10**6) == Estimate(2.5, 2.0, 3.0)
    assert machine.estimate(10**9, 3 * 10**6) == Estimate(3.5, 2.0, 3.0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0.0, 1.0), "MachineModel, `flops_per_second`: has a bad value; got 0.0, expected a finite number above 0"),
        (
            (1.0, float("inf")),
            "MachineModel, `bytes_per_second`: has a bad value; got inf, expected a finite number above 0",
        ),
        ((1.0, 1.0, -1.0), "MachineModel, `op_seconds`: has a bad value; got -1.0, expected a finite number 0 or more"),
    ],
)
def test_a_machine_model_checks_its_figures(arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        MachineModel(*arguments)
    assert str(caught.value) == text


def layers(count: int) -> IRModule:
    builder = FunctionBuilder("main")
    value = builder.param("x", tensor(("batch", 8)))
    for index in range(count):
        weight = np.full((8, 8), float(index + 1), np.float32)
        for op, operands in (("nn.dense", (weight,)), ("nn.relu", ())):
            (value,) = builder.bind(op, (value, *operands), {}).results
    return IRModule({"main": builder.finish(value)}, builder.constants)


def test_equal_ops_are_asked_about_once(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    queries: list[Function] = []

    def estimate(function: Function) -> Estimate:
        queries.append(function)
        return Estimate(1e-9)

    pattern = CompositePattern("aone.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))
    backends = [
        fake_backend("aone", patterns=[pattern], estimate=estimate),
        fake_backend("btwo", ["nn.dense", "nn.relu"], estimate=estimate),
    ]
    unpartitioned = layers(100)
    module = partition(unpartitioned, backends, policy=ByCost(sizes={"batch": 32}))
    assert len(offloaded(module, placement)) == 200
    assert [(f.name, f.attrs["Codegen"], f.attrs.get("maker"), f.attrs.get("reader")) for f in queries] == [
        ("aone.dense_relu", "aone", None, "nn.dense"),
        ("aone.dense_relu", "aone", "nn.relu", "nn.dense"),
        ("aone.dense_relu", "aone", "nn.relu", None),
        ("nn.dense", "btwo", None, "nn.relu"),
        ("nn.relu", "btwo", "nn.dense", "nn.dense"),
        ("nn.dense", "btwo", "nn.relu", "nn.relu"),
        ("nn.relu", "btwo", "nn.dense", None),
    ]
    for function in queries:
        verify(unpartitioned.with_function(replace(function, name="f", attrs={})))
        assert [param.type for param in function.params] == [tensor((32, 8))]
        assert function.result_types == (tensor((32, 8)),)


def test_ops_of_other_types_attributes_or_wiring_are_asked_about_again(fake_backend: type[FakeBackend]) -> None:
    queries: list[Binding] = []

    def estimate(function: Function) -> None:
        queries.append(function.bindings[0])

    module = function(
        'x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32")',
        "a = R.add(x, y)",
        "b = R.add(y, a)",
        "c = R.add(b, b)",
        "d = R.nn.softmax(c, axis=0)",
        "e = R.nn.softmax(d, axis=1)",
        'f = R.cast(e, dtype="float64")',
        "g = R.add(f, f)",
        "return g",
    )

    partition(module, [fake_backend("aone", None, estimate=estimate)], policy=ByCost())
    assert [binding.results[0].name for binding in queries] == ["a", "c", "d", "e", "f", "g"]


def test_sizes_decide(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    """Worth 100 us for the call from a batch of some hundreds on."""

    def is_offloaded(sizes: Mapping[str, int]) -> bool:
        machines = {
            "host": MachineModel(1e9, 1e15),
            "aone": MachineModel(1e12, 1e15, call_seconds=100e-6),
        }
        policy = ByCost(sizes=sizes, machines=machines)
        return bool(offloaded(partition(layers(1), [fake_backend("aone", None)], policy=policy), placement))

    assert [is_offloaded({"batch": 1000}), is_offloaded({"batch": 10}), is_offloaded({})] == [True, False, False]


@pytest.mark.parametrize("size", [-1, 2.5, "n"])
def test_sizes_are_whole_numbers(size: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        ByCost(sizes={"batch": size})
    assert str(caught.value) == f"ByCost, size `batch`: has a bad value; got {size!r}, expected an int, 0 or more"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"sizes": 3},
            "ByCost, sizes: is not a mapping with names as keys; got 3, expected a mapping such as {'batch': 32}",
        ),
        (
            {"machines": None},
            (
                "ByCost, machines: is not a mapping with names as keys; got None, expected a mapping such as "
                "{'host': MachineModel(5e10, 1e10)}"
            ),
        ),
        ({"machines": {"host": 1e9}}, "ByCost, machine `host`: is not a MachineModel; got 1000000000.0"),
    ],
)
def test_arguments_of_the_wrong_kind(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        ByCost(**arguments)
    assert str(caught.value) == text


def test_figures_for_a_backend_that_nobody_knows(
    fake_backend: type[FakeBackend], install_faulty: Callable[[], str]
) -> None:
    """An installed backend may take part in another build."""
    backend = fake_backend("aone", None)
    partition(CHAIN, [backend], policy=ByCost(machines={"aone": HOST, "host": HOST}))
    partition(CHAIN, [backend], policy=ByCost(machines={install_faulty(): HOST}))
    with pytest.raises(OptionsError) as caught:
        partition(CHAIN, [backend], policy=ByCost(machines={"aonee": HOST}))
    assert str(caught.value) == (
        "ByCost, machine `aonee`: no backend of this name takes part or is installed; "
        "expected aone, host. Did you mean 'aone'?"
    )


def test_each_backend_is_asked_once(fake_backend: type[FakeBackend]) -> None:
    """The trial claims ask; the greedy claim and the final claims repeat the answers."""
    queries: list[str] = []

    def supports(name: str) -> Callable[[Binding], Support]:
        def answer(binding: Binding) -> Support:
            queries.append(name)
            return Support()

        return answer

    backends = [fake_backend(name, supports=supports(name)) for name in ("aone", "btwo")]
    module = function('x: R.Tensor((1000,), "float32")', "a = R.tanh(x)", "return a")
    partition(module, backends, policy=ByCost(machines={"host": HOST}))
    assert queries == ["aone", "btwo"]


def test_an_estimate_of_ages_is_no_overflow(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    backend = fake_backend("aone", None, estimate=lambda function: Estimate(1e308, bytes_per_second=5e-324))
    assert offloaded(partition(CHAIN, [backend], policy=ByCost()), placement) == {}


def test_sizes_that_contradict_an_op_leave_it_to_the_model(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    queries: list[Function] = []

    def estimate(function: Function) -> Estimate:
        queries.append(function)
        return Estimate(1e-9)

    module = function('x: R.Tensor(("n - 4", 4), "float32")', "a = R.nn.relu(x)", "return a")

    backend = fake_backend("aone", None, estimate=estimate)
    assert offloaded(partition(module, [backend], policy=ByCost(sizes={"n": 3})), placement) == {"a": "aone"}
    assert queries == []
    partition(module, [backend], policy=ByCost(sizes={"n": 6}))
    assert [function.params[0].type for function in queries] == [tensor((2, 4))]


def test_a_failing_estimate_stops_the_partition(fake_backend: type[FakeBackend]) -> None:
    backend = fake_backend("aone", None, estimate=lambda function: Estimate(-1.0))
    with pytest.raises(HookError) as caught:
        partition(CHAIN, [backend], policy=ByCost())
    assert str(caught.value) == (
        "plugin `aone`, hook `byoc_estimate`: returned a bad `seconds` for function `nn.relu`; "
        "got -1.0, expected a finite int or float, 0 or more"
    )


def test_the_user_s_claim_filter_holds(
    fake_backend: type[FakeBackend], placement: type[Placement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``PartitionRequest.claim`` turns away for a backend is not counted on either."""
    claim = PartitionRequest.claim

    def stricter(self: PartitionRequest, module: IRModule, backend: Any, claim_filter: Any = accept_all) -> IRModule:
        def stricter_filter(source: str, binding: Binding) -> Rejection | None:
            if backend.name == "aone" and binding.op.name == "tanh":
                return Rejection("forced", "not there")
            answer: Rejection | None = claim_filter(source, binding)
            return answer

        return claim(self, module, backend, stricter_filter)

    monkeypatch.setattr(PartitionRequest, "claim", stricter)
    backends = [
        fake_backend("aone", None, estimate=estimates({"nn.relu": 1, "tanh": 1})),
        fake_backend("btwo", None, estimate=estimates({"nn.relu": 2, "tanh": 2})),
    ]
    module = partition(CHAIN, backends, policy=ByCost(machines={"host": HOST}))
    assert offloaded(module, placement) == {"a": "aone", "b": "btwo", "c": "aone"}


def test_what_is_claimed_already_stays_and_counts_as_where_it_is(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    """Between two ops of a backend, moving an op there pays off; beside ops of another backend, not."""

    def offloaded_after(claimed_for: str) -> dict[str, str]:
        claimed = AnnotateSupported(fake_backend(claimed_for, ["nn.relu"]))(CHAIN)
        estimate = estimates({"tanh": 11, "nn.relu": 1}, call_seconds=2e-6)
        backend = fake_backend("aone", ["tanh"], estimate=estimate)
        return offloaded(partition(claimed, [backend], policy=ByCost(machines={"host": HOST})), placement)

    assert offloaded_after("aone") == {"a": "aone", "b": "aone", "c": "aone"}
    assert offloaded_after("btwo") == {"a": "btwo", "c": "btwo"}


def test_what_the_user_forces_somewhere_goes_there_whatever_it_costs(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    dear = fake_backend("aone", None, estimate=estimates({"nn.relu": 50, "tanh": 50}))
    cheap = fake_backend("btwo", None, estimate=estimates({"nn.relu": 1, "tanh": 1}))
    policy = ByCost(machines={"host": HOST})

    def offloaded_with(backends: list[Any], **force: str) -> dict[str, str]:
        options = PartitionOptions(force=force)
        return offloaded(partition(CHAIN, backends, policy=policy, partition_options=options), placement)

    assert offloaded_with([dear]) == {}
    assert offloaded_with([dear], b="aone") == {"b": "aone"}
    assert offloaded_with([dear, cheap], b="aone", c="host") == {"a": "btwo", "b": "aone"}


def test_no_backend_and_the_host_alone_change_nothing_or_go_to_the_host() -> None:
    assert partition(CHAIN, [], policy=ByCost()) == CHAIN
    hosted = partition(CHAIN, ["host"], policy=ByCost())
    assert [f.attrs.get("Codegen") for f in hosted.functions.values()] == ["host", None]


def test_the_policies_have_names() -> None:
    assert {name: type(make()) for name, make in POLICIES.items()} == {"greedy": GreedyByOrder, "cost": ByCost}


_SETTINGS = settings(
    max_examples=settings().max_examples * 2 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def _fakes(case: Case, fake_backend: type[FakeBackend], salt: int) -> list[Any]:
    """Return backends claiming their own ops, some of others', and patterns; figures follow from op and salt."""
    claims = case.with_claims_by_kind().claims
    own = {
        (claims[binding.results[0].name], binding.op.name)
        for each in case.module.functions.values()
        for binding in each.walk()
        if binding.results[0].name in claims
    }

    def decide(index: int, name: str) -> Callable[[Binding], Support | Rejection]:
        def supports(binding: Binding) -> Support | Rejection:
            kind = f"{binding.op.name} {len(set(binding.operands))}"
            is_drawn = (name, binding.op.name) in own or (sum(map(ord, kind)) + index + salt) % 3 == 0
            return Support() if is_drawn else Rejection("drawn", "is for another")

        return supports

    def cost(index: int) -> Callable[[Function], Estimate | None]:
        def estimate(function: Function) -> Estimate | None:
            drawn = (sum(map(ord, function.name)) * (index + 3) + salt) % 7
            border = Estimate(0.0, (salt % 4) * 1e-6, (salt % 3) * 32e6)
            return Estimate(drawn * 1e-6, border.call_seconds, border.bytes_per_second) if drawn else None

        return estimate

    return [
        fake_backend(
            name,
            patterns=[pattern for pattern in case.patterns if pattern.backend == name],
            supports=decide(index, name),
            estimate=cost(index),
        )
        for index, name in enumerate(case.backends)
    ]


@_SETTINGS
@given(data=st.data())
def test_the_cost_policy_is_lawful_and_never_dearer(
    data: st.DataObject, cases: Cases, fake_backend: type[FakeBackend]
) -> None:
    case = data.draw(cases())
    fakes = _fakes(case, fake_backend, data.draw(st.integers(0, 200)))
    policy = ByCost(machines={"host": MachineModel(1e15, 1e15, op_seconds=4e-6)}, margin=0)
    after = partition(case.module, fakes, policy=policy)
    verify(after)
    check_partition(case.module, after)
    assert str(partition(case.module, fakes, policy=policy)) == str(after)
    repeated = partition(after, fakes, policy=policy)
    assert str(repeated) == str(after)
    (results, effects), (expected, wanted_effects) = case.evaluate(after), case.evaluate(case.module)
    assert repr(effects) == repr(wanted_effects)
    for have, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(have, want)
    RunCodegen(backends=fakes)(after)
    handles = [byoc_core.backends.get(fake) for fake in fakes]
    request = PartitionRequest(handles)
    prices = Prices(case.module, request, policy.machines, Sizes({}))
    for label, handle in enumerate(handles):
        prices.units(case.module, request.claim(case.module, handle), label)  # makes the borders known
    chosen, greedy = policy(case.module, request), GreedyByOrder()(case.module, request)
    assert prices.total(chosen) <= min(prices.total(greedy), prices.total(case.module))
    for module in (chosen, greedy, case.module):
        bodies = [Body(source, body, prices, ()) for source, body in bodies_of(module)]
        assert prices.total(module) == sum(body.problem.cost(body.labels({})) for body in bodies)


def test_the_guessed_host_is_slow_at_passes_over_arrays() -> None:
    """A normalisation of 1.7 operations for each byte is no product: numpy makes a pass for each operation."""
    normalisation, product = guess_host(3_900_000, 2_300_000), guess_host(390_000_000, 2_300_000)
    assert normalisation.seconds == pytest.approx(3.9e-3, rel=0.01)
    assert product.seconds == pytest.approx(39e-3, rel=0.01)
