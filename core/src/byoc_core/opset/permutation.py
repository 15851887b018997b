"""Ops on operands with axes stored in another order.

An order is a permutation of the axes: the value of the program is ``permute_dims(stored, axes=order)``. Axis ``i`` of
the value is axis ``order[i]`` of the stored array. :class:`~byoc_core.transform.MoveTransposes` relies on these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from byoc_core.opset.contexts import OpContext

__all__ = ["Order", "Permutable", "PermuteRule", "inverse", "permute_axis", "permute_reduction"]

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Permutable:
    """The computation of a use of an op on operands stored in another order.

    Attributes:
        rank: the number of permuted axes.
        operands: the positions of the permuted operands; other operands stay unchanged.
        attrs: return the op's attributes for an order.
        dropped: the axes missing from the result.
        order_matters: whether float results depend on the order of the elements.
    """

    rank: int
    operands: tuple[int, ...]
    attrs: Callable[[Order], Mapping[str, Any]]
    dropped: tuple[int, ...] = ()
    order_matters: bool = False

    def result_order(self, order: Order) -> Order:
        """Return the stored order of results if operands are stored in ``order``."""
        remaining = [order[axis] for axis in range(self.rank) if axis not in self.dropped]
        return tuple(sorted(remaining).index(axis) for axis in remaining)


PermuteRule = Callable[[OpContext], Permutable | None]
"""Return the computation of a use of an op on permuted operands; ``None`` if impossible."""


def inverse(order: Order) -> Order:
    """Return the inverse permutation of ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def permute_axis(
    name: str = "axis", operands: tuple[int, ...] | None = (0,), *, order_matters: bool = False
) -> PermuteRule:
    """Return the rule of ops with a single axis as an attribute.

    Args:
        name: the attribute.
        operands: the positions of the permuted operands; ``None`` for all operands.
        order_matters: whether float results depend on the order of the elements.
    """

    def rule(context: OpContext) -> Permutable | None:
        rank = len(context.operand_shape())
        positions = tuple(range(len(context.operands))) if operands is None else operands
        if not rank or any(len(context.operand_shape(index)) != rank for index in positions):
            return None
        axis = context.ints(name)[0] % rank
        return Permutable(
            rank, positions, lambda order: {**context.attrs, name: order[axis]}, order_matters=order_matters
        )

    return rule


def permute_reduction(*, order_matters: bool) -> PermuteRule:
    """Return the rule of reductions with attributes ``axis`` (an integer, several, or ``None``) and ``keepdims``.

    Args:
        order_matters: whether float results depend on the order of the elements.
    """

    def rule(context: OpContext) -> Permutable | None:
        rank = len(context.operand_shape())
        if not rank:
            return None
        axis_attr = context.attrs["axis"]
        axes = tuple(range(rank)) if axis_attr is None else tuple(axis % rank for axis in context.ints("axis"))

        def attrs(order: Order) -> Mapping[str, Any]:
            moved = tuple(sorted(order[axis] for axis in axes))
            return {
                **context.attrs,
                "axis": moved[0] if isinstance(axis_attr, int) else None if axis_attr is None else moved,
            }

        return Permutable(rank, (0,), attrs, () if context.attrs["keepdims"] else axes, order_matters)

    return rule
