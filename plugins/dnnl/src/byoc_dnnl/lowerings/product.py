"""Products of matrices and of stacks of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.handles import MemoryDesc, PostOp, PrimitiveDesc
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.planner import sizes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_dense", "lower_matmul"]


def lower_dense(call: Call, planner: Planner) -> str | None:
    """Adds ``x @ weight.T``; all leading axes of ``x`` are rows."""
    x, weight = call.inputs
    inner = sizes_of(call.operands[0])[-1]
    weights = planner.place(weight)
    transposed = weights.desc.permuted((1, 0))
    return _add_product(call, planner, x, (-1, inner), weight, weights.seen_as(transposed))


def lower_matmul(call: Call, planner: Planner) -> str | None:
    """Adds a product of stacks of matrices; a ``y`` of two axes takes all leading axes of ``x`` as rows."""
    x, y = call.inputs
    left, right = (sizes_of(tensor) for tensor in call.operands)
    if len(right) == 1:
        right = (*right, 1)
    target: tuple[int, ...] = (-1, left[-1])
    if len(right) > 2:
        left = left if len(left) > 1 else (1, *left)
        rank = max(len(left), len(right))
        target, right = ((1,) * (rank - len(sizes)) + sizes for sizes in (left, right))
    place = planner.place(y) if planner.place(y).desc.sizes == right else planner.place_row_major(y)
    seen = place.desc.reshaped(right)
    if seen is None:
        place = planner.place_row_major(y)
        seen = planner.row_major(right)
    return _add_product(call, planner, x, target, y, place.seen_as(seen))


def _add_product(
    call: Call, planner: Planner, x: int, left: tuple[int, ...], weight: int, weights: Place
) -> str | None:
    """Adds a product.

    Args:
        call: the call.
        planner: the plan.
        x: the value of the left operand.
        left: the sizes that it is to have; -1 for all leading axes.
        weight: the value of the right operand.
        weights: where it lies, as ``(..., K, N)``.
    """
    sizes = sizes_of(call.operands[0])
    rows = _rows(sizes)
    source_sizes = (rows, left[1]) if left[0] == -1 else left
    place = planner.place(x)
    if place.desc.sizes != source_sizes:
        place = planner.place_row_major(x)
    result = sizes_of(call.result)
    columns = weights.desc.sizes[-1]
    stack = tuple(max(a, b) for a, b in zip(source_sizes[:-2], weights.desc.sizes[:-2], strict=False))
    target = planner.row_major((*stack, source_sizes[-2], columns))
    is_constant = planner.is_constant(weight)

    def make(post_ops: Sequence[PostOp], source: MemoryDesc) -> PrimitiveDesc | None:
        right = planner.any(weights.desc.sizes) if is_constant else weights.desc
        return planner.workshop.matmul(source, right, None, target, post_ops)

    def add(source: Place) -> str | None:
        def arguments(made: PrimitiveDesc) -> Mapping[int, Place]:
            packed = planner.reordered(weight, weights, made.memory_desc(Query.WEIGHTS_MD))
            return {Argument.SRC: source, Argument.WEIGHTS: packed}

        return add_with_followers(
            call,
            planner,
            lambda post_ops: make(post_ops, source.desc),
            arguments,
            lambda desc: _to_matrix(desc, result, target.sizes),
            lambda desc: planner.row_major(result) if desc == target else None,
        )

    seen = place.desc.reshaped(source_sizes)
    reason = add(place.seen_as(seen)) if seen else "no matrix"
    if reason is not None and not place.desc.is_row_major():
        reason = add(planner.place_row_major(x).seen_as(planner.row_major(source_sizes)))
    return reason


def _rows(sizes: tuple[int, ...]) -> int:
    rows = 1
    for size in sizes[:-1]:
        rows *= size
    return rows


def _to_matrix(desc: MemoryDesc, result: tuple[int, ...], target: tuple[int, ...]) -> MemoryDesc | None:
    """Gives an operand of the result's rank with the axes of the product; ``None`` where it repeats along some only."""
    if desc.sizes == result:
        return desc.reshaped(target)
    if target == result:
        return desc
    if len(target) == 2 and len(result) > 2 and all(size == 1 for size in desc.sizes[:-1]):
        return desc.reshaped((1, desc.sizes[-1]))
    return None
