"""Cumulative ops: each element combined with all before it."""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, resolve_axis
from byoc_core.opset.types import Type

__all__ = ["OPS"]


def _infer_cumulative(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


def _flops(context: CostContext) -> Dim:
    return context.elements()


def _cumulative_op(name: str, doc: str) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_cumulative,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis walked along."),
            AttrSpec("exclusive", AttrKind.BOOL, False, doc="Whether an element itself does not count."),
            AttrSpec("reverse", AttrKind.BOOL, False, doc="Whether the walk begins at the end of the axis."),
        ),
        flops=_flops,
        kernel=KERNELS[name],
        doc=f"{doc}\n\nShapes: any but rank 0; the result has the shape and dtype of ``x``.",
    )


OPS: tuple[OpDef, ...] = (
    _cumulative_op("cumsum", "Gives the sum of all elements up to each one along one axis; integers wrap around."),
    _cumulative_op("cumprod", "Gives the product of all elements up to each one along one axis; integers wrap around."),
)
"""The family's ops."""
