"""Schedules chosen by name: the name of a schedule, and the choice among the schedules offered for an op.

A kernel offers a few schedules near the heuristic's choice, all legal. An op names one of these, or has the heuristic's
choice; other names may come from a lock written elsewhere and have no effect but a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from byoc_core.errors import InternalError
from byoc_core.printable import to_printable

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.steps import Step

__all__ = ["MAX_OFFERED", "legal", "schedule_as_chosen", "schedule_name"]

MAX_OFFERED = 8
"""Schedules offered beside the heuristic's choice: each costs a search a compilation."""

_LOGGER = logging.getLogger("byoc_core")
_Schedule = TypeVar("_Schedule")


def schedule_name(schedule: Any) -> str:
    """Return the name of a schedule: the kind, and the fields other than their defaults."""
    kind = type(schedule).__name__.removesuffix("Schedule").lower()
    values = {item.name: (getattr(schedule, item.name), item.default) for item in fields(schedule)}
    shown = (
        f"{name}={_word(value)}" for name, (value, default) in values.items() if default is MISSING or value != default
    )
    return " ".join((kind, *shown))


def _word(value: object) -> str:
    """Return a value as in reports of kernels, without spaces."""
    if isinstance(value, bool) or value is None:
        return "none" if value is None else "yes" if value else "no"
    return str(value).replace(" ", "-")


def legal(schedules: Iterable[_Schedule], check: Callable[[_Schedule], object]) -> Iterator[_Schedule]:
    """Yield the schedules for which ``check`` raises no :class:`InternalError`."""
    for schedule in schedules:
        try:
            check(schedule)
        except InternalError:
            continue
        yield schedule


def schedule_as_chosen(
    kernel: Kernel, step: Step, default: _Schedule, offered: Callable[[], Iterable[_Schedule]]
) -> _Schedule:
    """Return the schedule named by a step, if offered; else the default.

    Args:
        kernel: the kernel of the step.
        step: the step, perhaps with the name of a schedule.
        default: the heuristic's choice.
        offered: returns further legal schedules, the most promising first; called only if somebody asks.
    """
    name, collected = step.binding.schedule, kernel.context.offered
    if (name is None and collected is None) or kernel.options.portable:
        return default
    by_name = {schedule_name(schedule): schedule for schedule in offered() if schedule != default}
    if collected is not None:
        # In a model the default may be another, because memory is laid out by other ops: all names are known there.
        collected.setdefault(step.binding.results[0].name, tuple(by_name)[:MAX_OFFERED])
    if name is None or name == schedule_name(default):
        return default
    if name not in by_name:
        _LOGGER.warning("%s has no schedule `%s`; the schedule is left out", step.op, to_printable(name[:80]))
    return by_name.get(name, default)
