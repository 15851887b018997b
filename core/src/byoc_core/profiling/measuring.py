"""Measurement: calls of a model on a recording machine, summed by region and part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from time import perf_counter_ns
from typing import TYPE_CHECKING

from byoc_core.errors import OptionsError
from byoc_core.profiling.peaks import Peaks, measure_peaks
from byoc_core.profiling.program_work import ProgramWork
from byoc_core.profiling.recording import CallRecord
from byoc_core.profiling.results import Profile
from byoc_core.profiling.sums import sum_regions
from byoc_core.runtime.devices import Device
from byoc_core.runtime.parts import events_of
from byoc_core.runtime.threads import num_threads as process_threads
from byoc_core.vm.machine import VirtualMachine
from byoc_core.vm.vm_callable import check_names

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable
    from byoc_core.vm.state import State
    from byoc_core.vm.vm_callable import VMCallable

__all__ = ["profile"]

_MIN_CALLS, _MAX_CALLS = 10, 10_000
_MAX_RECORDS = 8
"""Calls kept for traces."""


def profile(
    executable: Executable,
    inputs: Mapping[str, object] | Sequence[object],
    *,
    function: str = "main",
    num_calls: int | None = None,
    seconds: float = 1.0,
    warm_up: int = 3,
    num_threads: int | None = None,
    externs: Mapping[str, Callable[..., object]] | None = None,
    devices: Mapping[str, Device | int] | None = None,
    peaks: Peaks | None = None,
    state: State | None = None,
    progress: Callable[[str], object] | None = None,
) -> Profile:
    """Measure the regions and kernels of a model in calls on the same inputs.

    A recording machine runs the model: each call of a region, each copy, and each part reported by a backend has two
    times of the clock. Results are the results of an ordinary machine. The record costs about 0.1 us for a call of a
    region and 0.05 us for a part.

    Calls of a function with states all begin at the same values, and change no state of the caller.

    Args:
        executable: the model.
        inputs: the inputs, by name or in order.
        function: the function to call.
        num_calls: the number of measured calls; by default, calls for ``seconds``, but at least 10.
        seconds: see ``num_calls``.
        warm_up: calls before the measurement behind a first call, for first uses of sizes and memory.
        num_threads: the number of threads of a call; by default the number of the process.
        externs: as for :class:`byoc_core.VirtualMachine`.
        devices: as for :class:`byoc_core.VirtualMachine`. The time of a call on a device is the time of enqueuing.
        peaks: the limits of this machine; measured if absent.
        state: the values before each call, of a function with states; by default the values before a first call.
        progress: called with the name of each stage at the stage's beginning.

    Raises:
        OptionsError: a number is out of range.
        CallError: an input is missing or does not fit.
        ExecutionError: a call failed.
    """
    _check("num_calls", num_calls, 1)
    _check("warm_up", warm_up, 0)
    say = progress or (lambda _stage: None)
    say("prepare")
    runs: list[tuple[str, object]] = []
    machine = VirtualMachine(
        executable,
        externs=externs,
        num_threads=num_threads,
        devices=devices,
        record=lambda name, record: runs.append((name, record)),
    )
    call = machine[function]
    say("warm up")
    if isinstance(inputs, Mapping):
        check_names(f"function `{function}`", "input", inputs, call.params, complete=True)
        inputs = [inputs[param.name] for param in call.params]
    start_state = state.fork() if state is not None else call.new_state() if call.has_states else None
    restart, run = _repeatable(call, inputs, start_state)
    for _ in range(1 + warm_up):
        restart()
        run()
    say("measure")
    records: list[CallRecord] = []
    end = perf_counter_ns() + int(seconds * 1e9)
    while len(records) < (num_calls or _MIN_CALLS) or (
        num_calls is None and len(records) < _MAX_CALLS and perf_counter_ns() < end
    ):
        runs.clear()
        restart()
        start = perf_counter_ns()
        run()
        stop = perf_counter_ns()
        events = tuple((name, event) for name, record in runs for event in events_of(record))
        records.append(CallRecord(start, stop, events))
    typical = median_low(record.stop - record.start for record in records)
    faster_half = [record for record in records if record.stop - record.start <= typical]
    known_sizes = {} if start_state is None else start_state.known_sizes()
    sizes = call.sizes_of(inputs, known_sizes)
    threads = process_threads() if num_threads is None else num_threads
    if peaks is None:
        say("measure the machine")
        peaks = measure_peaks(threads)
    regions, instructions = sum_regions(faster_half, ProgramWork(executable, sizes))
    return Profile(
        function,
        sizes,
        threads,
        len(records),
        sum(record.stop - record.start for record in faster_half) / len(faster_half) / 1e9,
        regions,
        peaks,
        executable.report_data,
        tuple(records[-_MAX_RECORDS:]),
        instructions,
    )


def _repeatable(
    call: VMCallable, inputs: Sequence[object], start: State | None
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a function restoring the values before a call, and the call."""
    if start is None:
        return lambda: None, lambda: call(*inputs)
    current = call.new_state()
    named = {param.name: value for param, value in zip(call.params, inputs, strict=True)}
    return lambda: current.restart(start), lambda: call.run(named, state=current)


def _check(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise OptionsError(f"profile, {name}", "is too small", got=value, expected=f"{least} or more")
