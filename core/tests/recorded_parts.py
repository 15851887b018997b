"""Recorded calls of a model, and the laws of their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import byoc_core
import numpy as np
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.parts import Event, events_of

__all__ = ["check_times", "ops_in", "record_run", "rows_in_regions"]


def record_run(
    executable: byoc_core.Executable, inputs: Mapping[str, NDArray], function: str = "main", *, num_threads: int = 1
) -> list[Event]:
    """Return the events of a run; check the results against a run without a record."""
    events: list[Event] = []
    recording = byoc_core.VirtualMachine(
        executable, num_threads=num_threads, record=lambda _, record: events.extend(events_of(record))
    )
    plain = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    for got, expected in zip(*(_results(machine.run(function, inputs)) for machine in (recording, plain)), strict=True):
        assert np.array_equal(got, expected, equal_nan=True)
    assert events, "nothing was recorded"
    return events


def _results(found: object) -> tuple[NDArray, ...]:
    return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))


def check_times(events: Sequence[Event]) -> None:
    """Check each call and its parts: the parts follow one another within the call."""
    latest = end = 0
    for instruction, part, ops, start, stop in events:
        assert start <= stop
        if part is None:
            assert ops is None
            assert start >= end, f"instruction {instruction} begins before the end of the instruction before"
            latest, end = start, stop
        else:
            assert ops is not None
            assert start == latest, f"part {part} does not begin at the end of the part before"
            assert stop <= end, f"part {part} ends after the call"
            latest = stop


def ops_in(events: Sequence[Event]) -> Counter[tuple[str, str]]:
    """Return the number of parts with each op and value."""
    lines = [line for _, _, ops, _, _ in events for line in (ops or "").splitlines()]
    return Counter((op, value) for op, _, value in (line.partition(" ") for line in lines))


def rows_in_regions(executable: byoc_core.Executable) -> list[tuple[str, str]]:
    """Return the ops of the offload report that run inside regions, with their values."""
    rows = [(row["op"], row["name"]) for row in executable.report_data["ops"] if row["region"] is not None]
    assert rows
    return rows
