"""Parts of calls: the times of kernels and steps inside a region, for profiles.

A profile (:func:`byoc_core.profile`) measures each call of a program. A runtime adds the parts of its calls in three
ways. Generated C has a ``BYOC_MARK_PART`` behind each kernel. Other machine code calls the function at
:func:`part_marker` behind each part. Python code calls :func:`mark_part` behind each part, if :func:`is_recording`.

A part begins at the end of the part before, in the same call and thread, or at the beginning of the call. Marks in
other threads, and marks outside of recorded calls, have no effect.

:meth:`byoc_core.runtime.RuntimeModule.report_parts` asks a module to begin. From then on, the module may mark parts in
all calls of the process, recorded or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import local
from time import perf_counter_ns
from typing import Any

from byoc_core.runtime.extension import extension

__all__ = [
    "Event",
    "events_of",
    "is_recording",
    "mark_part",
    "ops_text",
    "part_marker",
    "record_call",
    "start_recording",
]

Event = tuple[int, str | None, str | None, int, int]
"""Instruction, part, ops of the part (a line ``op value`` for each), start and stop in nanoseconds.

Part and ops are ``None`` for the instruction itself; its parts follow. The clock is :func:`time.perf_counter_ns`.
"""


class _State(local):
    """The record of the running call of a thread, without the C extension."""

    events: list[Event] | None = None
    instruction = 0
    latest = 0


_state = _State()
_recording = False


def start_recording() -> None:
    """Let :func:`is_recording` answer yes from now on."""
    global _recording  # noqa: PLW0603 - a process begins once
    _recording = True


def is_recording() -> bool:
    """Return whether any machine of this process records calls."""
    return _recording


def part_marker() -> int:
    """Return the address of ``void mark(const char *part, const char *ops)``, in C; 0 without the C extension.

    The function ends a part of the call running in the thread; see :func:`mark_part`. The texts are copied. The
    function may be called without the interpreter lock.
    """
    found = extension()
    return 0 if found is None else int(found.PART_MARKER)


def ops_text(ops: Iterable[tuple[str, str]]) -> str:
    """Return the text of a part's ops: pairs of the name of an op and the name of a computed value."""
    return "\n".join(f"{op} {value}" for op, value in ops)


def mark_part(part: str, ops: str = "") -> None:
    """End a part of the call running in this thread.

    Args:
        part: the name of the part, such as the kernel's name.
        ops: see :func:`ops_text`.
    """
    found = extension()
    if found is not None:
        found.mark_part(part, ops)
    elif _state.events is not None:
        stop = perf_counter_ns()
        _state.events.append((_state.instruction, part, ops, _state.latest, stop))
        _state.latest = stop


def events_of(record: object) -> list[Event]:
    """Return the events of a record: each instruction, and then its parts. Reading takes longer than recording."""
    if isinstance(record, list):
        return record
    found = extension()
    assert found is not None  # only the extension makes other records
    events: list[Event] = found.events_of(record)
    return events


def record_call(instruction: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, object]:
    """Call a function as an instruction of a program; return the result and the record, for :func:`events_of`."""
    found = extension()
    if found is not None:
        recorded: tuple[Any, object] = found.record_call(instruction, function, arguments)
        return recorded
    outer = _state.events, _state.instruction, _state.latest
    parts: list[Event] = []
    start = perf_counter_ns()
    _state.events, _state.instruction, _state.latest = parts, instruction, start
    try:
        result = function(*arguments)
    finally:
        stop = perf_counter_ns()
        _state.events, _state.instruction, _state.latest = outer
    return result, [(instruction, None, None, start, stop), *parts]
