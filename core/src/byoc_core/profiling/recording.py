"""Records of calls: the events of a machine, grouped by call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from byoc_core.runtime.parts import Event

__all__ = ["CallRecord", "InstructionRecord", "instruction_records"]


class CallRecord(NamedTuple):
    """A call of a model, in nanoseconds of :func:`time.perf_counter_ns`.

    Attributes:
        start: before the call.
        stop: behind the call.
        events: function and event, in the order of their end; the events of a run stand together.
    """

    start: int
    stop: int
    events: tuple[tuple[str, Event], ...]


class InstructionRecord(NamedTuple):
    """A run of an instruction, with the parts of its function.

    Attributes:
        function: the function of the program.
        instruction: the number of the instruction.
        start: nanoseconds.
        stop: nanoseconds.
        parts: events of the parts, in order.
    """

    function: str
    instruction: int
    start: int
    stop: int
    parts: tuple[Event, ...]


def instruction_records(record: CallRecord) -> Iterator[InstructionRecord]:
    """Yield the runs of instructions of a call: each event of an instruction is followed by the events of its parts."""
    current: tuple[str, Event] | None = None
    parts: list[Event] = []
    for function, event in record.events:
        if event[1] is not None:
            parts.append(event)
            continue
        if current is not None:
            yield _join(*current, parts)
        current, parts = (function, event), []
    if current is not None:
        yield _join(*current, parts)


def _join(function: str, event: Event, parts: list[Event]) -> InstructionRecord:
    return InstructionRecord(function, event[0], event[3], event[4], tuple(parts))
