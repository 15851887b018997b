"""Generated kernels as text: the ops, loops, estimates and source of each.

The data is the list ``kernels`` of an explanation's report::

    [{"backend", "kernels": [...], "text": the reason for an empty list}]

A kernel has the fields of :class:`byoc_core.backend.hooks.KernelReport`; numbers depending on symbolic sizes are
expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from byoc_core.printable import to_printable_lines
from byoc_core.reporting.shares import items_of
from byoc_core.reporting.text import counting, flops_count, flops_text

__all__ = ["render_kernels"]

_UNITS = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"))


def render_kernels(data: Mapping[str, Any]) -> str:
    """Return the kernels of a report as readable text; symbolic sizes have the report's counted values.

    Args:
        data: the data of a report with ``kernels``.
    """
    lines: list[str] = []
    for item in items_of(data.get("kernels")):
        kernels = items_of(item.get("kernels"))
        regions = len({kernel.get("function") for kernel in kernels})
        totals = f"{_count(len(kernels), 'kernel')} in {_count(regions, 'region')}{counting(data)}"
        lines += ["", f"{item.get('backend')}: {item.get('text') or totals}"]
        for kernel in kernels:
            lines += ["", *_kernel_lines(kernel, data)]
    return to_printable_lines("\n".join(lines[1:])) if lines else "no backend compiled anything"


def _kernel_lines(kernel: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a kernel: a heading, then sections."""
    ops, results = (", ".join(map(str, kernel.get(key) or [])) for key in ("ops", "results"))
    yield f"{kernel.get('name')}{f': {ops}' if ops else ''}{f' -> {results}' if results else ''}"
    yield f"  function: {kernel.get('function')}"
    if kernel.get("ps") is not None:
        flops, nbytes = (flops_text(kernel.get(key), data) for key in ("flops", "nbytes"))
        yield f"  estimate: {flops} FLOPs, {nbytes}B, {_time(kernel.get('ps'), data)} on one thread"
    for loop in items_of(kernel.get("shared_loops")):
        rounds, grain = (flops_count(loop.get(key), data) for key in ("rounds", "grain"))
        yield f"  for threads: {_count(rounds, 'round')} by {grain}, {_time(loop.get('ps'), data)} on one thread"
    schedule = kernel.get("schedule")
    if isinstance(schedule, Mapping) and schedule:
        yield f"  schedule: {', '.join(f'{name} = {value}' for name, value in schedule.items())}"
    loops = kernel.get("loops")
    if loops is None:
        yield "  loops: unknown, the kernel was written as text"
    else:
        yield from ("  loops:" if loops else "  loops: none", *(f"    {line}" for line in loops))
    yield "  source:"
    yield from (f"    {line}".rstrip() for line in str(kernel.get("source", "")).splitlines())


def _count(number: int | None, noun: str) -> str:
    return f"{'?' if number is None else f'{number:,}'} {noun}{'' if number == 1 else 's'}"


def _time(ps: object, data: Mapping[str, Any]) -> str:
    """Return picoseconds as readable text; ``?`` if the value is no number."""
    count = flops_count(ps, data)
    if count is None:
        return "?"
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), (1, "ps"))
    return f"{count / unit:.3g} {name}"
