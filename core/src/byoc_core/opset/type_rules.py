"""Shared parts of the type rules of op families: axes, broadcasting, comparison of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.dims import Dim, broadcast_dim, is_positive
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "FLOAT_KINDS",
    "INTEGER_KINDS",
    "NUMBER_KINDS",
    "broadcast_shapes",
    "flops_per_element",
    "gathered_nbytes",
    "known_size",
    "padded_type",
    "require_at_most",
    "require_dtype_kind",
    "require_equal",
    "require_kind",
    "require_rank",
    "require_same_dtype",
    "require_shape",
    "require_sizes",
    "resolve_axes",
    "resolve_axis",
    "same_type",
    "shape_text",
]

FLOAT_KINDS = ("float",)
INTEGER_KINDS = ("int", "uint")
NUMBER_KINDS = ("float", "int", "uint")


_KIND_NAMES = {"float": "floating-point", "int": "integer", "uint": "unsigned integer", "bool": "bool"}


def require_kind(context: TypeContext, index: int, kinds: Sequence[str]) -> TensorType:
    """Return the type of tensor operand ``index``, which must have a dtype of the given kinds.

    Raises:
        IRTypeError: the dtype is of another kind.
    """
    type_ = context.tensor(index)
    if dtype_info(type_.dtype).kind not in kinds:
        raise context.error(
            "has a dtype not accepted by the op", operand=index, got=type_.dtype, expected=_kinds_text(kinds)
        )
    return type_


def require_dtype_kind(context: TypeContext, dtype: str, kinds: Sequence[str]) -> None:
    """Check that the dtype named by attribute `dtype` is of the given kinds.

    Raises:
        IRTypeError: the dtype is of another kind.
    """
    if dtype_info(dtype).kind not in kinds:
        raise context.error("attribute `dtype` is not available as a result", got=dtype, expected=_kinds_text(kinds))


def _kinds_text(kinds: Sequence[str]) -> str:
    return "a dtype of kind " + " or ".join(_KIND_NAMES[kind] for kind in kinds)


def require_sizes(context: TypeContext, shape: Sequence[Dim], *, attribute: str = "shape") -> None:
    """Check the sizes given by an attribute for negative sizes, as far as decidable while compiling.

    Raises:
        IRTypeError: a size is negative.
    """
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise context.error(f"attribute `{attribute}` has a negative size", got=shape_text(shape), expected="0 or more")


def require_same_dtype(context: TypeContext, first: int, *rest: int) -> str:
    """Return the dtype shared by several operands.

    Raises:
        IRTypeError: the dtypes differ; the first operand with another dtype is named.
    """
    dtype = context.tensor(first).dtype
    for index in rest:
        other = context.tensor(index).dtype
        if other != dtype:
            name = context.operand_names[first] if context.operand_names else str(first)
            raise context.error(
                f"differs in dtype from operand `{name}`", operand=index, got=other, expected=f"{dtype}"
            )
    return dtype


def require_rank(context: TypeContext, index: int, rank: int, meaning: str) -> tuple[Dim, ...]:
    """Return the shape of operand ``index``, which must have ``rank`` axes.

    Args:
        context: the rule's context.
        index: the operand.
        rank: the required number of axes.
        meaning: the axes' names, for the message (``"(N, C, H, W)"``).

    Raises:
        IRTypeError: another rank.
    """
    shape = context.shape(index)
    if len(shape) != rank:
        raise context.error(
            f"has rank {len(shape)}", operand=index, got=shape_text(shape), expected=f"rank {rank}: {meaning}"
        )
    return shape


def require_equal(context: TypeContext, index: int, axis: int, size: Dim, meaning: str) -> None:
    """Check that an axis of operand ``index`` has a size, as far as decidable while compiling.

    Raises:
        IRTypeError: the sizes differ for all values of the symbols; the axis and both sizes are named.
    """
    found = context.shape(index)[axis]
    difference = found - size
    if isinstance(difference, int) and difference != 0:
        raise context.error(
            f"axis {axis} has size {found}",
            operand=index,
            got=shape_text(context.shape(index)),
            expected=f"{size} {meaning}",
        )


def require_at_most(context: TypeContext, index: int, axis: int, size: Dim, meaning: str) -> None:
    """Check that an axis of operand ``index`` is not larger than a size, as far as decidable while compiling.

    Raises:
        IRTypeError: the axis is larger for all values of the symbols; the axis and both sizes are named.
    """
    found = context.shape(index)[axis]
    if is_positive(found - size):
        raise context.error(
            f"axis {axis} has size {found}",
            operand=index,
            got=shape_text(context.shape(index)),
            expected=f"at most {size} {meaning}",
        )


def require_shape(context: TypeContext, index: int, shape: Sequence[Dim], meaning: str) -> tuple[Dim, ...]:
    """Return the shape shared by operand ``index`` and ``shape``: of two equal sizes, the known size.

    Args:
        context: the rule's context.
        index: the operand.
        shape: the required shape.
        meaning: the reason, for the message (``"as operand `x`"``).

    Raises:
        IRTypeError: another rank, or a size that differs for all values of the symbols; the axis is named.
    """
    found = require_rank(context, index, len(shape), f"{shape_text(shape)} {meaning}")
    for axis, size in enumerate(shape):
        require_equal(context, index, axis, size, meaning)
    return tuple(map(known_size, shape, found))


def known_size(left: Dim, right: Dim) -> Dim:
    """Return the known size of two sizes equal at run time; the first size if neither is known."""
    return right if isinstance(right, int) else left


def resolve_axis(context: TypeContext, axis: int, rank: int, *, attribute: str = "axis") -> int:
    """Return an axis counted from the front.

    Raises:
        IRTypeError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise context.error(
            f"attribute `{attribute}` names no axis of a tensor of rank {rank}",
            got=axis,
            expected=f"{-rank} to {rank - 1}" if rank else "no axis",
        )
    return axis % rank


def resolve_axes(
    context: TypeContext, axes: Sequence[int] | None, rank: int, *, attribute: str = "axis"
) -> tuple[int, ...]:
    """Return axes counted from the front, in the order given; all axes if ``axes`` is ``None``.

    Raises:
        IRTypeError: there is no such axis, or an axis is repeated.
    """
    if axes is None:
        return tuple(range(rank))
    resolved = tuple(resolve_axis(context, axis, rank, attribute=attribute) for axis in axes)
    if len(set(resolved)) != len(resolved):
        raise context.error(f"attribute `{attribute}` names an axis twice", got=tuple(axes))
    return resolved


def broadcast_shapes(context: TypeContext, indices: Sequence[int]) -> tuple[Dim, ...] | None:
    """Return the broadcast shape of operands by numpy's rule; ``None`` if a rank is unknown.

    Raises:
        IRTypeError: two sizes do not fit; the operand and the axis are named.
    """
    result: tuple[Dim, ...] = ()
    for index in indices:
        shape = context.tensor(index).shape
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        joined: list[Dim] = []
        for offset in range(-rank, 0):
            left = result[offset] if -offset <= len(result) else 1
            right = shape[offset] if -offset <= len(shape) else 1
            try:
                joined.append(broadcast_dim(left, right))
            except IRTypeError as error:
                raise context.error(
                    f"axis {offset + len(shape)} has size {right} and does not broadcast with size {left}",
                    operand=index,
                    got=shape_text(shape),
                    expected=f"a shape broadcasting with {shape_text(result)}",
                ) from error
        result = tuple(joined)
    return result


def padded_type(context: TypeContext) -> TensorType:
    """Return the type of operand 0 padded by attribute ``pad_width``.

    Raises:
        IRTypeError: the attribute has not two widths of zero or more for each axis.
    """
    shape = context.shape(0)
    widths = context.attrs["pad_width"]
    if len(widths) != 2 * len(shape) or any(width < 0 for width in widths):
        raise context.error(
            "attribute `pad_width` does not fit operand `x`",
            got=widths,
            expected=f"{2 * len(shape)} values of 0 or more",
        )
    result = tuple(size + widths[2 * axis] + widths[2 * axis + 1] for axis, size in enumerate(shape))
    return TensorType(result, context.tensor(0).dtype)


def same_type(kinds: Sequence[str]) -> Callable[[TypeContext], tuple[Type, ...]]:
    """Return the type rule of ops with a result of the type of the only operand."""

    def infer(context: TypeContext) -> tuple[Type, ...]:
        return (require_kind(context, 0, kinds),)

    return infer


def flops_per_element(count: int) -> Callable[[OpContext], Dim]:
    """Return the cost formula of ops with ``count`` operations for each element of the result."""

    def flops(context: OpContext) -> Dim:
        return context.elements() * count

    return flops


def gathered_nbytes(context: OpContext) -> Dim:
    """Return the bytes of gather ops: elements of operand 0 read and written, counted by the result, and operand 1."""
    result, indices = context.results[0], context.operands[1]
    if not isinstance(result, TensorType) or not isinstance(indices, TensorType):
        return 0
    moved = context.elements() * (2 * dtype_info(result.dtype).itemsize)
    return moved + context.operand_elements(1) * dtype_info(indices.dtype).itemsize


def shape_text(shape: Sequence[Dim]) -> str:
    """Return a shape in Python's tuple notation, for messages: ``(n, 3)``."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
