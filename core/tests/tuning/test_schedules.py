"""The search for schedules: backends with kernels asleep offer faster and slower schedules."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.artifact import Executable
from byoc_core.backend import CompileContext
from byoc_core.driver import Compiler
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.measurements import Calibration, Measurements
from byoc_core.partitioning import ByCost, MachineModel
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.profiling import Peaks
from byoc_core.runtime.module import PackedFunction
from byoc_core.runtime.parts import mark_part, ops_text
from byoc_core.transform import evaluate_function
from byoc_core.tuning import Lock, Tuning
from byoc_core.tuning.building import BuiltPlacement
from byoc_core.tuning.candidates import placement_of

from core.tests.conftest import FakeBackend, FakeModule
from core.tests.tuning.toys import MODULE, OPS, Installed, X

SLOW = 4e-3
FAST = 1e-3


@pytest.fixture(autouse=True)
def short_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let profiles take ten calls, without the limits of the machine; the host is as fast as the toys."""
    monkeypatch.setattr(importlib.import_module("byoc_core.tuning.search"), "_may_win", lambda *_: False)
    module = importlib.import_module("byoc_core.tuning.bench")
    original = module.profile

    def quick(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **{**named, "seconds": 0.0, "warm_up": 0, "peaks": Peaks(1e11, 1e10)})

    monkeypatch.setattr(module, "profile", quick)


class ScheduledModule(FakeModule):
    """Kernels asleep as long as their schedule says, with a part for each op."""

    type_key = "scheduled"
    clock: ScheduledBackend

    def report_parts(self) -> None:
        """Parts are always reported: marks outside of recordings have no effect."""

    def find_function(self, name: str) -> PackedFunction:
        found, function = super().find_function(name), self.functions[name]

        def run(*arrays: Any) -> None:
            found(*arrays)
            mark_part(f"{name}_own")
            for binding in function.walk():
                if binding.op.name == "composite":
                    continue
                time.sleep(self.clock.sleep(binding.op.name, binding.schedule))
                mark_part(f"{name}_{binding.op.name}", ops_text([(binding.op.name, binding.results[0].name)]))
            shift = {"wrong": 1.0}.get(next((b.schedule for b in function.walk() if b.schedule), ""), 0.0)
            for output in arrays[len(function.params) :]:
                output += shift

        return PackedFunction(name, run, found.signature)


class ScheduledBackend(FakeBackend):
    """A backend with ``tanh`` slow but for the schedule ``fast``.

    Args:
        names: the offered schedules of each op.
    """

    def __init__(
        self,
        name: str = "aone",
        names: dict[str, Sequence[str]] | Callable[[Binding], Sequence[str]] | None = None,
        patterns: Sequence[CompositePattern] = (),
        slow: Sequence[str] = ("tanh",),
    ) -> None:
        offered = {"tanh": ["slower", "fast"]} if names is None else names
        self.asked: list[str] = []
        self.slow = slow
        self.built: list[dict[str, str]] = []

        def schedules(function: Function) -> dict[str, Sequence[str]]:
            self.asked.append(function.name)
            ops = [binding for binding in function.walk() if not binding.regions]
            if callable(offered):
                return {op.results[0].name: offered(op) for op in ops}
            return {op.results[0].name: offered[op.op.name] for op in ops if op.op.name in offered}

        super().__init__(name, OPS, patterns, schedules=schedules)

    def sleep(self, op: str, schedule: str | None) -> float:
        """Return the seconds of an op's kernel."""
        if op not in self.slow:
            return 0.0
        return {"fast": FAST, "slower": 2 * SLOW}.get(schedule or "", SLOW)

    def _module(self, functions: Sequence[Function], context: CompileContext) -> FakeModule:
        self.built.append({b.results[0].name: b.schedule for f in functions for b in f.walk() if b.schedule})
        module = ScheduledModule(self.name, functions, context)
        module.clock = self
        return module


def tuned(backend: FakeBackend, module: IRModule = MODULE, **arguments: Any) -> tuple[Tuning, list[str]]:
    lines: list[str] = []
    return byoc_core.tune(module, [backend], num_threads=1, progress=lines.append, **arguments), lines


def check_results(executable: Any, module: IRModule = MODULE) -> None:
    (expected,) = evaluate_function(module, "main", [X])
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X), expected, rtol=1e-6)


def test_the_faster_schedule_is_found_locked_and_replayed() -> None:
    backend = ScheduledBackend()
    found, lines = tuned(backend)
    assert found.is_complete
    assert found.lock.schedules == {"main/b": "fast"}
    assert found.lock.seconds < SLOW < found.lock.rivals["aone alone"]
    check_results(found.executable)
    tried = [line for line in lines if "tanh main/b: " in line]
    assert [line.partition("tanh main/b: ")[2].partition("  ")[0] for line in tried] == ["slower", "fast"]
    assert any("schedules of 1 kinds of ops" in line for line in lines)
    (task,) = (task for task in found.tasks if task.name == "tanh")
    assert (task.schedule, task.trials) == ("fast", 3)  # the backend alone, and two schedules
    again = ScheduledBackend()
    built = byoc_core.build(MODULE, [again], placement=found.lock)
    assert again.built == [{"b": "fast"}]
    check_results(built)


def test_the_database_keeps_the_schedule_for_later_builds(tmp_path: Path) -> None:
    """A build by cost reads the time and the name of the faster schedule; another op keeps the backend's own choice."""
    database = Measurements(str(tmp_path / "db"))
    tuned(ScheduledBackend(), measurements=database)
    rows = {row.schedule: row.seconds for row in database.rows() if row.op == "tanh"}
    assert rows.keys() == {"", "fast"}
    assert rows["fast"] < rows[""] / 2
    again = ScheduledBackend()
    slow_host = {"host": MachineModel(1.0, 1.0)}
    policy = ByCost(measurements=database, num_threads=1, machines=slow_host)
    check_results(byoc_core.build(MODULE, [again], policy=policy))
    assert again.built == [{"b": "fast"}]
    unwarmed = ScheduledBackend()
    byoc_core.build(MODULE, [unwarmed], policy=ByCost(machines=slow_host))
    assert unwarmed.built == [{}]


def test_a_slower_schedule_in_the_database_is_not_chosen(tmp_path: Path) -> None:
    database = Measurements(str(tmp_path / "db"))
    tuned(ScheduledBackend(), measurements=database)
    (fast,) = database.rows(schedule="fast")
    (usual,) = database.rows(schedule="", key=fast.key)
    slower = replace(fast, schedule="slower", seconds=2 * usual.seconds)
    found = Calibration.of([usual, slower])
    assert found.schedules == {}
    assert found.seconds[fast.key] == usual.seconds
    assert Calibration.of([slower, fast, usual]).schedules == {fast.key: "fast"}
    assert Calibration.of([fast]).schedules == {}


def test_slower_schedules_leave_the_own_choice() -> None:
    backend = ScheduledBackend(names={"tanh": ["slower", "other"]})
    found, _ = tuned(backend)
    assert {"b": "slower"} in backend.built
    assert found.lock.schedules == {}
    assert found.is_complete


def test_wrong_results_of_a_schedule_are_left_out() -> None:
    found, lines = tuned(ScheduledBackend(names={"tanh": ["wrong", "fast"]}))
    assert "schedules: the results differ from the host; the placement is left out" in lines
    assert found.lock.schedules == {"main/b": "fast"}
    check_results(found.executable)


def test_equal_ops_share_a_choice() -> None:
    """The op with another reader is another op for the backend; a region is asked for once."""
    module = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.tanh(x)
    b = R.tanh(a)
    c = R.tanh(b)
    d = R.tanh(c)
    return d
""")
    backend = ScheduledBackend()
    found, lines = tuned(backend, module)
    assert found.lock.schedules == dict.fromkeys(("main/a", "main/b", "main/c", "main/d"), "fast")
    assert len(backend.asked) == 1
    for label in ("tanh main/a: fast", "tanh main/b and 1 equal: fast", "tanh main/d: fast"):
        assert sum(label in line for line in lines) == 1, label
    check_results(found.executable, module)


def test_several_ops_are_tried_in_one_build() -> None:
    backend = ScheduledBackend(names={"tanh": ["slower", "fast"], "add": ["fast", "slower"]}, slow=("tanh", "add"))
    found, lines = tuned(backend)
    assert found.lock.schedules == {"main/b": "fast", "main/c": "fast"}
    assert {"b": "slower", "c": "fast"} in backend.built
    assert any("schedules of 2 kinds of ops" in line for line in lines)
    check_results(found.executable)


def test_light_ops_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.tuning.schedules._LEAST_SHARE", 0.3)
    backend = ScheduledBackend(names={"tanh": ["fast"], "add": ["slower"]})
    found, _ = tuned(backend)
    assert found.lock.schedules == {"main/b": "fast"}
    assert all("c" not in names for names in backend.built)


def test_ops_of_composites_have_schedules() -> None:
    pattern = CompositePattern("aone.tanh_relu", is_op("tanh")(is_op("nn.relu")(wildcard())), leaked="return")
    found, _ = tuned(ScheduledBackend(patterns=[pattern]))
    assert found.lock.schedules == {"main/b": "fast"}  # the named op of the composite bears the schedule
    assert found.is_complete
    check_results(found.executable)


def test_a_failing_hook_costs_its_region_only() -> None:
    def fail(_: Binding) -> Sequence[str]:
        raise ZeroDivisionError("kaboom")

    found, lines = tuned(ScheduledBackend(names=fail))
    assert any("kaboom" in line for line in lines)
    assert found.lock.schedules == {}
    check_results(found.executable)


def test_without_time_no_schedules_are_tried() -> None:
    backend = ScheduledBackend()
    found, _ = tuned(backend, seconds=0.0)
    assert backend.asked == []
    assert not found.is_complete
    assert found.lock.schedules == {}


def test_an_interruption_keeps_the_best() -> None:
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        if "tanh main/b" in line:
            raise KeyboardInterrupt

    found = byoc_core.tune(MODULE, [ScheduledBackend()], num_threads=1, progress=progress)
    assert not found.is_complete
    assert found.lock.schedules == {}
    check_results(found.executable)


@pytest.mark.parametrize(
    "schedules", [{"main/b": "nonsense \x1b[31m"}, {"main/a": "fast"}, {"main/zzz": "fast"}, {"": ""}]
)
def test_a_poisoned_lock_changes_speed_only(schedules: dict[str, str]) -> None:
    lock = Lock(["aone"], dict.fromkeys(("main/a", "main/b", "main/c"), "aone"), schedules=schedules)
    built = byoc_core.build(MODULE, [ScheduledBackend()], placement=lock)
    assert {row["outcome"] for row in built.report_data["ops"]} == {"aone"}
    check_results(built)


class Inline(Executor):
    """An executor without other processes."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_workers_race_each_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(Installed(ScheduledBackend()))
    built: dict[bytes, Executable] = {}

    def pack(executable: Executable, schedules: Mapping[str, str]) -> BuiltPlacement:
        content = str(len(built)).encode()
        built[content] = executable  # the runtime of the backend is not installed: nothing loads an artifact
        return BuiltPlacement(content, placement_of(executable.report_data), dict(schedules))

    monkeypatch.setattr("byoc_core.tuning.building.BuiltPlacement.of", pack)
    monkeypatch.setattr("byoc_core.tuning.trial._load", built.__getitem__)
    for module in ("building", "contents"):
        monkeypatch.setattr(f"byoc_core.tuning.{module}.Compiler", lambda: compiler)
    lines: list[str] = []
    found = byoc_core.tune(MODULE, ["aone"], num_threads=1, compiler=compiler, executor=Inline(), progress=lines.append)
    assert found.lock.schedules == {"main/b": "fast"}
    assert found.lock.seconds < SLOW
    assert {name for name, _ in found.trials} == {"aone alone", "tanh main/b: slower", "tanh main/b: fast"}
    check_results(found.executable)
