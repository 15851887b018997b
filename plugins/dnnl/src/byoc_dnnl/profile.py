"""Times of single primitives: a model is run step by step, and each step is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray, PackedFunction
from byoc_core.runtime.threads import num_threads

from byoc_dnnl.engine import DnnlModule, Region
from byoc_dnnl.plan import Check
from byoc_dnnl.program import Frame, Program
from byoc_dnnl.reference import Reference
from byoc_dnnl.static_form import Shapes, print_call

if TYPE_CHECKING:
    from byoc_core import Executable

__all__ = ["Profile", "RegionTimes", "StepTime", "profile"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of a step of a region.

    Attributes:
        title: the computed ops.
        implementation: oneDNN's name of the implementation; ``byoc`` for a function of the core, empty for a check and
            for a region computed by numpy's kernels.
        layouts: the operands with layouts.
        shapes: of the operands, in the same order: inputs of a primitive first, then outputs.
        seconds: the median over the calls.
    """

    title: str
    implementation: str
    layouts: str
    shapes: Shapes
    seconds: float

    def __str__(self) -> str:
        return "  ".join(part for part in (self.title, self.implementation, self.layouts) if part)


@dataclass(frozen=True, slots=True)
class RegionTimes:
    """The times of the steps of a region, for a number of threads and shapes.

    Attributes:
        name: the region.
        num_threads: the number of threads.
        shapes: of the inputs.
        num_calls: the number of timed calls.
        steps: in the order of execution.
    """

    name: str
    num_threads: int
    shapes: Shapes
    num_calls: int
    steps: tuple[StepTime, ...]

    @property
    def seconds(self) -> float:
        """The sum of all steps."""
        return sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        total = self.seconds
        head = f"{self.name}  {print_call(self.shapes, self.num_threads)}"
        lines = [f"{head}: {total * 1e3:.3f} ms in each of {self.num_calls} calls"]
        for step in self.steps:
            share = step.seconds / total if total else 0.0
            lines.append(f"  {step.seconds * 1e3:9.4f} ms {share:6.1%}  {step}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of the steps of all regions of dnnl in calls of a function.

    Attributes:
        regions: in the order of the modules and functions, then of the first calls.
    """

    regions: tuple[RegionTimes, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.regions))


def profile(
    executable: Executable,
    inputs: Mapping[str, object],
    *,
    function: str = "main",
    num_calls: int = 20,
    num_threads: int | None = None,
) -> Profile:
    """Measure the time of each primitive in calls of a function, after an untimed first call.

    Steps are run one by one from Python, with the primitives and layouts of ordinary calls. The time of a step is the
    time between two consecutive steps. Computations of other backends are run, but not timed.

    Args:
        executable: the model.
        inputs: the function's inputs by name.
        function: the name of the function.
        num_calls: the number of timed calls.
        num_threads: the number of threads of a call; by default the number of the process.

    Raises:
        CallError: `num_calls` is below 1, or the inputs do not fit.
    """
    from byoc_core import VirtualMachine  # the run side, from which a plugin is loaded

    if num_calls < 1:
        raise CallError("profile", "needs a timed call", got=num_calls, expected="1 or more")
    timers = [
        _Timer(name, region)
        for module in executable.modules
        if isinstance(module, DnnlModule)
        for name, region in module.regions()
    ]
    externs = {timer.name: PackedFunction(timer.name, timer, timer.region.signature) for timer in timers}
    machine = VirtualMachine(executable, externs=externs, num_threads=num_threads)
    for number in range(num_calls + 1):
        machine.run(function, inputs)
        if number == 0:
            for timer in timers:
                timer.forget_times()
    return Profile(tuple(found for timer in timers for found in timer.summary()))


class _Timer:
    """A callable that runs a region like the region itself, and keeps the times of the steps."""

    def __init__(self, name: str, region: Region) -> None:
        self.name = name
        self.region = region
        self._frames: dict[Program, Frame] = {}
        self._times: dict[tuple[int, Shapes, Program | Reference], list[list[float]]] = {}

    def forget_times(self) -> None:
        """Discard all times; frames are kept."""
        self._times.clear()

    def __call__(self, *arrays: NDArray) -> None:
        number, shapes = num_threads(), tuple(array.shape for array in arrays)
        program = self.region.program(number, shapes)
        times: list[float] = []
        if isinstance(program, Program):
            frame = self._frames.get(program) or self._frames.setdefault(program, Frame(program))
            if frame.run(arrays, times):
                self._add(number, shapes, program, times)
                return
        start = perf_counter()
        self.region.reference(*arrays)
        self._add(number, shapes, self.region.reference, [start, perf_counter()])

    def _add(self, number: int, shapes: Shapes, program: Program | Reference, times: list[float]) -> None:
        spans = [end - start for start, end in pairwise(times)]
        self._times.setdefault((number, shapes, program), []).append(spans)

    def summary(self) -> list[RegionTimes]:
        """Return the times for each number of threads and shapes."""
        num_inputs = len(self.region.signature.inputs)
        return [
            RegionTimes(self.name, number, shapes[:num_inputs], len(runs), _summarise(program, runs))
            for (number, shapes, program), runs in self._times.items()
        ]


def _summarise(program: Program | Reference, runs: list[list[float]]) -> tuple[StepTime, ...]:
    seconds = [median(spans) for spans in zip(*runs, strict=True)]
    if isinstance(program, Reference):
        return (StepTime("numpy's kernels", "", "", (), seconds[0]),)
    found = []
    for step, time in zip(program.plan.steps, seconds, strict=True):
        title, name, locations = str(step), "", step.locations
        if isinstance(step, Check):
            locations = ()
        else:
            title, name = step.title, step.implementation
        layouts, shapes = ", ".join(map(str, locations)), tuple(location.desc.sizes for location in locations)
        found.append(StepTime(title, name, layouts, shapes, time))
    return tuple(found)
