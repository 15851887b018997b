"""Primitives with names: other layouts and implementations of a call, open to choice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from byoc_core.printable import to_printable

from byoc_dnnl.capi import Query

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.planner import Planner

__all__ = ["NamedPrimitive", "as_chosen", "implementations"]

_LOGGER = logging.getLogger("byoc_core")
_OLDEST = "sse41"
_MAX_IMPLEMENTATIONS, _MAX_OFFERED = 8, 8
"""Implementations asked for in a layout, and schedules offered to a search."""

NamedPrimitive = tuple[str, "PrimitiveDesc"]


def implementations(layout: str, offer: Callable[[int], PrimitiveDesc | None]) -> Iterator[NamedPrimitive]:
    """Yield the primitives of a layout with names, in oneDNN's order.

    Reference implementations, and the implementations for the oldest processors, are left out.

    Args:
        layout: the name of the layout.
        offer: returns the primitive after passing over a number of implementations.
    """
    for number in range(_MAX_IMPLEMENTATIONS):
        primitive = offer(number)
        if primitive is None:
            return
        if not primitive.is_reference and _OLDEST not in primitive.implementation:
            yield f"{layout} impl={primitive.implementation}", primitive


def as_chosen(
    planner: Planner,
    call: Call,
    named: Callable[[], Iterator[NamedPrimitive]],
    usual: PrimitiveDesc | None,
    *,
    is_default: bool = True,
) -> PrimitiveDesc | None:
    """Return the primitive with the name chosen for a call, if it exists; else the usual primitive.

    Args:
        planner: the plan.
        call: the call.
        named: returns the primitives open to choice.
        usual: the primitive without a choice.
        is_default: whether a call without a name gets the usual primitive.
    """
    name = planner.schedule_of(call)
    if usual is None or (name is None and not planner.collects):
        return usual
    if planner.collects:
        seen, offered = [_identity(usual)] if is_default else [], []
        for own_name, primitive in named():
            if _identity(primitive) not in seen:
                seen.append(_identity(primitive))
                offered.append(own_name)
        planner.offered[call.result_name] = tuple(offered[:_MAX_OFFERED])
    if name is None:
        return usual
    found = next((primitive for own_name, primitive in named() if own_name == name), None)
    if found is None:
        _LOGGER.warning("%s has no schedule `%s`; the schedule is left out", call.op, to_printable(name[:80]))
    return found or usual


def _identity(primitive: PrimitiveDesc) -> tuple[str, MemoryDesc, MemoryDesc, MemoryDesc]:
    """Return implementation and layouts."""
    source, weights, target = map(primitive.memory_desc, (Query.SRC_MD, Query.WEIGHTS_MD, Query.DST_MD))
    return primitive.implementation, source, weights, target
