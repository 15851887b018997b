"""Normalisation: batch norm (inference), layer norm, softmax."""

from __future__ import annotations

from byoc_core.ir.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, TypeContext
from byoc_core.ir.types import Type
from byoc_core.kernels import KERNELS
from byoc_core.ops.type_rules import (
    FLOAT_KINDS,
    flops_per_element,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    resolve_axes,
    resolve_axis,
)

__all__ = ["OPS"]

_EPSILON = AttrSpec("epsilon", AttrKind.FLOAT, 1e-5, doc="What is added to the variance.")


def _infer_batch_norm(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    require_same_dtype(context, 0, 1, 2, 3, 4)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    for index in range(1, 5):
        require_rank(context, index, 1, "(C,)")
        require_equal(context, index, 0, shape[axis], f"as axis {axis} of operand `x`")
    return (type_,)


def _infer_layer_norm(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    require_same_dtype(context, 0, 1, 2)
    shape = context.shape(0)
    axes = resolve_axes(context, context.attrs["axes"], len(shape), attribute="axes")
    if not axes:
        raise context.error("attribute `axes` names no axis", expected="one axis or more")
    if list(axes) != sorted(axes):
        raise context.error("attribute `axes` is not in ascending order", got=context.attrs["axes"])
    for index in (1, 2):
        require_rank(context, index, len(axes), "the sizes of `axes`")
        for position, axis in enumerate(axes):
            require_equal(context, index, position, shape[axis], f"as axis {axis} of operand `x`")
    return (type_,)


def _infer_softmax(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.batch_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta", "mean", "variance")),
        _infer_batch_norm,
        attrs=(AttrSpec("axis", AttrKind.INT, 1, doc="The channel axis of ``x``."), _EPSILON),
        flops=flops_per_element(4),
        kernel=KERNELS["nn.batch_norm"],
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.\n\n"
        "Shapes: ``x (..., C, ...)``, the others ``(C,)``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.layer_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_layer_norm,
        attrs=(AttrSpec("axes", AttrKind.INTS, (-1,), doc="The axes that share statistics, ascending."), _EPSILON),
        flops=flops_per_element(8),
        kernel=KERNELS["nn.layer_norm"],
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of ``x`` over "
        "``axes``.\n\nShapes: ``gamma`` and ``beta`` have the sizes of ``axes``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The axis along which the results sum to one."),),
        flops=flops_per_element(5),
        kernel=KERNELS["nn.softmax"],
        doc="Gives ``exp(x) / sum(exp(x))`` along one axis, shifted by the maximum.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
)
"""The family's ops."""
