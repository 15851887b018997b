"""Placement hints: values of a body best made in another value's buffer, and values with strides permitted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum

from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import CALL, CALL_DPS_PACKED
from byoc_core.opset.opdef import Trait
from byoc_core.runtime.module import CallTraits

__all__ = ["PlacementHint", "Sharing", "compact_values", "placement_hints"]

_MAX_DEPTH = 256
"""The maximum nesting depth of buffers inside buffers: the cost of checking a program grows with the depth."""


class Sharing(IntEnum):
    """The extent of memory sharing between the results and operands of rearranging ops."""

    NONE = 0
    """No sharing: all values are copied."""
    SAME_SIZE = 1
    """A value may share the place of another value with equally many elements."""
    PARTS = 2
    """A value may lie in a part of another value's buffer."""


@dataclass(frozen=True, slots=True)
class PlacementHint:
    """The best place of a value: the view op ``owner`` then needs no copy of operand ``index``.

    Attributes:
        owner: the view op.
        index: the index of the operand.
        may_stride: whether the place may have strides.
    """

    owner: Binding
    index: int
    may_stride: bool


def placement_hints(
    body: Function,
    fixed: Collection[Var],
    may_own: Callable[[Var], bool],
    traits: Callable[[str], CallTraits],
    compact: Collection[Value],
    sharing: Sharing,
) -> dict[Var, PlacementHint]:
    """Return the hints of a body: operands of view ops to be made inside the place of the op's result.

    A value has one hint: the last permitted owner in the body, and the first operand of the owner equal to the value.

    Args:
        body: a function or region.
        fixed: values with a required register already.
        may_own: returns whether the result of a view op may be written before the op's turn.
        traits: returns the permissions of a symbol's function.
        compact: values with a reader requiring C-contiguous memory.
        sharing: the permitted sharing.

    Cost: linear in the body.
    """
    producers = {result: binding for binding in body.bindings for result in binding.results}
    hints: dict[Var, PlacementHint] = {}
    depths: dict[Var, int] = {}
    for owner in reversed(body.bindings):
        if not _can_own(owner, sharing) or not may_own(owner.results[0]):
            continue
        depth = depths.get(owner.results[0], 0) + 1
        if depth > _MAX_DEPTH or not _should_own_operands(
            owner, owner.results[0] in hints or owner.results[0] in fixed, compact
        ):
            continue
        for index, operand in enumerate(owner.operands):
            producer = producers.get(operand) if isinstance(operand, Var) else None
            if not isinstance(operand, Var) or producer is None or operand in hints or operand in fixed:
                continue
            if producer.op in (CALL, CALL_DPS_PACKED) or _can_own(producer, sharing):
                may_stride = producer.op.view is not None or accepts_strides(producer, traits)
                hints[operand] = PlacementHint(owner, index, may_stride and operand not in compact)
                depths[operand] = depth
    return hints


def _should_own_operands(owner: Binding, has_place: bool, compact: Collection[Value]) -> bool:
    """Return whether operands should be made in the place of the result; else the result is a view of the operand."""
    rule = owner.op.view
    moves_elements = rule is not None and rule.is_whole and not owner.op.has_trait(Trait.RESHAPING)
    return has_place or (moves_elements and owner.results[0] in compact) or (rule is not None and rule.joins)


def _can_own(binding: Binding, sharing: Sharing) -> bool:
    rule = binding.op.view
    if rule is None:
        return False
    return sharing >= Sharing.PARTS if rule.joins else rule.is_whole and sharing >= Sharing.SAME_SIZE


def compact_values(body: Function, traits: Callable[[str], CallTraits]) -> set[Value]:
    """Return the values of a body with a reader requiring C-contiguous memory.

    Cost: linear in the body.
    """
    return {
        operand
        for binding in body.bindings
        if binding.op.view is None and not accepts_strides(binding, traits)
        for operand in binding.operands
    }


def accepts_strides(binding: Binding, traits: Callable[[str], CallTraits]) -> bool:
    """Return whether a call reads and fills tensors with strides; a copy to a device reads any."""
    if binding.op is not CALL_DPS_PACKED:
        return False
    found = traits(str(binding.attrs["symbol"]))
    return found.strided or found.domain is not None
