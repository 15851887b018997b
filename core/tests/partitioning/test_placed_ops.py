"""``PlacedOps``: replay of placements, refusals, and names outside of the model."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.driver import CompileRequest
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.partitioning import GreedyByOrder, PartitionLog, partition
from byoc_core.partitioning.policies import FILE_POLICIES, POLICIES, PlacedOps, placement_key
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.transform import evaluate_function
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.graphs import BINARY, UNARY, Plan, grow, plan_of_seed, plans
from core.tests.partitioning.laws import check_laws
from core.tests.partitioning.trial import check_same_run

MODULE = R.parse("""
def main(x: R.Tensor((2, 4))):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.add(b, a)
    return c
""")
OPS = ("nn.relu", "tanh", "add")


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {placement_key((row["function"], row["name"])): row["outcome"] for row in report["ops"]}


def placed(ops: dict[str, str], *backends: object) -> dict[str, str]:
    return outcomes(dict(byoc_core.build(MODULE, backends, policy=PlacedOps(ops)).report_data))


def test_each_op_goes_where_the_placement_says() -> None:
    first, second = FakeBackend("aone", OPS), FakeBackend("btwo", OPS)
    for rng in map(random.Random, range(20)):
        ops = {f"main/{name}": rng.choice(("aone", "btwo", "host")) for name in "abc"}
        assert placed(ops, first, second) == ops


def test_ops_outside_of_the_placement_go_to_the_first_able_backend() -> None:
    first, second = FakeBackend("aone", ["tanh"]), FakeBackend("btwo", OPS)
    assert placed({"main/b": "btwo"}, first, second) == dict.fromkeys(("main/a", "main/b", "main/c"), "btwo")
    assert placed({}, first, second) == {"main/a": "btwo", "main/b": "aone", "main/c": "btwo"}


def test_backends_unknown_or_unable_leave_the_op_on_the_host() -> None:
    backend = FakeBackend("aone", ["nn.relu", "add"])
    ops = {"main/a": "aone", "main/b": "aone", "main/c": "nonsense"}
    assert placed(ops, backend) == {"main/a": "aone", "main/b": "host", "main/c": "host"}


def test_the_log_gives_the_reason() -> None:
    log = PartitionLog()
    policy = PlacedOps({"main/a": "host", "main/b": "btwo"})
    partition(MODULE, [FakeBackend("aone", OPS), FakeBackend("btwo", OPS)], policy=policy, log=log)
    texts = {name: [r.rejection.text for r in log.refusals("main", name)] for name in "abc"}
    assert texts == {
        "a": ["the placement gives the op to the host"] * 2,
        "b": ["the placement gives the op to `btwo`"],
        "c": [],
    }


def test_a_composite_goes_only_as_a_whole() -> None:
    pattern = CompositePattern("aone.tanh_relu", is_op("tanh")(is_op("nn.relu")(wildcard())), leaked="return")
    backend, other = FakeBackend("aone", patterns=[pattern]), FakeBackend("btwo", OPS)
    assert placed({"main/a": "aone", "main/b": "aone", "main/c": "btwo"}, backend, other) == {
        "main/a": "aone",
        "main/b": "aone",
        "main/c": "btwo",
    }
    assert placed({"main/a": "aone", "main/b": "btwo", "main/c": "btwo"}, backend, other) == {
        "main/a": "host",  # takes the op only with the other
        "main/b": "btwo",
        "main/c": "btwo",
    }


def test_ops_outside_of_the_model_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend("aone", OPS)
    with caplog.at_level(logging.WARNING, "byoc_core"):
        placed({"main/a": "aone"}, backend)
        assert caplog.messages == []
        placed({"main/a": "aone", "main/\x1b[31mz": "aone", "other/a": "host"}, backend)
    (message,) = caplog.messages
    assert message == (
        "the placement names 2 of 3 ops outside of the model, such as main/\N{REPLACEMENT CHARACTER}[31mz; another "
        "model, or another version?"
    )


@pytest.mark.parametrize("ops", [3, None, ["a"], {"a": 3}, {3: "a"}, {"a": None}])
def test_bad_placements_are_refused(ops: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        PlacedOps(ops)
    assert str(caught.value) == (
        f"PlacedOps, ops: is not a mapping from ops to backends; got {ops!r}, expected a mapping such as "
        "{'main/conv_0': 'mynpu', 'main/softmax_3': 'host'}"
    )


def test_placements_are_policies_of_files_only(tmp_path: Path) -> None:
    """The command line has ``--placement``."""
    assert FILE_POLICIES["placed"] is PlacedOps
    assert "placed" not in POLICIES
    path = tmp_path / "build.toml"
    path.write_text('policy = {name = "placed", ops = {"main/a" = "aone"}}')
    request = CompileRequest.from_file(path)
    assert request.policy == PlacedOps({"main/a": "aone"})
    path.write_text(request.to_toml())
    assert CompileRequest.from_file(path) == request
    assert CompileRequest.from_data(request.to_record()) == request


SEVERAL = st.sampled_from(("aone", "btwo", "cthree"))
KIND_SETS = st.lists(st.sets(st.sampled_from((*UNARY, *BINARY, "concat", "reshape", "split"))), min_size=1, max_size=3)
_SETTINGS = settings(
    max_examples=max(settings().max_examples // 4, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def backends_of(module: IRModule, backends: list[FakeBackend], policy: Any) -> dict[str, str]:
    facts = check_laws(module, partition(module, backends, policy=policy))
    return {name: facts.backend_of[region] for name, region in facts.region_of.items()}


@_SETTINGS
@given(plan=plans(), kinds=KIND_SETS, seed=st.integers(0, 1000))
def test_placements_of_random_graphs_are_followed_exactly(plan: Plan, kinds: list[set[str]], seed: int) -> None:
    _check_followed(plan, kinds, seed)


def test_random_placements_offload_to_several_backends() -> None:
    found = [_check_followed(plan_of_seed(seed), [set(UNARY), {*UNARY, *BINARY}], seed) for seed in range(10)]
    assert sum(len(set(ops.values())) > 1 for ops in found) > 5


def _check_followed(plan: Plan, kinds: list[set[str]], seed: int) -> dict[str, str]:
    case = grow(plan)
    backends = [FakeBackend(name, ops) for name, ops in zip(("aone", "btwo", "cthree"), kinds, strict=False)]
    able = {backend.name: backends_of(case.module, [backend], GreedyByOrder()) for backend in backends}
    names = sorted({name for function in case.module.functions.values() for name in _results(function)})
    rng = random.Random(seed)
    choice = {name: rng.choice((*able, "host", "nonsense")) for name in names}
    policy = PlacedOps(
        {
            placement_key((function.name, name)): choice[name]
            for function in case.module.functions.values()
            for name in _results(function)
        }
    )
    after = partition(case.module, backends, policy=policy)
    found = backends_of(case.module, backends, policy)
    assert found == {name: choice[name] for name in names if name in able.get(choice[name], {})}
    check_same_run(case, after)
    return found


def _results(function: Any) -> list[str]:
    return [binding.results[0].name for binding in function.walk()]


@_SETTINGS
@given(plan=plans(), seed=st.integers(0, 1000))
def test_placements_with_composites_break_no_law(plan: Plan, seed: int) -> None:
    case = grow(plan)
    rng = random.Random(seed)
    choice = {
        placement_key((function.name, name)): rng.choice((*case.backends, "host"))
        for function in case.module.functions.values()
        for name in _results(function)
    }
    after = partition(case.module, case.plugins(FakeBackend), policy=PlacedOps(choice))
    facts = check_laws(case.module, after)
    by_name = {key.partition("/")[2]: backend for key, backend in choice.items()}
    assert all(by_name[name] == facts.backend_of[region] for name, region in facts.region_of.items())
    check_same_run(case, after)


STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "multiply", "nn.relu", "tanh", "negative")), st.integers(0), st.integers(0)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=max(settings().max_examples // 2, 1), deadline=None)
@given(steps=STEPS, kinds=st.sets(st.sampled_from(("add", "multiply", "nn.relu", "tanh"))), data=st.data())
def test_reports_tell_the_placement_and_results_stay(
    steps: list[tuple[str, int, int]], kinds: set[str], data: st.DataObject
) -> None:
    values = ["x"]
    lines = ["def main(x: R.Tensor((2, 3))):"]
    for number, (op, first, second) in enumerate(steps):
        operands = [values[first % len(values)], values[second % len(values)]]
        operands = operands if op in ("add", "multiply") else operands[:1]
        values.append(f"v{number}")
        lines.append(f"    v{number} = R.{op}({', '.join(operands)})")
    module = R.parse("\n".join([*lines, f"    return {values[-1]}, {values[len(values) // 2]}"]))
    backends = [FakeBackend("aone", kinds), FakeBackend("btwo", None)]
    ops = {f"main/{name}": data.draw(st.sampled_from(("aone", "btwo", "host"))) for name in values[1:]}
    executable = byoc_core.build(module, backends, policy=PlacedOps(ops))
    for row in executable.report_data["ops"]:
        chosen = ops[f"main/{row['name']}"]
        assert row["outcome"] == ("host" if chosen == "aone" and row["op"] not in kinds else chosen)
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    found = byoc_core.VirtualMachine(executable)["main"](x)
    for result, expected in zip(found, evaluate_function(module, "main", [x]), strict=True):
        np.testing.assert_array_equal(result, expected)


class Noting(FakeBackend):
    """A backend keeping the schedules of the compiled ops, by name."""

    @property
    def noted(self) -> dict[str, str]:
        return {
            binding.results[0].name: binding.schedule
            for function in self.compiled
            for binding in function.walk()
            if binding.schedule is not None
        }


PAIR = CompositePattern("aone.tanh_relu", is_op("tanh")(is_op("nn.relu")(wildcard())), leaked="return")


@pytest.mark.parametrize("patterns", [[], [PAIR]])
def test_schedules_reach_the_codegen(patterns: list[CompositePattern]) -> None:
    """The ops of a composite share a schedule; ops of the host have none."""
    backend = Noting("aone", ["nn.relu", "tanh"], patterns)
    schedules = {"main/b": "tile=8", "main/c": "tile=2"}
    executable = byoc_core.build(MODULE, [backend], policy=PlacedOps({}, schedules))
    assert backend.compiled
    assert backend.noted == dict.fromkeys("ab" if patterns else "b", "tile=8")
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    (expected,) = evaluate_function(MODULE, "main", [x])
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), expected)


def test_noted_schedules_are_printed_and_parsed() -> None:
    backend = FakeBackend("aone", OPS)
    partitioned = partition(MODULE, [backend], policy=PlacedOps({}, {"main/b": 'od"d \n'}))
    text = str(partitioned)
    assert text.count("schedule=") == 1
    assert str(byoc_core.parse(text)) == text


def test_regions_with_other_schedules_differ() -> None:
    one, other, same = (
        partition(MODULE, [FakeBackend("aone", OPS)], policy=PlacedOps({}, {"main/b": name})) for name in "xyx"
    )
    assert byoc_core.ir.structurally_equal(one, same)
    assert not byoc_core.ir.structurally_equal(one, other)


def test_schedules_change_nothing_in_control_flow_or_annotated_functions() -> None:
    module = partition(MODULE, [FakeBackend("aone", OPS)])
    assert partition(module, [FakeBackend("aone", OPS)], policy=PlacedOps({}, {"main/b": "tile=8"})) is module


@pytest.mark.parametrize("schedules", [3, None, ["a"], {"a": 3}, {3: "a"}])
def test_bad_schedules_are_refused(schedules: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        PlacedOps({}, schedules)
    assert str(caught.value) == (
        f"PlacedOps, schedules: is not a mapping from ops to names of schedules; got {schedules!r}, expected a mapping "
        "such as {'main/conv_0': 'tile=8'}"
    )
