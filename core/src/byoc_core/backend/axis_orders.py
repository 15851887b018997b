"""The orders of axes stated by a backend for an op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_core.ir.module import Binding, Value

__all__ = ["AxisOrders", "find_fault"]


@dataclass(frozen=True, slots=True)
class AxisOrders:
    """The orders of axes in which an op reads and writes its values without a conversion.

    An order lists axes as for ``permute_dims``: the memory holds ``permute_dims(value, order)`` in row-major order.
    ``(0, 2, 3, 1)`` is an image of the axes NCHW with channels last. ``None`` is the row-major order of the value.

    Attributes:
        operands: an order for each operand.
        results: an order for each result.
    """

    operands: tuple[tuple[int, ...] | None, ...]
    results: tuple[tuple[int, ...] | None, ...]


def find_fault(orders: AxisOrders, binding: Binding) -> str | None:
    """Return what is wrong with orders stated for an op; ``None`` if the orders fit the op."""
    pairs: tuple[tuple[str, Any, Sequence[Value]], ...] = (
        ("operands", orders.operands, binding.operands),
        ("results", orders.results, binding.results),
    )
    for kind, orders_of_kind, values in pairs:
        if not isinstance(orders_of_kind, tuple) or len(orders_of_kind) != len(values):
            return f"orders for another number of {kind} than {len(values)}"
        for order, value in zip(orders_of_kind, values, strict=True):
            if order is not None and not _is_permutation(order, value):
                return f"an order of {kind} that is no permutation of the axes, {order!r}"
    return None


def _is_permutation(order: object, value: Value) -> bool:
    rank = getattr(value.type, "rank", None)
    axes: list[object] = list(order) if isinstance(order, tuple) else []
    return rank == len(axes) and all(type(axis) is int for axis in axes) and set(axes) == set(range(rank))
