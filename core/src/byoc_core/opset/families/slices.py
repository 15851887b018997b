"""Ops repeating, reversing, rotating and stacking whole slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.kernels.indices import check_array_shape, require_range, widened
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example, integers
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import SELECTING, OpDef, OperandSpec
from byoc_core.opset.type_rules import (
    INTEGER_KINDS,
    require_kind,
    require_same_dtype,
    require_shape,
    resolve_axes,
    resolve_axis,
)
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_any

__all__ = ["OPS"]


def _tile(x: NDArray, *, repeats: Sequence[int]) -> NDArray:
    """Return ``x`` repeated as a whole along each axis."""
    return np.tile(x, tuple(repeats))


def _flip(x: NDArray, *, axis: int) -> NDArray:
    """Return the slices along an axis in reverse order."""
    return np.flip(x, axis)


def _roll(x: NDArray, *, shift: Sequence[int], axis: Sequence[int]) -> NDArray:
    """Return ``x`` shifted along axes with wrap-around."""
    return np.roll(x, tuple(shift), tuple(axis)) if axis else x  # numpy has no roll of 0-d arrays


def _stack(*parts: NDArray, axis: int) -> NDArray:
    """Return the parts side by side along a new axis.

    Raises:
        ExecutionError: a part has another shape than the first.
    """
    for index, part in enumerate(parts):
        check_array_shape("stack", f"parts[{index}]", part.shape, parts[0].shape)
    return np.stack(parts, axis)


def _reverse_sequence(x: NDArray, lengths: NDArray, *, batch_axis: int, seq_axis: int) -> NDArray:
    """Return each item of a batch with the first ``lengths`` slices of its sequence in reverse order.

    Raises:
        ExecutionError: a length is negative or larger than the axis, or the number of lengths is not the number of
            items.
    """
    batch_axis, seq_axis = batch_axis % x.ndim, seq_axis % x.ndim
    batch, size = x.shape[batch_axis], x.shape[seq_axis]
    check_array_shape("reverse_sequence", "lengths", lengths.shape, (batch,))
    wide = widened(lengths)
    require_range("reverse_sequence", wide, 0, size, f"a length does not fit axis {seq_axis}")
    end, steps = wide.astype(np.int64)[:, np.newaxis], np.arange(size)
    order = np.where(steps < end, end - 1 - steps, steps)
    order = np.expand_dims(
        order if batch_axis < seq_axis else order.T, [a for a in range(x.ndim) if a not in (batch_axis, seq_axis)]
    )
    return np.take_along_axis(x, order, seq_axis)


def _infer_tile(context: TypeContext) -> tuple[Type, ...]:
    shape, repeats = context.shape(0), context.attrs["repeats"]
    if len(repeats) != len(shape):
        raise context.error(
            f"attribute `repeats` has {len(repeats)} values", expected=f"a value for each of {len(shape)} axes"
        )
    for axis, count in enumerate(repeats):
        if isinstance(count, int) and count < 0:
            raise context.error(f"attribute `repeats` is negative for axis {axis}", got=count, expected="0 or more")
    result = tuple(size * count for size, count in zip(shape, repeats, strict=True))
    return (TensorType(result, context.tensor(0).dtype),)


def _infer_flip(context: TypeContext) -> tuple[Type, ...]:
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (context.tensor(0),)


def _infer_roll(context: TypeContext) -> tuple[Type, ...]:
    shift = context.attrs["shift"]
    axes = resolve_axes(context, context.attrs["axis"], len(context.shape(0)))
    if len(shift) != len(axes):
        raise context.error(
            f"attribute `shift` has {len(shift)} values", got=shift, expected=f"a value for each of {len(axes)} axes"
        )
    return (context.tensor(0),)


def _infer_stack(context: TypeContext) -> tuple[Type, ...]:
    if not context.operands:
        raise context.error("has no parts to stack", expected="one operand or more")
    dtype = require_same_dtype(context, 0, *range(1, len(context.operands)))
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape) + 1)
    for index in range(1, len(context.operands)):
        shape = require_shape(context, index, shape, "as the first")
    return (TensorType((*shape[:axis], len(context.operands), *shape[axis:]), dtype),)


def _infer_reverse_sequence(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    batch_axis = resolve_axis(context, context.attrs["batch_axis"], len(shape), attribute="batch_axis")
    seq_axis = resolve_axis(context, context.attrs["seq_axis"], len(shape), attribute="seq_axis")
    if batch_axis == seq_axis:
        raise context.error("attributes `batch_axis` and `seq_axis` name the same axis", got=batch_axis)
    require_kind(context, 1, INTEGER_KINDS)
    require_shape(context, 1, (shape[batch_axis],), f"as axis {batch_axis} of operand `x`")
    return (context.tensor(0),)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "tile",
        (OperandSpec("x"),),
        _infer_tile,
        attrs=(AttrSpec("repeats", AttrKind.DIMS, doc="The number of repetitions of ``x`` along each axis."),),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_tile),
        bound=bound_of_any,
        cases=lambda: (example((2, 3), repeats=(2, 1)),),
        doc="Return ``x`` repeated as a whole along each axis.\n\n"
        "Shapes: each size is multiplied by its number of ``repeats``.",
    ),
    OpDef(
        "flip",
        (OperandSpec("x"),),
        _infer_flip,
        attrs=(AttrSpec("axis", AttrKind.INT, doc="The reversed axis."),),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_flip),
        cases=lambda: (example((2, 3), axis=1),),
        doc="Return the slices of ``x`` along an axis in reverse order.\n\nShapes: any, kept.",
    ),
    OpDef(
        "roll",
        (OperandSpec("x"),),
        _infer_roll,
        attrs=(
            AttrSpec("shift", AttrKind.INTS, doc="The distance moved by elements towards the end of each axis."),
            AttrSpec("axis", AttrKind.INTS, doc="The axes of the shift, each once."),
        ),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_roll),
        bound=bound_of_any,
        cases=lambda: (example((2, 3), shift=(1,), axis=(1,)),),
        doc="Return ``x`` shifted along axes, with wrap-around.\n\nShapes: any, kept.",
    ),
    OpDef(
        "stack",
        (OperandSpec("parts", variadic=True),),
        _infer_stack,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The position of the new axis in the result."),),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_stack),
        bound=bound_of_any,
        cases=lambda: (example((2, 3), (2, 3)), example((2, 3), (2, 3), (2, 3), axis=-1)),
        doc="Return the parts stacked along a new axis.\n\n"
        "Shapes: equal; the result has an additional axis with a size equal to the number of parts.",
    ),
    OpDef(
        "reverse_sequence",
        (OperandSpec("x"), OperandSpec("lengths")),
        _infer_reverse_sequence,
        attrs=(
            AttrSpec("batch_axis", AttrKind.INT, 0, doc="The axis of the items, each with a separate length."),
            AttrSpec("seq_axis", AttrKind.INT, 1, doc="The reversed axis of each item."),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_reverse_sequence),
        cases=lambda: (example((2, 5, 3), integers((2,), 1, 5)),),
        doc="Return each item of a batch with the first ``lengths`` slices of the sequence in reverse order, and the "
        "rest unchanged. A length beyond the axis is an error at run time.\n\n"
        "Shapes: any, kept; ``lengths`` is ``(N,)`` for ``N`` items.",
    ),
)
"""The family's ops."""
