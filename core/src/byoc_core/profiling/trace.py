"""Profiles as traces: the Trace Event Format of Chrome, read by Perfetto.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from byoc_core.profiling.recording import CallRecord, InstructionRecord, instruction_records

if TYPE_CHECKING:
    from byoc_core.profiling.results import Profile

__all__ = ["make_trace"]


def make_trace(profile: Profile) -> dict[str, Any]:
    """Return the latest calls of a profile as JSON values: a bar for each call, region or copy, and part, nested."""
    records = profile.records
    origin = records[0].start if records else 0
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "byoc"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": f"calls of `{profile.function}`"}},
    ]
    for record in records:
        events += _call(record, profile, origin)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _call(record: CallRecord, profile: Profile, origin: int) -> Iterator[dict[str, Any]]:
    args = {"num_threads": profile.num_threads, "sizes": dict(profile.sizes)}
    yield _bar(profile.function, "call", record.start - origin, record.stop - origin, args)
    for run in instruction_records(record):
        work = profile.instructions.get((run.function, run.instruction))
        if work is not None:
            args = {"function": run.function, "instruction": run.instruction, "bytes": work.nbytes}
            yield _bar(work.symbol or work.region, work.backend, run.start - origin, run.stop - origin, args)
            yield from _parts(run, work.backend, origin)


def _parts(run: InstructionRecord, backend: str, origin: int) -> Iterator[dict[str, Any]]:
    for _, part, ops, start, stop in run.parts:
        yield _bar(part or "", backend, start - origin, stop - origin, {"ops": (ops or "").splitlines()})


def _bar(name: str, category: str, start: int, stop: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start / 1e3, "dur": (stop - start) / 1e3}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": 0, **times, "args": args}
