"""``ByCost`` against each backend alone: the margin of mixtures, figures of tables, and neighbours of ops."""

from __future__ import annotations

import pytest
from byoc_core import script as R
from byoc_core.authoring.cost_table import CostRow, CostTable
from byoc_core.backend import Estimate
from byoc_core.errors import OptionsError
from byoc_core.ir import Function, IRModule
from byoc_core.partitioning import ByCost, MachineModel, partition
from byoc_core.partitioning.policies.cost_model import Sizes, guess_host
from byoc_core.partitioning.policies.neighbours import Neighbours, neighbours_of
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

SLOW_HOST = {"host": MachineModel(1e15, 1e15, op_seconds=1.0)}


def chain(*ops: str) -> IRModule:
    """Return a module with a chain of ops."""
    lines, value = ['def main(x: R.Tensor((64, 64), "float32")):'], "x"
    for index, op in enumerate(ops):
        lines.append(f"v{index} = R.{op}({value})")
        value = f"v{index}"
    return R.parse("\n    ".join([*lines, f"return {value}"]))


def backend(fake_backend: type[FakeBackend], name: str, border: float = 0.0, **microseconds: float) -> FakeBackend:
    """Return a backend with microseconds by op; underlines stand for points."""
    costs = {op.replace("_", "."): value for op, value in microseconds.items()}

    def estimate(function: Function) -> Estimate:
        return Estimate(costs[function.name] * 1e-6, border * 1e-6)

    return fake_backend(name, list(costs), estimate=estimate)


def takers(module: IRModule, backends: list[FakeBackend], policy: ByCost, placement: type[Placement]) -> list[str]:
    """Return the backends of the ops of a chain, in order."""
    where = placement(partition(module, backends, policy=policy))
    return [where.backend_of[region] for _, region in sorted(where.region_of.items())]


def test_a_mixture_saving_less_than_the_margin_is_not_taken(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    backends = [
        backend(fake_backend, "aone", nn_relu=10, tanh=90),
        backend(fake_backend, "btwo", nn_relu=17, tanh=85),
    ]
    module = chain("nn.relu", "tanh")
    mixed, best = ["aone", "btwo"], ["aone", "aone"]
    assert takers(module, backends, ByCost(machines=SLOW_HOST, margin=0), placement) == mixed
    assert takers(module, backends, ByCost(machines=SLOW_HOST, margin=0.04), placement) == mixed
    assert takers(module, backends, ByCost(machines=SLOW_HOST, margin=0.06), placement) == best
    assert takers(module, backends, ByCost(machines=SLOW_HOST), placement) == best
    assert takers(module, backends[::-1], ByCost(machines=SLOW_HOST), placement) == best


def test_a_mixture_saving_the_margin_is_taken(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    backends = [
        backend(fake_backend, "aone", nn_relu=10, tanh=90),
        backend(fake_backend, "btwo", nn_relu=90, tanh=10),
    ]
    assert takers(chain("nn.relu", "tanh"), backends, ByCost(machines=SLOW_HOST), placement) == ["aone", "btwo"]


def test_a_host_without_figures_is_a_part_of_a_mixture(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    """The guessed host is 0.2 us faster in one op of two: less than the margin."""
    module = chain("nn.relu", "tanh")
    work = Sizes({}).work(module.functions["main"].bindings[1])
    guess = guess_host(*work).seconds * 1e6
    host = MachineModel(1e15, 1e15, op_seconds=guess * 1e-6)
    backends = [backend(fake_backend, "aone", nn_relu=1, tanh=guess + 0.2)]
    assert takers(module, backends, ByCost(), placement) == ["aone", "aone"]
    assert takers(module, backends, ByCost(margin=0), placement) == ["aone"]
    assert takers(module, backends, ByCost(machines={"host": host}), placement) == ["aone"]


def test_ops_unknown_to_the_best_backend_go_to_another(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    backends = [backend(fake_backend, "aone", nn_relu=10), backend(fake_backend, "btwo", tanh=1)]
    assert takers(chain("nn.relu", "tanh"), backends, ByCost(machines=SLOW_HOST), placement) == ["aone", "btwo"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["nn.relu", "tanh", "exp"]), min_size=1, max_size=6),
    st.lists(st.integers(1, 50), min_size=6, max_size=6),
    st.floats(0, 0.9),
)
def test_the_result_costs_no_more_than_any_backend_alone(ops: list[str], costs: list[int], margin: float) -> None:
    names = ["nn_relu", "tanh", "exp"]
    backends = [
        backend(FakeBackend, "aone", **dict(zip(names, costs[:3], strict=True))),
        backend(FakeBackend, "btwo", **dict(zip(names, costs[3:], strict=True))),
    ]
    found = takers(chain(*ops), backends, ByCost(machines=SLOW_HOST, margin=margin), Placement)
    of_backend = {
        "aone": [costs[names.index(op.replace(".", "_"))] for op in ops],
        "btwo": [costs[3 + names.index(op.replace(".", "_"))] for op in ops],
    }
    cost = sum(of_backend[name][index] for index, name in enumerate(found))
    best = min(map(sum, of_backend.values()))
    assert len(found) == len(ops)
    assert cost <= best
    if len(set(found)) > 1:
        assert cost <= (1 - margin) * best + 1e-6


@pytest.mark.parametrize("margin", [-0.1, 1, float("nan"), "much"])
def test_a_bad_margin_is_an_error(margin: float) -> None:
    with pytest.raises(OptionsError) as caught:
        ByCost(margin=margin)
    assert str(caught.value) == f"ByCost, margin: has a bad value; got {margin!r}, expected 0 or more, below 1"


def test_figures_of_the_user_replace_estimates(fake_backend: type[FakeBackend], placement: type[Placement]) -> None:
    backends = [backend(fake_backend, "aone", tanh=1), backend(fake_backend, "btwo", tanh=2)]
    slow = MachineModel(1e15, 1e15, op_seconds=1e-3)
    module = chain("tanh")
    assert takers(module, backends, ByCost(machines=SLOW_HOST), placement) == ["aone"]
    assert takers(module, backends, ByCost(machines={**SLOW_HOST, "aone": slow}), placement) == ["btwo"]


def table(module: IRModule, **microseconds: float) -> CostTable:
    """Return a table with the ops of a module, ops behind other ops for free."""
    costs = {op.replace("_", "."): value * 1e-6 for op, value in microseconds.items()}
    bindings = {binding.op.name: binding for binding in module.functions["main"].bindings}
    rows = [CostRow.of(bindings[op], seconds) for op, seconds in costs.items() if op in bindings]
    return CostTable(1e11, 1e10, tuple(row for row in rows if row), {("nn.relu", "tanh", ""): (0, 9)}, 1e-6)


def test_tables_decide_and_followers_stay_behind_their_op(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    module = chain("tanh", "nn.relu")
    tables = [table(module, tanh=100, nn_relu=20), table(module, tanh=60, nn_relu=50)]
    backends = [
        fake_backend(name, ["tanh", "nn.relu"], estimate=costs.estimate)
        for name, costs in zip(("aone", "btwo"), tables, strict=True)
    ]
    assert takers(module, backends, ByCost(machines=SLOW_HOST), placement) == ["btwo", "btwo"]
    swapped = chain("nn.relu", "tanh")
    assert takers(swapped, backends, ByCost(machines=SLOW_HOST), placement) == ["aone", "btwo"]


def test_neighbours_are_joined_by_values_with_one_reader() -> None:
    ops = (
        "a = R.tanh(x)",
        "b = R.exp(a)",
        "c = R.nn.relu(b)",
        "d = R.add(c, b)",
        "e = R.add(c, c)",
        "f = R.multiply(e, d)",
    )
    lines = ['def main(x: R.Tensor((4,), "float32")):', *ops, "return (f, e)"]
    module = R.parse("\n    ".join(lines))
    found = {name: site.neighbours for (_, name), site in neighbours_of(module).items()}
    assert found == {
        "a": Neighbours("", "exp"),
        "b": Neighbours("tanh", ""),
        "c": Neighbours("", ""),
        "d": Neighbours("", "multiply"),
        "e": Neighbours("", ""),
        "f": Neighbours("", ""),
    }


def test_a_mixture_pays_for_followers_taken_from_their_op(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    """Between neighbours of one backend, an activation is free; the activation alone would cost more than is saved."""

    def along(function: Function) -> Estimate:
        return Estimate(1e-6 if function.attrs.get("maker") == "tanh" else 90e-6)

    module = chain("tanh", "nn.relu")
    first = backend(fake_backend, "aone", nn_relu=50, tanh=100)
    follower = fake_backend("btwo", ["nn.relu"], estimate=along)
    policy = ByCost(machines=SLOW_HOST, margin=0)
    assert takers(module, [first, follower], policy, placement) == ["aone", "aone"]
    alone = fake_backend("btwo", ["nn.relu"], estimate=lambda function: Estimate(1e-6))
    assert takers(module, [first, alone], policy, placement) == ["aone", "btwo"]


def test_ops_computed_along_with_others_keep_a_backend_first(
    fake_backend: type[FakeBackend], placement: type[Placement]
) -> None:
    """Op by op the first tanh is cheaper elsewhere, but the second then costs more than both."""

    def estimate(function: Function) -> Estimate:
        if function.name == "nn.relu":
            return Estimate(10e-6)
        return Estimate(0.0 if function.attrs.get("maker") == "nn.relu" else 100e-6)

    backends = [
        backend(fake_backend, "btwo", nn_relu=5, tanh=50, exp=5),
        fake_backend("aone", ["nn.relu", "tanh"], estimate=estimate),
    ]
    module = chain("nn.relu", "tanh", "exp", "nn.relu", "tanh")
    for ordered in (backends, backends[::-1]):
        found = takers(module, ordered, ByCost(machines=SLOW_HOST, margin=0), placement)
        assert found == ["aone", "aone", "btwo", "aone", "aone"]
