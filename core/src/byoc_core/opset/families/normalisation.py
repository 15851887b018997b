"""Normalisation: batch norm (inference), layer, group, instance and RMS norm, LRN, the softmax family."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, Shape, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families import normalisation_kernels as kernels
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.permutation import permute_axis
from byoc_core.opset.rounding import NORM
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
from byoc_core.opset.value_bounds import LARGEST, LEAST_EPSILON, UNIT, ValueFacts, bound_of_one, summed

__all__ = ["OPS"]

_MATRIX: Shape = (2, 3)
_TOKENS: Shape = (2, 5, 3)
_IMAGE: Shape = (2, 16, 9, 8)
_EPSILON = AttrSpec("epsilon", AttrKind.FLOAT, 1e-5, doc="The constant added to the variance.")


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
    """Infer the type of layer and RMS norm: the parameters have the sizes of ``axes``."""
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
    """Infer the type of group and instance norm: a parameter for each channel (axis 1)."""
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
        raise context.error(f"has {channels} channels, not divisible into {groups} groups", operand=0)
    return result


def _infer_lrn(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    _channels(context)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    if context.attrs["size"] < 1:
        raise context.error("attribute `size` is too small", got=context.attrs["size"], expected="1 or more")
    return (type_,)


def _lrn_flops(context: OpContext) -> Dim:
    size: int = context.attrs["size"]
    return context.elements() * (2 * size + 4)


def _lrn_rounds(context: OpContext) -> int:
    size: int = context.attrs["size"]
    return size


def _infer_softmax(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


def _batch_norm_bound(facts: ValueFacts) -> float:
    """Return the bound for constant statistics: in float64, the largest of all channels."""
    if not all(map(facts.is_constant, range(1, 5))):
        return math.inf
    gamma, beta, mean, variance = (facts.constant(operand).astype(np.float64) for operand in range(1, 5))
    epsilon = facts.context.attrs["epsilon"]
    if not (epsilon >= LEAST_EPSILON and np.all(variance >= 0)):
        return math.inf
    scale = np.abs(gamma) / np.sqrt(variance + epsilon)
    largest = scale * (facts.bound(0) + np.abs(mean)) + np.abs(beta) + scale
    return float(np.max(largest)) * (1 + 32 * UNIT)


def _over_axes_bound(facts: ValueFacts) -> float:
    sizes = facts.sizes(0)
    return _standardised_bound(facts, math.prod(sizes[axis] for axis in facts.context.ints("axes")))


def _group_norm_bound(facts: ValueFacts) -> float:
    _, channels, *spatial = facts.sizes(0)
    groups = facts.context.attrs.get("groups", channels)  # instance norm: each channel is a group
    return _standardised_bound(facts, channels // max(1, groups) * math.prod(spatial))


def _standardised_bound(facts: ValueFacts, terms: int) -> float:
    """Return the bound for groups of ``terms`` elements with shared statistics.

    No deviation is larger than the root of the sum of all squares, which is ``terms`` times the variance.
    """
    x, gamma, *rest = facts.bounds
    beta = sum(rest)
    squares = summed(4 * x * x * terms, terms)
    epsilon = facts.context.attrs["epsilon"]
    if not (epsilon >= LEAST_EPSILON and gamma / math.sqrt(epsilon) <= LARGEST):
        return math.inf
    if squares > LARGEST:
        return squares
    return (math.sqrt(terms) * gamma + beta) * (1 + (terms + 32) * UNIT)


def _lrn_bound(facts: ValueFacts) -> float:
    size, alpha, beta, bias = (facts.context.attrs[name] for name in ("size", "alpha", "beta", "bias"))
    squares: float = bias + max(0.0, alpha) * facts.bound(0) ** 2 * (1 + size * UNIT)
    if not (alpha >= 0 and beta >= 0 and bias >= 1):
        return math.inf
    return facts.bound(0) * (1 + 64 * UNIT) if squares <= LARGEST else squares


def _log_softmax_bound(facts: ValueFacts) -> float:
    """Return the bound of a difference to the largest element, less the logarithm of a sum of exponentials up to 1."""
    terms = max(1, *facts.sizes(0))
    return (2 * facts.bound(0) + math.log(terms)) * (1 + 4 * UNIT)


def _softmax_cases() -> Iterable[OpCase]:
    return (*(example(shape) for shape in (_MATRIX, _TOKENS, _IMAGE, (3,))), example(_IMAGE, axis=1))


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.batch_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta", "mean", "variance")),
        _infer_batch_norm,
        attrs=(AttrSpec("axis", AttrKind.INT, 1, doc="The channel axis of ``x``."), _EPSILON),
        flops=flops_per_element(4),
        kernel=NumpyKernel(kernels.batch_norm, widens=True, fresh=True, elementwise=True),
        rounding=NORM,
        permute=permute_axis(),
        bound=_batch_norm_bound,
        cases=lambda: (
            example(_IMAGE, *[(16,)] * 4),
            example(_MATRIX, *[(3,)] * 4),
            example((2, 9, 8, 16), *[(16,)] * 4, axis=-1),
        ),
        doc="Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.\n\n"
        "Shapes: ``x (..., C, ...)``, the others ``(C,)``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.layer_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_over_axes,
        attrs=(AttrSpec("axes", AttrKind.INTS, (-1,), doc="The axes sharing statistics, ascending."), _EPSILON),
        flops=flops_per_element(8),
        kernel=NumpyKernel(kernels.layer_norm, widens=True, fresh=True, elementwise=True),
        rounding=NORM,
        bound=_over_axes_bound,
        cases=lambda: (
            example(_TOKENS, (3,), (3,)),
            example(_MATRIX, (3,), (3,)),
            example((1, 5, 32), (32,), (32,)),
            example(_TOKENS, (5, 3), (5, 3), axes=(1, 2)),
        ),
        doc="Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of ``x`` "
        "over ``axes``.\n\n"
        "Shapes: ``gamma`` and ``beta`` have the sizes of ``axes``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.rms_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma")),
        _infer_over_axes,
        attrs=(
            AttrSpec("axes", AttrKind.INTS, (-1,), doc="The axes sharing a mean, ascending."),
            AttrSpec("epsilon", AttrKind.FLOAT, 1e-5, doc="The constant added to the mean square."),
        ),
        flops=flops_per_element(5),
        kernel=NumpyKernel(kernels.rms_norm, widens=True, fresh=True),
        rounding=NORM,
        bound=_over_axes_bound,
        cases=lambda: (example(_TOKENS, (3,)), example(_MATRIX, (3,))),
        doc="Return ``x / sqrt(mean(x**2) + epsilon) * gamma`` with the mean over ``axes``.\n\n"
        "Shapes: ``gamma`` has the sizes of ``axes``; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.group_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_group_norm,
        attrs=(AttrSpec("groups", AttrKind.INT, doc="The number of groups of channels."), _EPSILON),
        flops=flops_per_element(8),
        kernel=NumpyKernel(kernels.group_norm, widens=True, fresh=True),
        rounding=NORM,
        bound=_group_norm_bound,
        cases=lambda: (example(_IMAGE, (16,), (16,), groups=2),),
        doc="Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of every "
        "image and group of channels.\n\nShapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.",
    ),
    OpDef(
        "nn.instance_norm",
        tuple(OperandSpec(name) for name in ("x", "gamma", "beta")),
        _infer_per_channel,
        attrs=(_EPSILON,),
        flops=flops_per_element(8),
        kernel=NumpyKernel(kernels.instance_norm, widens=True, fresh=True),
        rounding=NORM,
        bound=_group_norm_bound,
        cases=lambda: (example(_IMAGE, (16,), (16,)), example((2, 4, 8), (4,), (4,))),
        onnx=OnnxSpelling("InstanceNormalization", {"epsilon": 1e-5}),
        doc="Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the (biased) statistics of every "
        "image and channel.\n\nShapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.",
    ),
    OpDef(
        "nn.lrn",
        (OperandSpec("x"),),
        _infer_lrn,
        attrs=(
            AttrSpec(
                "size",
                AttrKind.INT,
                doc="The number of summed channels, with ``(size - 1) // 2`` before the channel itself.",
            ),
            AttrSpec("alpha", AttrKind.FLOAT, 1e-4, doc="The factor of the mean square."),
            AttrSpec("beta", AttrKind.FLOAT, 0.75, doc="The exponent."),
            AttrSpec("bias", AttrKind.FLOAT, 1.0, doc="The constant added to the mean square."),
            AttrSpec("axis", AttrKind.INT, 1, doc="The axis of the channels."),
        ),
        flops=_lrn_flops,
        kernel=NumpyKernel(kernels.lrn, widens=True, fresh=True),
        rounding=NORM,
        rounds=_lrn_rounds,
        bound=_lrn_bound,
        cases=lambda: (example(_IMAGE, size=3), example((2, 9, 8, 16), size=3, axis=-1)),
        doc="Return the local response normalisation across channels: ``x / (bias + alpha / size * s) ** beta`` with "
        "``s`` the sum of squares of ``size`` neighbouring channels.\n\n"
        "Shapes: ``(N, C, ...) -> (N, C, ...)``; another axis than the second may have the channels.",
    ),
    OpDef(
        "nn.log_softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The normalised axis: exponentials sum to one along the axis."),),
        flops=flops_per_element(5),
        kernel=NumpyKernel(kernels.log_softmax, widens=True, fresh=True, elementwise=True),
        rounding=NORM,
        permute=permute_axis(order_matters=True),
        bound=_log_softmax_bound,
        cases=_softmax_cases,
        doc="Return ``x - log(sum(exp(x)))`` along an axis, shifted by the maximum.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The normalised axis: results sum to one along the axis."),),
        flops=flops_per_element(5),
        kernel=NumpyKernel(kernels.softmax, widens=True, fresh=True, elementwise=True),
        rounding=NORM,
        permute=permute_axis(order_matters=True),
        bound=bound_of_one,
        cases=_softmax_cases,
        doc="Return ``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
    OpDef(
        "nn.stepwise_softmax",
        (OperandSpec("x"),),
        _infer_softmax,
        attrs=(
            AttrSpec("axis", AttrKind.INT, -1, doc="The normalised axis: results sum to about one along the axis."),
            AttrSpec(
                "zero_unseen",
                AttrKind.BOOL,
                False,
                doc="Whether a line of only minus infinities, for a step without visible keys, yields zeros instead of "
                "NaN.",
            ),
        ),
        flops=flops_per_element(5),
        kernel=NumpyKernel(kernels.stepwise_softmax, fresh=True),
        rounding=NORM,
        permute=permute_axis(order_matters=True),
        bound=bound_of_one,
        cases=lambda: (*_softmax_cases(), example(_TOKENS, zero_unseen=True)),
        doc="Return ``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum. Each step is rounded to the dtype "
        "of ``x``: difference, exponential, sum and quotient, as in ONNX's Softmax of narrow floats. The exponentials "
        "of float16 are summed in float32. Each addition of bfloat16 is rounded: the halves of a line are added to "
        "each other until at most eight numbers are left, then the rest is added in order.\n\n"
        "Shapes: any of rank 1 or more; the result has the shape of ``x``.",
    ),
)
"""The family's ops."""
