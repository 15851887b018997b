"""Measurement: calls of a model on a recording machine, summed by region and part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.errors import OptionsError
from byoc_core.profiling.peaks import Peaks, measure_peaks
from byoc_core.profiling.program_work import ProgramWork
from byoc_core.profiling.recording import CallRecord
from byoc_core.profiling.results import Profile
from byoc_core.profiling.sums import sum_regions
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.devices import Device
from byoc_core.runtime.parts import events_of
from byoc_core.runtime.threads import num_threads as process_threads
from byoc_core.vm.machine import VirtualMachine

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

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
    progress: Callable[[str], object] | None = None,
) -> Profile:
    """Measure the regions and kernels of a model in calls on the same inputs.

    A recording machine runs the model: each call of a region, each copy, and each part reported by a backend has two
    times of the clock. Results are the results of an ordinary machine. The record costs about 0.1 us for a call of a
    region and 0.05 us for a part.

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
        call.run(inputs)  # checks the names
        inputs = [inputs[param.name] for param in call.params]
    else:
        call(*inputs)
    for _ in range(warm_up):
        call(*inputs)
    say("measure")
    records: list[CallRecord] = []
    end = perf_counter_ns() + int(seconds * 1e9)
    while len(records) < (num_calls or _MIN_CALLS) or (
        num_calls is None and len(records) < _MAX_CALLS and perf_counter_ns() < end
    ):
        runs.clear()
        start = perf_counter_ns()
        call(*inputs)
        stop = perf_counter_ns()
        events = tuple((name, event) for name, record in runs for event in events_of(record))
        records.append(CallRecord(start, stop, events))
    typical = median_low(record.stop - record.start for record in records)
    faster_half = [record for record in records if record.stop - record.start <= typical]
    sizes = bind_symbols(call.params, [np.asarray(value) for value in inputs])
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


def _check(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise OptionsError(f"profile, {name}", "is too small", got=value, expected=f"{least} or more")
