"""The op for padding a tensor with its own elements; padding with a constant is ``nn.pad``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import padded_type
from byoc_core.opset.types import Type

__all__ = ["OPS"]


def _border_pad(x: NDArray, *, pad_width: Sequence[int], mode: str) -> NDArray:
    """Return ``x`` continued on all sides; ``pad_width`` is (before, after) for each axis in turn.

    Raises:
        ExecutionError: an axis to be continued is empty.
    """
    result = x
    for axis, size in enumerate(x.shape):
        before, after = pad_width[2 * axis : 2 * axis + 2]
        if not before and not after:
            continue
        if not size:
            raise ExecutionError("op `nn.border_pad`", f"axis {axis} is empty and has no element to repeat")
        result = np.take(result, _source(np.arange(-before, size + after), size, mode), axis=axis)
    return result


def _source(index: NDArray, size: int, mode: str) -> NDArray:
    """Return the source indices inside an axis for indices outside."""
    if mode == "edge":
        return np.asarray(np.clip(index, 0, size - 1))
    if mode == "wrap":
        return np.asarray(index % size)
    period = max(2 * size - 2, 1)
    return np.asarray(np.minimum(index % period, -index % period))


def _infer_border_pad(context: TypeContext) -> tuple[Type, ...]:
    result = padded_type(context)
    for axis, size in enumerate(context.shape(0)):
        if size == 0 and any(context.attrs["pad_width"][2 * axis : 2 * axis + 2]):
            raise context.error(f"axis {axis} is empty and has no element to repeat", operand=0)
    return (result,)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.border_pad",
        (OperandSpec("x"),),
        _infer_border_pad,
        attrs=(
            AttrSpec(
                "pad_width",
                AttrKind.INTS,
                doc="The numbers of elements before and after each axis: before0, after0, before1, ...",
            ),
            AttrSpec(
                "mode",
                AttrKind.STR,
                choices=("edge", "reflect", "wrap"),
                doc="``edge``: the first or last element, repeated; ``reflect``: mirrored at the first and last "
                "element, repeatedly if needed; ``wrap``: elements from the other end.",
            ),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_border_pad),
        cases=lambda: (
            example((2, 3), pad_width=(0, 0, 1, 1), mode="reflect"),
            example((2, 16, 9, 8), pad_width=(0, 0, 0, 0, 1, 1, 1, 1), mode="edge"),
        ),
        doc="Return ``x`` padded on all sides with elements of ``x``.\n\n"
        "Shapes: each size grows by the two widths of the axis.",
    ),
)
"""The family's ops."""
