"""``tune`` on backends with kernels asleep: the fastest placement is certain."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import Status
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.errors import CallError, HookError, OptionsError
from byoc_core.partitioning import GreedyByOrder, MachineModel, PartitionOptions
from byoc_core.profiling import Peaks
from byoc_core.transform import evaluate_function
from byoc_core.tuning import Lock, Tuning

from core.tests.tuning.toys import MODULE, OPS, Installed, SleepyBackend, X

SLOW = 3e-3
"""Seconds asleep, far above the time of a call of the toy model."""
CROSSED = {"main/a": "aone", "main/b": "btwo", "main/c": "aone"}
ALL_ONE = dict.fromkeys(CROSSED, "aone")


SEARCH = importlib.import_module("byoc_core.tuning.search")
PLACING = importlib.import_module("byoc_core.tuning.placing")
BENCH = importlib.import_module("byoc_core.tuning.bench")


def set_chances_of_host(monkeypatch: pytest.MonkeyPatch, short_s: float, hopeless: float) -> None:
    """Set the first calls letting the host race: kernels of toys take less time than the host's overhead."""
    monkeypatch.setattr(SEARCH, "_SHORT_S", short_s)
    monkeypatch.setattr(SEARCH, "_HOPELESS", hopeless)


@pytest.fixture(autouse=True)
def short_profiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let profiles take ten calls, without the limits of the machine; let the host seem slow; fail at warnings."""
    original = BENCH.profile

    def quick(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **{**named, "seconds": 0.0, "warm_up": 0, "peaks": Peaks(1e11, 1e10)})

    monkeypatch.setattr(BENCH, "profile", quick)
    monkeypatch.setattr(PLACING, "_SLOW_HOST", MachineModel(1e9, 1e9, op_seconds=1.0))
    set_chances_of_host(monkeypatch, short_s=0.0, hopeless=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def crossed() -> list[SleepyBackend]:
    """Return a backend slow at ``tanh`` and a backend slow at all else."""
    return [SleepyBackend("aone", {"tanh": SLOW}), SleepyBackend("btwo", {"nn.relu": SLOW, "add": SLOW})]


def fast_and_slow() -> list[SleepyBackend]:
    return [SleepyBackend("aone"), SleepyBackend("btwo", dict.fromkeys(OPS, SLOW))]


def check_results(found: Tuning) -> None:
    (expected,) = evaluate_function(MODULE, "main", [X])
    np.testing.assert_allclose(byoc_core.VirtualMachine(found.executable)["main"](X), expected, rtol=1e-6)


def test_the_best_placement_is_found_and_replayed() -> None:
    lines: list[str] = []
    found = byoc_core.tune(MODULE, crossed(), {"x": X}, num_threads=1, progress=lines.append)
    assert found.lock.ops == CROSSED
    assert found.is_complete
    assert {row["name"]: row["outcome"] for row in found.executable.report_data["ops"]} == {
        "a": "aone",
        "b": "btwo",
        "c": "aone",
    }
    check_results(found)
    names = [name for name, _ in found.trials]
    assert names[:2] == ["aone alone", "btwo alone"]
    assert any(name.startswith("measured ops, borders of 0.5 us") for name in names)
    assert all(any(name in line for line in lines) for name in names)
    lock = found.lock
    assert (lock.backends, lock.function, lock.sizes, lock.num_threads) == (["aone", "btwo"], "main", {}, 1)
    assert lock.seconds < SLOW
    assert lock.rivals["aone alone"] > SLOW
    assert lock.rivals["btwo alone"] > 2 * SLOW
    assert lock.versions.keys() == {"byoc-core"}  # objects have no version
    built = byoc_core.build(MODULE, crossed(), placement=lock)
    assert built.report_data["regions"] == found.executable.report_data["regions"]
    assert {f"main/{row['name']}": row["outcome"] for row in built.report_data["ops"]} == CROSSED
    assert str(found).startswith(f"{len(names)} placements measured; fastest: ")


def test_tasks_and_profile_are_of_the_best_placement() -> None:
    found = byoc_core.tune(MODULE, crossed(), num_threads=1)
    assert {region.backend for region in found.profile.regions} >= {"aone", "btwo"}
    assert {task.name: task.backend for task in found.tasks if task.trials} == {
        "nn.relu": "aone",
        "tanh": "btwo",
        "add": "aone",
    }
    assert all(task.trials in (0, 2) for task in found.tasks)


def test_tuning_again_finds_the_same() -> None:
    first, second = (byoc_core.tune(MODULE, crossed(), num_threads=1, seed=seed) for seed in (0, 1))
    assert first.lock.ops == second.lock.ops == CROSSED


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_backend_alone_wins_where_no_mixture_is_better(order: int) -> None:
    found = byoc_core.tune(MODULE, fast_and_slow()[::order], num_threads=1)
    assert found.lock.ops == ALL_ONE
    alone = min(seconds for name, seconds in found.lock.rivals.items() if name.endswith(" alone"))
    assert found.lock.seconds <= alone < SLOW
    assert found.lock.rivals["btwo alone"] > 3 * SLOW
    check_results(found)


@pytest.mark.parametrize("chances", [(60.0, 0.0), (0.0, 1e9)])
def test_the_host_alone_wins_if_fastest_and_is_replayed(
    chances: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chances_of_host(monkeypatch, *chances)
    backends = [SleepyBackend(name, dict.fromkeys(OPS, SLOW)) for name in ("aone", "btwo")]
    found = byoc_core.tune(MODULE, backends, num_threads=1)
    on_host = dict.fromkeys(CROSSED, "host")
    assert found.lock.ops == on_host
    assert found.lock.rivals["the host"] < SLOW < found.lock.rivals["aone alone"]
    assert found.lock.backends == ["aone", "btwo"]
    check_results(found)
    built = byoc_core.build(MODULE, backends, placement=found.lock)
    assert {f"main/{row['name']}": row["outcome"] for row in built.report_data["ops"]} == on_host


def test_a_host_without_a_chance_does_not_race() -> None:
    found = byoc_core.tune(MODULE, crossed(), num_threads=1)
    assert "the host" not in found.lock.rivals
    assert found.lock.ops == CROSSED


def test_a_single_slow_backend_loses_against_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    set_chances_of_host(monkeypatch, 60.0, 0.0)
    found = byoc_core.tune(MODULE, [SleepyBackend("aone", {"tanh": SLOW})], num_threads=1)
    assert set(found.lock.ops.values()) == {"host"}
    assert [name for name, _ in found.trials] == ["aone alone", "the host"]


def test_a_backend_taking_nothing_is_the_host_and_races_once(monkeypatch: pytest.MonkeyPatch) -> None:
    set_chances_of_host(monkeypatch, 60.0, 0.0)
    found = byoc_core.tune(MODULE, [SleepyBackend("aone", ops=[])], num_threads=1)
    assert set(found.lock.ops.values()) == {"host"}
    assert [name for name, _ in found.trials] == ["aone alone"]


def test_the_host_does_not_race_if_everything_must_be_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    set_chances_of_host(monkeypatch, 60.0, 0.0)
    found = byoc_core.tune(MODULE, [SleepyBackend("aone", {"tanh": SLOW})], num_threads=1, fallback="error")
    assert found.lock.ops == ALL_ONE
    assert found.lock.rivals.keys() == {"aone alone"}


def test_backends_able_to_do_different_ops_are_mixed() -> None:
    able = [SleepyBackend("aone", ops=["nn.relu"]), SleepyBackend("btwo", {"nn.relu": SLOW}, ["nn.relu", "tanh"])]
    found = byoc_core.tune(MODULE, able[::-1], num_threads=1)
    assert (found.lock.ops["main/a"], found.lock.ops["main/c"]) == ("aone", "host")


def test_regions_move_to_other_backends_without_times_of_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops of the fast backend end at an op for others alone: whole regions can move."""
    monkeypatch.setattr(SEARCH, "spread_ops", lambda *_: {})
    module = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.nn.relu(x)
    b = R.sin(a)
    c = R.tanh(b)
    return c
""")
    backends = crossed()
    for backend in backends:
        backend.has_parts = False
    found = byoc_core.tune(module, backends, num_threads=1)
    assert any(name.endswith((" to aone", " to btwo")) for name, _ in found.trials)
    assert found.lock.ops == {"main/a": "aone", "main/b": "host", "main/c": "btwo"}


@pytest.mark.parametrize("silent", [(0, 1), (0,), (1,)])
def test_single_ops_move_where_backends_report_no_parts(silent: tuple[int, ...]) -> None:
    backends = crossed()
    for index in silent:
        backends[index].has_parts = False
    found = byoc_core.tune(MODULE, backends, num_threads=1)
    assert found.lock.ops == CROSSED
    assert found.lock.seconds < SLOW
    assert len(silent) == 1 or any(name == "main/b to btwo" for name, _ in found.trials)
    assert all(task.trials <= 2 - len(silent) for task in found.tasks)  # times spread over ops are no measurements


def test_one_backend_is_measured_once() -> None:
    found = byoc_core.tune(MODULE, [SleepyBackend("aone", ops=["tanh"])], num_threads=1)
    assert [name for name, _ in found.trials] == ["aone alone"]
    assert found.lock.ops == {"main/a": "host", "main/b": "aone", "main/c": "host"}
    assert found.is_complete
    assert found.lock.rivals == {"aone alone": found.lock.seconds}
    check_results(found)


def test_backends_unable_to_compile_here_take_no_part() -> None:
    absent = Status(ok=False, reason="npucc is missing", remedy="")
    off = SleepyBackend("aone", status=absent)
    found = byoc_core.tune(MODULE, [off, SleepyBackend("btwo")], num_threads=1)
    assert found.lock.backends == ["btwo"]
    for backends in ([off], ["host"]):
        with pytest.raises(OptionsError) as caught:
            byoc_core.tune(MODULE, backends)
        assert str(caught.value) == "tune, backends: no backend can compile here. `byoc doctor` lists the reasons."


def test_installed_backends_are_the_default_and_have_versions() -> None:
    registry = Installed(*crossed())
    found = byoc_core.tune(MODULE, num_threads=1, seconds=0.0, compiler=Compiler(registry))
    assert found.lock.backends == ["aone", "btwo"]
    assert found.lock.versions["btwo"] == "byoc-btwo 1.0"
    assert list(found.lock.differences(registry)) == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_failing_codegen_is_left_out(order: int) -> None:
    backends = [*crossed(), SleepyBackend("bad", fault=ZeroDivisionError("kaboom"))][::order]
    lines: list[str] = []
    found = byoc_core.tune(MODULE, backends, num_threads=1, strict=True, progress=lines.append)
    assert any(line.startswith("bad alone: ") and "kaboom" in line for line in lines)
    assert "bad" not in found.lock.ops.values()
    assert found.lock.rivals.keys() >= {"aone alone", "btwo alone"}
    assert "bad alone" not in found.lock.rivals
    check_results(found)


def test_a_contained_failure_counts_as_a_placement_on_the_host() -> None:
    backends = [SleepyBackend("bad", fault=ZeroDivisionError("kaboom")), SleepyBackend("aone")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = byoc_core.tune(MODULE, backends, num_threads=1)
    assert any("kaboom" in str(warning.message) for warning in caught)
    assert "bad" not in found.lock.ops.values()
    check_results(found)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("shift", [1.0, float("nan")])
def test_wrong_results_are_left_out_in_any_order(order: int, shift: float) -> None:
    backends = [SleepyBackend("wrong", shift=shift), SleepyBackend("aone", dict.fromkeys(OPS, SLOW))][::order]
    lines: list[str] = []
    found = byoc_core.tune(MODULE, backends, num_threads=1, progress=lines.append)
    assert "wrong alone: the results differ from the host; the placement is left out" in lines
    assert found.lock.ops == ALL_ONE
    check_results(found)


def test_wrong_results_alone_are_an_error() -> None:
    lines: list[str] = []
    with pytest.raises(OptionsError, match="no placement of the model can be compiled and run"):
        byoc_core.tune(MODULE, [SleepyBackend("wrong", shift=1.0)], progress=lines.append)
    assert lines == ["wrong alone: the results differ from the host; the placement is left out"]


def test_a_failing_kernel_is_left_out() -> None:
    bad: Any = dict.fromkeys(OPS, "no number")
    lines: list[str] = []
    found = byoc_core.tune(
        MODULE, [SleepyBackend("bad", bad), SleepyBackend("aone")], num_threads=1, progress=lines.append
    )
    assert any(line.startswith("bad alone: ") for line in lines)
    assert found.lock.ops == ALL_ONE


def test_a_single_faulty_backend_raises_its_error() -> None:
    with pytest.raises(HookError, match="kaboom"):
        byoc_core.tune(MODULE, [SleepyBackend("bad", fault=ZeroDivisionError("kaboom"))], strict=True)


def interrupt_at(number: int) -> tuple[list[str], Callable[[str], object]]:
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        if len(lines) == number:
            raise KeyboardInterrupt

    return lines, progress


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interruption_keeps_the_best_so_far(number: int) -> None:
    lines, progress = interrupt_at(number)
    found = byoc_core.tune(MODULE, crossed(), num_threads=1, progress=progress)
    assert len(lines) == number
    assert not found.is_complete
    # Two lines follow the race of the backends alone; the next placement is the best.
    assert found.lock.ops == (CROSSED if number == 3 else ALL_ONE)
    assert found.lock.seconds == pytest.approx(min(seconds for _, seconds in found.trials))
    check_results(found)


def test_an_interruption_before_any_measurement_ends_all() -> None:
    lines, progress = interrupt_at(1)
    wrong = [SleepyBackend("wrong", shift=1.0), SleepyBackend("aone")]
    with pytest.raises(KeyboardInterrupt):
        byoc_core.tune(MODULE, wrong, progress=progress)
    assert len(lines) == 1


def test_without_a_budget_the_first_placements_race() -> None:
    found = byoc_core.tune(MODULE, crossed(), num_threads=1, seconds=0.0)
    assert not found.is_complete
    assert {name for name, _ in found.trials} >= {"aone alone", "btwo alone"}
    assert not any("measured ops" in name or " to " in name for name, _ in found.trials)
    assert found.lock.ops == ALL_ONE
    with pytest.raises(OptionsError, match="tune, seconds: is negative; got -1"):
        byoc_core.tune(MODULE, crossed(), seconds=-1)


SYMBOLIC = R.parse("""
def main(x: R.Tensor(("n", 4), "float32")):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.add(b, a)
    return c
""")


@pytest.mark.parametrize(("sizes", "n"), [({"n": 3}, 3), (None, 1), ({"n": 2, "unused": 5}, 2)])
def test_symbolic_sizes_are_drawn_and_recorded(sizes: dict[str, int] | None, n: int) -> None:
    found = byoc_core.tune(SYMBOLIC, crossed(), sizes=sizes, num_threads=1)
    assert found.lock.sizes == {"n": n}
    assert found.lock.ops == CROSSED
    assert np.shape(byoc_core.VirtualMachine(found.executable)["main"](np.zeros((5, 4), np.float32))) == (5, 4)


def test_faulty_calls_are_told_at_once() -> None:
    for arguments, text in (
        ({"inputs": {}}, "input `x` is missing"),
        ({"inputs": {"x": X, "y": X}}, "y"),
        ({"inputs": {"x": X[:1]}}, "x"),
        ({"function": "mian"}, "Did you mean 'main'"),
    ):
        lines: list[str] = []
        with pytest.raises(CallError, match=text):
            byoc_core.tune(MODULE, crossed(), **arguments, progress=lines.append)
        assert lines == []


def test_choices_of_the_request_hold_except_places() -> None:
    request = CompileRequest(policy=GreedyByOrder(), partition_options=PartitionOptions(force={"b": "host"}))
    found = byoc_core.tune(MODULE, crossed(), request=request, num_threads=1)
    assert found.lock.ops == {**ALL_ONE, "main/b": "host"}
    lock = Lock(["btwo"], dict.fromkeys(CROSSED, "btwo"))
    assert byoc_core.tune(MODULE, crossed(), placement=lock, num_threads=1).lock.ops == CROSSED


def test_ops_forced_to_a_backend_leave_no_reference_on_the_host() -> None:
    lines: list[str] = []
    options = PartitionOptions(force={"a": "btwo"})
    found = byoc_core.tune(MODULE, crossed(), num_threads=1, partition_options=options, progress=lines.append)
    assert lines[0].startswith("no results of the host: op `nn.relu` at `a` of function `main`: is forced to `btwo`")
    assert found.lock.ops["main/a"] == "btwo"
    check_results(found)


def test_backends_unable_to_do_all_share_a_model_to_be_offloaded() -> None:
    """No backend alone is allowed, and neither order gives each op to the faster backend."""
    module = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.add(b, a)
    d = R.abs(c)
    return d
""")
    backends = [
        SleepyBackend("aone", {"tanh": SLOW}, ["nn.relu", "tanh", "add"]),
        SleepyBackend("btwo", {"add": SLOW}, ["tanh", "add", "abs"]),
    ]
    found = byoc_core.tune(module, backends, num_threads=1, fallback="error")
    assert found.lock.ops == {"main/a": "aone", "main/b": "btwo", "main/c": "aone", "main/d": "btwo"}
    names = {name for name, _ in found.trials}
    assert not any(name.endswith(" alone") for name in names)
    assert "aone, btwo" in names
    assert found.lock.seconds < SLOW


def test_offloading_everything_can_be_required() -> None:
    lines: list[str] = []
    backends = [SleepyBackend("aone", ops=["tanh"]), SleepyBackend("btwo", {"tanh": SLOW})]
    found = byoc_core.tune(MODULE, backends, num_threads=1, fallback="error", progress=lines.append)
    assert any(line.startswith("aone alone: ") for line in lines)
    assert "host" not in found.lock.ops.values()
    assert found.lock.ops["main/b"] == "aone"
