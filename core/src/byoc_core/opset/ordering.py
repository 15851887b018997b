"""Ops that put elements in order: the largest or smallest, all, and the indices that do so.

Lower index first among equal elements. A NaN counts as the largest element, as in numpy; where ONNX Runtime puts a NaN
depends on the elements around it, so that no rule could follow it.
"""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _infer_topk(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    k: Dim = context.attrs["k"]
    missing = k - shape[axis]
    if (isinstance(k, int) and k < 0) or (isinstance(missing, int) and missing > 0):
        raise context.error(
            f"attribute `k` is not a number of elements that axis {axis} has", got=k, expected=f"0 to {shape[axis]}"
        )
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return TensorType(result, type_.dtype), TensorType(result, "int64")


def _infer_sort(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


def _infer_argsort(context: TypeContext) -> tuple[Type, ...]:
    (type_,) = _infer_sort(context)
    assert isinstance(type_, TensorType)
    return (TensorType(type_.shape, "int64"),)


def _one_comparison(context: CostContext) -> Dim:
    """Gives the comparisons that any algorithm needs at the least: about one for each element."""
    return context.operand_elements(0)


_AXIS = AttrSpec("axis", AttrKind.INT, -1, doc="The axis along which elements are put in order.")
_DESCENDING = AttrSpec("descending", AttrKind.BOOL, False, doc="Whether the largest is first, not the smallest.")

OPS: tuple[OpDef, ...] = (
    OpDef(
        "topk",
        (OperandSpec("x"),),
        _infer_topk,
        attrs=(
            AttrSpec("k", AttrKind.DIM, doc="The number of elements that are taken; 0 to the size of ``axis``."),
            AttrSpec("axis", AttrKind.INT, -1, doc="The axis that is searched."),
            AttrSpec("largest", AttrKind.BOOL, True, doc="Whether the largest are taken, not the smallest."),
            AttrSpec(
                "sorted",
                AttrKind.BOOL,
                True,
                doc="Whether the extreme one is first; else they stand in the order of their indices.",
            ),
        ),
        flops=_one_comparison,
        kernel=KERNELS["topk"],
        doc="Gives the ``k`` largest or smallest elements along one axis, and their indices (int64). Of equal elements "
        "those with the lower index are taken, and come first; a NaN is largest.\n\n"
        "Shapes: both results have that of ``x``, with ``k`` in place of the size of ``axis``.",
    ),
    OpDef(
        "sort",
        (OperandSpec("x"),),
        _infer_sort,
        attrs=(_AXIS, _DESCENDING),
        flops=_one_comparison,
        kernel=KERNELS["sort"],
        doc="Gives ``x`` in order along one axis; equal elements keep their order; a NaN is largest.\n\n"
        "Shapes: any but rank 0; the result has the shape and dtype of ``x``.",
    ),
    OpDef(
        "argsort",
        (OperandSpec("x"),),
        _infer_argsort,
        attrs=(_AXIS, _DESCENDING),
        flops=_one_comparison,
        kernel=KERNELS["argsort"],
        doc="Gives the indices (int64) that put ``x`` in order along one axis; equal elements keep their order; a NaN "
        "is largest.\n\n"
        "Shapes: any but rank 0; the result has the shape of ``x``.",
    ),
)
"""The family's ops."""
