"""Ops with result sizes decided by the elements of operands.

The result types stand in the binding, with a fresh symbol for the size known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isfinite

import numpy as np

from byoc_core.dims import Dim, is_name, product, symbol
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, is_integer, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, OperandCase, example, integers
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, require_rank, require_same_dtype, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "data_dependent_op", "range_length"]


def _nonzero(x: NDArray) -> NDArray:
    """Return the positions of nonzero elements (NaN is nonzero), a column each, in row-major order."""
    return np.ascontiguousarray(np.argwhere(_comparable(x) != 0).T, dtype=np.int64)


def _compress(x: NDArray, condition: NDArray, *, axis: int | None) -> NDArray:
    """Return the slices along an axis (of the flat array if ``None``) with a true condition.

    Raises:
        ExecutionError: the condition holds beyond the end of the axis.
    """
    data = x.reshape(-1) if axis is None else x
    axis = axis or 0
    size = data.shape[axis]
    (selected,) = np.nonzero(condition)
    if selected.size and selected[-1] >= size:
        raise ExecutionError(
            "op `compress`",
            "the condition holds beyond the end of the axis",
            got=int(selected[-1]),
            expected=f"< {size}",
        )
    return np.take(data, selected, axis=axis)


def _unique(x: NDArray, *, axis: int | None, sorted: bool) -> tuple[NDArray, ...]:  # noqa: A002 - the attribute's name
    """Return the distinct slices along an axis, their first positions, each slice's index among them, and their counts.

    NaNs are equal and come last; zeros of both signs are equal, represented by the first zero.
    """
    data = x.reshape(-1) if axis is None else x
    axis = (axis or 0) % data.ndim
    rows = np.moveaxis(_comparable(data), axis, 0)
    rows = rows.reshape(rows.shape[0], int(np.prod(rows.shape[1:])))
    first, inverse, counts = _distinct_rows(rows)
    if not sorted:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    indices = (first, inverse, counts)
    return np.take(data, first, axis=axis), *(np.asarray(item, np.int64) for item in indices)


def _distinct_rows(rows: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return the first positions of distinct rows in lexicographic order, each row's index among them, and counts."""
    if not rows.shape[0]:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    # Elements are replaced by ranks to compare rows with NaNs; zeros of both signs share a rank.
    _, ranks = np.unique(rows, return_inverse=True)
    ranks = ranks.reshape(rows.shape)
    order = np.lexsort(ranks.T[::-1]) if rows.shape[1] else np.arange(rows.shape[0])
    ordered = ranks[order]
    starts = np.concatenate(([True], np.any(ordered[1:] != ordered[:-1], axis=1)))
    group = np.cumsum(starts) - 1
    inverse = np.empty(len(order), np.int64)
    inverse[order] = group
    # The sort is stable, so the first of a group is the first in the operand.
    return order[starts], inverse, np.bincount(group)


def _range(start: NDArray, limit: NDArray, delta: NDArray) -> NDArray:
    """Return ``start + i * delta`` for all integers ``i`` from 0 on with results before the limit.

    Raises:
        ExecutionError: the step is zero, or a bound is not finite.
    """
    dtype = start.dtype
    work = working_dtype(dtype)
    if is_integer(dtype):
        work = np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    # Integer arrays wrap around silently, so only the sums must be in range.
    steps = np.arange(range_length(start, limit, delta)).astype(work)
    first, step = (bound.astype(work).reshape(1) for bound in (start, delta))
    return np.asarray(first + steps * step).astype(dtype)


def range_length(start: NDArray, limit: NDArray, delta: NDArray) -> int:
    """Return the number of elements of a range.

    Raises:
        ExecutionError: the step is zero, or a bound is not finite.
    """
    if delta == 0:
        raise ExecutionError("op `range`", "has a step of zero")
    if is_integer(start.dtype):
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    work = working_dtype(start.dtype)
    with np.errstate(all="ignore"):
        length = float(limit.astype(work) - start.astype(work)) / float(delta)
    if not isfinite(length):
        raise ExecutionError("op `range`", "has no finite number of steps", got=f"{start} to {limit} by {delta}")
    return max(ceil(length), 0)


def _as_size(number: NDArray) -> NDArray:
    """Return an empty tensor with as many rows as the number.

    Raises:
        ExecutionError: the number is negative.
    """
    if number < 0:
        raise ExecutionError("op `as_size`", "has a negative size", got=int(number))
    return np.zeros((int(number), 0), np.bool_)


def _comparable(x: NDArray) -> NDArray:
    """Return equal values in a dtype sortable and comparable in numpy: int4 and small floats are widened."""
    if is_integer(x.dtype) and x.dtype.kind not in "iu":
        return x.astype(np.int8)
    return x.astype(working_dtype(x.dtype), copy=False)


ResultTypes = Callable[[TypeContext, Dim], tuple[TensorType, ...]]
"""The types of an op's results for a given size."""


def data_dependent_op(
    name: str,
    operands: Sequence[str],
    types: ResultTypes,
    kernel: NumpyKernel,
    doc: str,
    *,
    attrs: tuple[AttrSpec, ...] = (),
    is_variadic: bool = False,
    cases: Callable[[], tuple[OpCase, ...]],
) -> OpDef:
    """Return an op with a result size decided by the elements of operands.

    Args:
        name: the op's name.
        operands: the names of the operands.
        types: the types of the results, from the size.
        kernel: the reference kernel.
        doc: the meaning of the op, with shapes.
        attrs: the attributes.
        is_variadic: whether the last operand stands for any number of operands.
        cases: canonical uses.
    """

    def infer(context: TypeContext) -> tuple[Type, ...]:
        expected = types(context, _declared_size(context, types))
        if context.declared != expected:
            raise context.error(
                "declares results of other types",
                got=", ".join(map(str, context.declared or ())),
                expected=", ".join(map(str, expected)),
            )
        return expected

    return OpDef(
        name,
        tuple(OperandSpec(operand, is_variadic and operand is operands[-1]) for operand in operands),
        infer,
        attrs=attrs,
        traits=frozenset({Trait.PURE, Trait.DATA_DEPENDENT}),
        flops=no_flops,
        kernel=kernel,
        declares_results=True,
        sized_results=types,
        cases=cases,
        doc=doc,
    )


def _declared_size(context: TypeContext, types: ResultTypes) -> Dim:
    """Return the symbol of the declared types for the size decided by the data."""
    operand_symbols = frozenset[str]().union(
        *(type_.symbols for type_ in context.operands if isinstance(type_, TensorType))
    )
    probe = symbol(_unused(operand_symbols))
    shape = types(context, probe)[0].shape or ()
    axis = shape.index(probe)
    first = (context.declared or (None,))[0]
    if not isinstance(first, TensorType) or first.shape is None or len(first.shape) != len(shape):
        raise context.error("declares a result of the wrong rank", got=first, expected=f"a tensor of rank {len(shape)}")
    size = first.shape[axis]
    if not is_name(str(size)) or str(size) in operand_symbols:
        raise context.error(
            f"needs a fresh symbol for axis {axis} of its first result", got=first, expected=types(context, probe)[0]
        )
    return size


def _unused(used_symbols: frozenset[str]) -> str:
    return next(
        name for name in (f"k{number or ''}" for number in range(len(used_symbols) + 1)) if name not in used_symbols
    )


def _nonzero_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    return (TensorType((len(context.shape(0)), size), "int64"),)


def _axis_of(context: TypeContext) -> int | None:
    axis = context.attrs["axis"]
    return None if axis is None else resolve_axis(context, axis, len(context.shape(0)))


def _with_size(context: TypeContext, axis: int | None, size: Dim) -> TensorType:
    """Return the type of operand 0 with another size along an axis; of rank 1 if ``None``."""
    shape = context.shape(0)
    new_shape = (size,) if axis is None else (*shape[:axis], size, *shape[axis + 1 :])
    return TensorType(new_shape, context.tensor(0).dtype)


def _compress_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 1, ("bool",))
    axis = _axis_of(context)
    (length,) = require_rank(context, 1, 1, "(length,)")
    available = product(context.shape(0)) if axis is None else context.shape(0)[axis]
    if isinstance(length, int) and isinstance(available, int) and length > available:
        raise context.error("is longer than the axis", operand=1, got=length, expected=f"{available} or fewer")
    return (_with_size(context, axis, size),)


def _unique_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    axis = _axis_of(context)
    length = product(context.shape(0)) if axis is None else context.shape(0)[axis]
    counts = TensorType((size,), "int64")
    return (_with_size(context, axis, size), counts, TensorType((length,), "int64"), counts)


def _range_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1, 2)
    for index in range(3):
        require_rank(context, index, 0, "a scalar")
    return (TensorType((size,), dtype),)


def _ragged_take(elements: NDArray, lengths: NDArray, indices: NDArray) -> NDArray:
    total = sum(lengths.reshape(-1).tolist())  # may exceed 64 bits
    if (lengths < 0).any() or total > elements.size:
        raise ExecutionError(
            "op `ragged_take`",
            "has rows beyond the elements",
            got=total,
            expected=f"at most {elements.size}",
        )
    ends = np.cumsum(lengths)
    if indices.size and not (indices.min() >= 0 and indices.max() < lengths.size):
        raise ExecutionError("op `ragged_take`", "has an index outside the rows", expected=f"0 to {lengths.size - 1}")
    counts = lengths[indices]
    starts = ends[indices] - counts
    # The position in the elements: the start of the row, and the position in the row.
    positions = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.asarray(elements[positions])


def _ragged_take_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_rank(context, 0, 1, "(n,)")
    for index, shape in ((1, "(rows,)"), (2, "(taken,)")):
        require_kind(context, index, ("int",))
        require_rank(context, index, 1, shape)
    return (TensorType((size,), context.tensor(0).dtype),)


def _as_dynamic(*tensors: NDArray, axes: tuple[int, ...]) -> tuple[NDArray, ...]:
    sizes = [tensor.shape[axis] for tensor, axis in zip(tensors, axes, strict=True)]
    if len(set(sizes)) > 1:
        raise ExecutionError("op `as_dynamic`", "has tensors of different sizes", got=", ".join(map(str, sizes)))
    return tuple(tensor.copy() for tensor in tensors)


def _as_dynamic_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    axes = context.attrs["axes"]
    if len(axes) != len(context.operands):
        raise context.error("needs an axis for each tensor", got=len(axes), expected=len(context.operands))
    return tuple(_with_own_size(context, index, axis, size) for index, axis in enumerate(axes))


def _with_own_size(context: TypeContext, index: int, axis: int, size: Dim) -> TensorType:
    shape = context.shape(index)
    if not 0 <= axis < len(shape):
        raise context.error("has no such axis", operand=index, got=axis, expected=f"0 to {len(shape) - 1}")
    return TensorType((*shape[:axis], size, *shape[axis + 1 :]), context.tensor(index).dtype)


def _as_size_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 0, ("int", "uint"))
    require_rank(context, 0, 0, "a scalar")
    return (TensorType((size, 0), "bool"),)


_RANGE = ((0, 3), (4, 9), (1, 3))  # start, limit and step of cases, from and to

OPS: tuple[OpDef, ...] = (
    data_dependent_op(
        "nonzero",
        ("x",),
        _nonzero_types,
        NumpyKernel(_nonzero, gives=fixed_dtype("int64")),
        "Return the positions of the nonzero elements, in row-major order.\n\n"
        "Shapes: ``x`` of rank ``r``; the result is int64 ``(r, k)``, a column for each element.",
        cases=lambda: (example((2, 3)),),
    ),
    data_dependent_op(
        "compress",
        ("x", "condition"),
        _compress_types,
        NumpyKernel(_compress),
        "Return the slices along an axis with a true ``condition``; slices beyond the end of ``condition`` are left "
        "out.\n\n"
        "Shapes: ``condition`` bool ``(length,)``, not longer than the axis; the result has size ``k`` along the axis.",
        attrs=(AttrSpec("axis", AttrKind.INT, None, doc="The axis; ``None``: the axis of the flattened tensor."),),
        cases=lambda: (example((4, 3), OperandCase((4,), "bool"), axis=0),),
    ),
    data_dependent_op(
        "unique",
        ("x",),
        _unique_types,
        NumpyKernel(_unique, gives=fixed_dtype(None)),
        "Return the distinct slices along an axis, the first position of each distinct slice, the index of the "
        "distinct slice for each slice of ``x``, and the number of occurrences of each distinct slice. NaNs are "
        "equal.\n\n"
        "Shapes: the first result has size ``k`` along the axis; the others are int64 ``(k,)``, ``(n,)`` and ``(k,)`` "
        "for an axis of size ``n``.",
        attrs=(
            AttrSpec("axis", AttrKind.INT, None, doc="The axis; ``None``: the axis of the flattened tensor."),
            AttrSpec(
                "sorted",
                AttrKind.BOOL,
                True,
                doc="Whether to return slices in ascending order, NaN last; otherwise in order of appearance.",
            ),
        ),
        cases=lambda: (example((6,)), example((4, 3), axis=0)),
    ),
    data_dependent_op(
        "range",
        ("start", "limit", "delta"),
        _range_types,
        NumpyKernel(_range),
        "Return ``start``, ``start + delta`` and so on, up to but not including ``limit``.\n\n"
        "Shapes: three scalars; the result is ``(k,)``.",
        cases=lambda: (
            example(*(integers((), *ends) for ends in _RANGE)),
            example(*(integers((), *ends, "int32") for ends in _RANGE)),
        ),
    ),
    data_dependent_op(
        "as_size",
        ("number",),
        _as_size_types,
        NumpyKernel(_as_size, gives=fixed_dtype("bool")),
        "Return an empty tensor with ``number`` rows: a number computed at run time becomes a size, for the shapes and "
        "attributes of other ops.\n\n"
        "Shapes: an integer scalar, not negative; the result is bool ``(k, 0)``.",
        cases=lambda: (example(integers((), 0, 9)), example(integers((), 0, 9, "int32"))),
    ),
    data_dependent_op(
        "ragged_take",
        ("elements", "lengths", "indices"),
        _ragged_take_types,
        NumpyKernel(_ragged_take),
        "Return rows of different lengths, one after the other: the rows at `indices` among the rows at the start of "
        "`elements`, of the given lengths.\n\n"
        "Shapes: ``elements`` ``(n,)``, ``lengths`` int64 ``(rows,)`` with a sum of at most ``n``, ``indices`` int64 "
        "``(taken,)``; the result is ``(k,)``.",
        cases=lambda: (example((6,), integers((4,), 0, 0), integers((3,), 0, 0)),),
    ),
    data_dependent_op(
        "as_dynamic",
        ("tensors",),
        _as_dynamic_types,
        NumpyKernel(_as_dynamic, gives=fixed_dtype(None)),
        "Return the tensors, with a common size known only at run time in place of a size of each. The sizes in place "
        "of which it stands must be equal.\n\n"
        "Shapes: any; the size ``k`` stands at axis ``axes[i]`` of result ``i``, all other sizes stay.",
        attrs=(AttrSpec("axes", AttrKind.INTS, doc="An axis of each tensor."),),
        is_variadic=True,
        cases=lambda: (example((2, 3), axes=(1,)),),
    ),
)
"""The family's ops."""
