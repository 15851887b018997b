"""Ops that give a copy of a tensor with elements written at computed places: scatters, and a run of slices."""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.indexing import INDICES_DOC, count_coordinates, paired_indices
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext, no_flops
from byoc_core.opset.type_rules import (
    INTEGER_KINDS,
    require_at_most,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    require_shape,
    resolve_axis,
)
from byoc_core.opset.types import Type

__all__ = ["OPS"]


def _infer_scatter_elements(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 2)
    require_shape(context, 2, paired_indices(context), "as operand `indices`")
    return (context.tensor(0),)


def _infer_scatter_nd(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 2)
    count = count_coordinates(context)
    updates = (*context.shape(1)[:-1], *context.shape(0)[count:])
    require_shape(context, 2, updates, "as operands `indices` and `x` ask for")
    return (context.tensor(0),)


def _infer_scatter_slice(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 1)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    require_rank(context, 1, len(shape), "as operand `x`")
    for other, size in enumerate(shape):
        (require_at_most if other == axis else require_equal)(context, 1, other, size, "as operand `x`")
    require_kind(context, 2, INTEGER_KINDS)
    if context.shape(2):
        if axis == 0:
            require_rank(context, 2, 0, "one start, because attribute `axis` is 0")
        require_shape(context, 2, shape[:1], "as axis 0 of operand `x`, or no axis")
    return (context.tensor(0),)


def _reduction_flops(context: CostContext) -> Dim:
    return 0 if context.attrs["reduction"] == "update" else context.operand_elements(2)


_REDUCTION = AttrSpec(
    "reduction",
    AttrKind.STR,
    "update",
    ("update", "add", "mul", "min", "max"),
    doc="What is done with an update and what is there: ``update`` replaces, the others combine the two.",
)
_ORDER_DOC = (
    "Where updates meet they count in row-major order, so with ``update`` the last one stays. With ``min`` and ``max`` "
    "what is there stays only if it is smaller (larger) than the update, as in ONNX Runtime: a NaN that is there gives "
    "way to the next update, and an update that is NaN is written."
)

OPS: tuple[OpDef, ...] = (
    OpDef(
        "scatter_elements",
        (OperandSpec("x"), OperandSpec("indices"), OperandSpec("updates")),
        _infer_scatter_elements,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The axis indexed."), _REDUCTION),
        flops=_reduction_flops,
        kernel=KERNELS["scatter_elements"],
        doc="Gives ``x`` with each update brought in at its index along ``axis`` and at its own place along the other "
        f"axes. {INDICES_DOC} {_ORDER_DOC}\n\n"
        "Shapes: the result has that of ``x``; ``indices`` and ``updates`` share one, of the rank of ``x`` and no "
        "larger than it along the other axes.",
    ),
    OpDef(
        "scatter_nd",
        (OperandSpec("x"), OperandSpec("indices"), OperandSpec("updates")),
        _infer_scatter_nd,
        attrs=(_REDUCTION,),
        flops=_reduction_flops,
        kernel=KERNELS["scatter_nd"],
        doc="Gives ``x`` with slices brought in at tuples of integers, which lie along the last axis of ``indices``. "
        f"{INDICES_DOC} {_ORDER_DOC}\n\n"
        "Shapes: ``(N1, ..., NK, S...), (I..., K), (I..., S...) -> (N1, ..., NK, S...)``.",
    ),
    OpDef(
        "scatter_slice",
        (OperandSpec("x"), OperandSpec("updates"), OperandSpec("starts")),
        _infer_scatter_slice,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis along which the updates lie."),
            AttrSpec(
                "mode",
                AttrKind.STR,
                "linear",
                ("linear", "circular"),
                doc="``linear``: updates that do not fit before the end are an error when the program runs; "
                "``circular``: they go on at the front, and a start is taken modulo the axis.",
            ),
        ),
        flops=no_flops,
        kernel=KERNELS["scatter_slice"],
        doc="Gives ``x`` with ``updates`` written over its slices along ``axis`` from a start on, as a cache of keys "
        "is extended: one start, or one for each item of axis 0.\n\n"
        "Shapes: ``(A..., N, B...), (A..., M, B...), () or (A0,) -> (A..., N, B...)`` with ``M <= N``.",
    ),
)
"""The family's ops."""
