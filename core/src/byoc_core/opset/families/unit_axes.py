"""Adding and removing axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import SELECTING, OpDef, OperandSpec, Trait
from byoc_core.opset.type_rules import require_equal, resolve_axes, shape_text
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_any

__all__ = ["OPS"]


def _squeeze(x: NDArray, *, axis: Sequence[int] | None) -> NDArray:
    """Return ``x`` without some axes of size 1; without any axis of size 1 if ``axis`` is ``None``.

    Raises:
        ExecutionError: an axis to be removed has another size.
    """
    axes = None if axis is None else tuple(axis)
    for removed in axes or ():
        if x.shape[removed] != 1:
            raise ExecutionError("op `squeeze`", f"axis {removed} does not have size 1", got=x.shape[removed])
    return np.squeeze(x, axes)


def _expand_dims(x: NDArray, *, axis: Sequence[int]) -> NDArray:
    """Return ``x`` with axes of size 1 at these positions of the result."""
    return np.expand_dims(x, tuple(axis))


def _infer_squeeze(context: TypeContext) -> tuple[Type, ...]:
    shape, axes = context.shape(0), context.attrs["axis"]
    if axes is None:
        unknown = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
        if unknown:
            raise context.error(
                f"needs attribute `axis`, because the size of axis {unknown[0]} is unknown",
                operand=0,
                got=shape_text(shape),
                expected="attribute `axis`, or known sizes",
            )
        removed = {axis for axis, size in enumerate(shape) if size == 1}
    else:
        removed = set(resolve_axes(context, axes, len(shape)))
        for axis in sorted(removed):
            require_equal(context, 0, axis, 1, "because the axis is removed")
    remaining = tuple(size for axis, size in enumerate(shape) if axis not in removed)
    return (TensorType(remaining, context.tensor(0).dtype),)


def _infer_expand_dims(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    rank = len(shape) + len(context.attrs["axis"])
    new_axes = set(resolve_axes(context, context.attrs["axis"], rank))
    rest = iter(shape)
    result = tuple(1 if axis in new_axes else next(rest) for axis in range(rank))
    return (TensorType(result, context.tensor(0).dtype),)


_TRAITS = SELECTING | {Trait.RESHAPING}

OPS: tuple[OpDef, ...] = (
    OpDef(
        "squeeze",
        (OperandSpec("x"),),
        _infer_squeeze,
        attrs=(
            AttrSpec("axis", AttrKind.INTS, None, doc="The removed axes, all of size 1; ``None``: all axes of size 1."),
        ),
        traits=_TRAITS,
        flops=no_flops,
        kernel=NumpyKernel(_squeeze),
        bound=bound_of_any,
        cases=lambda: (
            example((2, 1, 3), axis=(1,)),
            example((2, 4, 1, 1), axis=(2, 3)),
            example((1, 2, 3), axis=(0,)),
        ),
        doc="Return ``x`` without axes of size 1.\n\nShapes: the shape of ``x`` without the removed axes.",
    ),
    OpDef(
        "expand_dims",
        (OperandSpec("x"),),
        _infer_expand_dims,
        attrs=(AttrSpec("axis", AttrKind.INTS, doc="The positions of the new axes in the result."),),
        traits=_TRAITS,
        flops=no_flops,
        kernel=NumpyKernel(_expand_dims),
        bound=bound_of_any,
        cases=lambda: (example((2, 3), axis=(1,)),),
        doc="Return ``x`` with additional axes of size 1.\n\n"
        "Shapes: the shape of ``x`` with a 1 at each of the positions.",
    ),
)
"""The family's ops."""
