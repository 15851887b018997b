"""Normalisation: batch norm (inference), layer, group, instance and RMS norm, LRN, the softmax family."""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels.numpy_kernel import as_numpy_kernel
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families.normalisation_kernels import KERNELS
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    flops_per_element,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    resolve_axes,
    resolve_axis,
)
from byoc_core.opset.types import Type

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


def _infer_over_axes(context: TypeContext) -> tuple[Type, ...]:
    """The rule of layer and RMS norm: the parameters have the sizes of ``axes``."""
    type_ = require_kind(context, 0, FLOAT_KINDS)
    parameters = range(1, len(context.operands))
    require_same_dtype(context, 0, *parameters)
    shape = context.shape(0)
    axes = resolve_axes(context, context.attrs["axes"], len(shape), attribute="axes")
    if not axes:
        raise context.error("attribute `axes` names no axis", expected="one axis or more")
    if list(axes) != sorted(axes):
        raise context.error("attribute `axes` is not in ascending order", got=context.attrs["axes"])
    for index in parameters:
        require_rank(context, index, len(axes), "the sizes of `axes`")
        for position, axis in enumerate(axes):
            require_equal(context, index, position, shape[axis], f"as axis {axis} of operand `x`")
    return (type_,)


def _infer_per_channel(context: TypeContext) -> tuple[Type, ...]:
    """The rule of group and instance norm: one parameter for each channel (axis 1)."""
    type_ = require_kind(context, 0, FLOAT_KINDS)
    require_same_dtype(context, 0, 1, 2)
    channels = _channels(context)
    for index in (1, 2):
        require_rank(context, index, 1, "(C,)")
        require_equal(context, index, 0, channels, "as axis 1 of operand `x`")
    return (type_,)


def _channels(context: TypeContext) -> Dim:
    shape = context.shape(0)
    if len(shape) < 2:
        raise context.error(f"has rank {len(shape)}", operand=0, expected="rank 2 or more: (N, C, ...)")
    return shape[1]


def _infer_group_norm(context: TypeContext) -> tuple[Type, ...]:
    result = _infer_per_channel(context)
    groups, channels = context.attrs["groups"], context.shape(0)[1]
    if groups < 1:
        raise context.error("attribute `groups` is too small", got=groups, expected="1 or more")
    if isinstance(channels, int) and channels % groups:
        raise context.error(f"has {channels} channels, which {groups} groups do not divide", operand=0)
    return result


def _infer_lrn(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    _channels(context)
    if context.attrs["size"] < 1:
        raise context.error("attribute `size` is too small", got=context.attrs["size"], expected="1 or more")
    return (type_,)


def _lrn_flops(context: OpContext) -> Dim:
    size: int = context.attrs["size"]
    return context.elements() * (2 * size + 4)


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
        kernel=as_numpy_kernel(KERNELS["nn.batch_norm"]),
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.\n\n"
        "Shapes: ``x (..., C, ...)``, the others ``(C,)``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.layer_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_over_axes,
        attrs=(AttrSpec("axes", AttrKind.INTS, (-1,), doc="The axes that share statistics, ascending."), _EPSILON),
        flops=flops_per_element(8),
        kernel=as_numpy_kernel(KERNELS["nn.layer_norm"]),
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of ``x`` over "
        "``axes``.\n\nShapes: ``gamma`` and ``beta`` have the sizes of ``axes``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.rms_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma")),
        _infer_over_axes,
        attrs=(
            AttrSpec("axes", AttrKind.INTS, (-1,), doc="The axes that share a mean, ascending."),
            AttrSpec("epsilon", AttrKind.FLOAT, 1e-5, doc="What is added to the mean square."),
        ),
        flops=flops_per_element(5),
        kernel=as_numpy_kernel(KERNELS["nn.rms_norm"]),
        doc="Gives ``x / sqrt(mean(x**2) + epsilon) * gamma`` with the mean over ``axes``.\n\n"
        "Shapes: ``gamma`` has the sizes of ``axes``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.group_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_group_norm,
        attrs=(AttrSpec("groups", AttrKind.INT, doc="Channels are split into so many groups."), _EPSILON),
        flops=flops_per_element(8),
        kernel=as_numpy_kernel(KERNELS["nn.group_norm"]),
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of every "
        "image and group of channels.\n\nShapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.",
    ),
    OpDef(
        "nn.instance_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_per_channel,
        attrs=(_EPSILON,),
        flops=flops_per_element(8),
        kernel=as_numpy_kernel(KERNELS["nn.instance_norm"]),
        doc="Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of every "
        "image and channel.\n\nShapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.",
    ),
    OpDef(
        "nn.lrn",
        (OperandSpec("x"),),
        _infer_lrn,
        attrs=(
            AttrSpec("size", AttrKind.INT, doc="The number of channels summed, ``(size - 1) // 2`` of them before."),
            AttrSpec("alpha", AttrKind.FLOAT, 1e-4, doc="The factor of the mean square."),
            AttrSpec("beta", AttrKind.FLOAT, 0.75, doc="The exponent."),
            AttrSpec("bias", AttrKind.FLOAT, 1.0, doc="What is added to the mean square."),
        ),
        flops=_lrn_flops,
        kernel=as_numpy_kernel(KERNELS["nn.lrn"]),
        doc="Gives local response normalisation across channels: ``x / (bias + alpha / size * s) ** beta`` with ``s`` "
        "the sum of squares of ``size`` neighbouring channels.\n\nShapes: ``(N, C, ...) -> (N, C, ...)``.",
    ),
    OpDef(
        "nn.log_softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The axis along which the exponentials sum to one."),),
        flops=flops_per_element(5),
        kernel=as_numpy_kernel(KERNELS["nn.log_softmax"]),
        doc="Gives ``x - log(sum(exp(x)))`` along one axis, shifted by the maximum.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The axis along which the results sum to one."),),
        flops=flops_per_element(5),
        kernel=as_numpy_kernel(KERNELS["nn.softmax"]),
        doc="Gives ``exp(x) / sum(exp(x))`` along one axis, shifted by the maximum.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.stepwise_softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(
            AttrSpec("axis", AttrKind.INT, -1, doc="The axis along which the results sum to about one."),
            AttrSpec(
                "zero_unseen",
                AttrKind.BOOL,
                False,
                doc="Whether a line of minus infinities alone gives zeros, not NaN: a step that sees no key.",
            ),
        ),
        flops=flops_per_element(5),
        kernel=as_numpy_kernel(KERNELS["nn.stepwise_softmax"]),
        doc="Gives ``exp(x) / sum(exp(x))`` along one axis, shifted by the maximum, each step rounded to the dtype "
        "of ``x``: difference, exponential, sum and quotient, as ONNX computes Softmax of narrow floats. The "
        "exponentials of float16 are summed in float32. Each addition of bfloat16 is rounded: the halves of a line are "
        "added to each other until at most eight numbers are left, which are added in order.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
)
"""The family's ops."""
