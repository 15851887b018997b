"""Attention and rotary position embedding."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families.normalisation_kernels import softmax
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    flops_per_element,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "fits_scores"]


def _attention(
    query: NDArray,
    key: NDArray,
    value: NDArray,
    *mask: NDArray,
    scale: float | None,
    softcap: float,
    causal: bool,
    offset: int,
    zero_unseen: bool,
    scores: str | None,
) -> NDArray | tuple[NDArray, NDArray]:
    """Return ``softmax(query @ key.T * scale + mask) @ value``; several heads of queries may share a head of keys.

    A query without visible keys (all scores are minus infinity) yields NaN, or zeros with ``zero_unseen``. ``scores``
    names a stage; its scores, ``(B, H, S, T)``, are a second result.

    Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``; ``mask`` broadcasts to ``(B, H, S, T)``.

    Cost: ``2 * B * H * S * T * (D + E)`` operations, and the scores ``(B, H, S, T)`` beside the result.

    Raises:
        ExecutionError: the sizes of the operands do not fit.
    """
    wide = working_dtype(query.dtype)
    batch, heads, steps, size = query.shape
    groups, length = key.shape[1:3]
    check_array_shape("nn.attention", "key", key.shape, (batch, groups, length, size))
    check_array_shape("nn.attention", "value", value.shape, (batch, groups, length, value.shape[3]))
    if not groups or heads % groups:
        raise ExecutionError(
            "op `nn.attention`, operand `query`",
            "the heads (axis 1) are not divisible by the heads of operand `key`",
            got=heads,
            expected=f"a multiple of {groups}",
        )
    for added in mask:
        _require_mask(added.shape, (batch, heads, steps, length))
    factor = 1 / math.sqrt(max(size, 1)) if scale is None else scale
    queries, keys, values = (operand.astype(wide, copy=False) for operand in (query, key, value))
    shared = (batch, groups, heads // groups * steps)
    products = queries.reshape(*shared, size) @ keys.swapaxes(2, 3)
    stage = products.reshape(batch, heads, steps, length) * np.asarray(factor, wide)
    stages = {"products": stage}
    if softcap:
        stage = np.tanh(stage / np.asarray(softcap, wide)) * np.asarray(softcap, wide)
    stages["capped"] = stage
    for added in mask:
        stage = stage + added.astype(wide, copy=False)
    if causal:
        future = np.arange(length) > np.arange(steps)[:, np.newaxis] + offset
        stage = np.where(future, np.asarray(-np.inf, wide), stage)
    stages["masked"] = stage
    stages["weights"] = _weigh(stage) if zero_unseen else softmax(stage, axis=-1)
    weighed = stages["weights"].reshape(*shared, length) @ values
    result = weighed.reshape(batch, heads, steps, value.shape[3]).astype(query.dtype, copy=False)
    return result if scores is None else (result, stages[scores].astype(query.dtype, copy=False))


def _require_mask(mask: tuple[int, ...], scores: tuple[int, ...]) -> None:
    size_pairs = zip(mask[::-1], scores[::-1], strict=False)
    if len(mask) > len(scores) or any(mask_size not in (1, score_size) for mask_size, score_size in size_pairs):
        raise ExecutionError(
            "op `nn.attention`, operand `mask`", "does not broadcast to the scores", got=mask, expected=scores
        )


def _weigh(scores: NDArray) -> NDArray:
    """Return the softmax of scores along the last axis; zeros if all scores are minus infinity."""
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers: NDArray = np.exp(scores - np.where(np.isneginf(peak), np.zeros_like(peak), peak))
    total = powers.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    powers /= total
    return powers


def _rotary_embedding(x: NDArray, cos: NDArray, sin: NDArray, *, interleaved: bool) -> NDArray:
    """Return ``x`` with pairs of the first elements rotated by angles with given cosines and sines.

    Shapes: ``(B, H, S, D), (B, S, R), (B, S, R) -> (B, H, S, D)``; the first ``2R`` of ``D`` are rotated.

    Raises:
        ExecutionError: the angles do not fit batch and steps, or rotate more elements than exist.
    """
    for name, angle in (("cos", cos), ("sin", sin)):
        check_array_shape("nn.rotary_embedding", name, angle.shape, (x.shape[0], x.shape[2], cos.shape[-1]))
    if 2 * cos.shape[-1] > x.shape[3]:
        raise ExecutionError(
            "op `nn.rotary_embedding`, operand `cos`",
            "rotates more elements than axis 3 of operand `x` holds",
            got=2 * cos.shape[-1],
            expected=f"{x.shape[3]} or fewer",
        )
    wide = working_dtype(x.dtype)
    half = cos.shape[-1]
    across, along = (angle.astype(wide, copy=False)[:, np.newaxis] for angle in (cos, sin))
    result = x.astype(wide)
    turned = result[..., : 2 * half]
    pair_slices = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    left, right = (turned[..., pair_slice].copy() for pair_slice in pair_slices)
    turned[..., pair_slices[0]] = across * left - along * right
    turned[..., pair_slices[1]] = along * left + across * right
    return result.astype(x.dtype, copy=False)


def _infer_attention(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, FLOAT_KINDS)
    dtype = require_same_dtype(context, 0, *range(1, len(context.operands)))
    batch, heads, steps, size = require_rank(context, 0, 4, "(B, H, S, D)")
    _, groups, length, _ = require_rank(context, 1, 4, "(B, G, T, D)")
    values = require_rank(context, 2, 4, "(B, G, T, E)")
    for index in (1, 2):
        require_equal(context, index, 0, batch, "as axis 0 of operand `query`")
    require_equal(context, 1, 3, size, "as axis 3 of operand `query`")
    require_equal(context, 2, 1, groups, "as axis 1 of operand `key`")
    require_equal(context, 2, 2, length, "as axis 2 of operand `key`")
    if isinstance(heads, int) and isinstance(groups, int) and (groups < 1 or heads % groups):
        raise context.error(f"has {heads} heads, not divisible by the {groups} heads of operand `key`", operand=0)
    _check_mask(context, (batch, heads, steps, length))
    if not context.attrs["causal"] and context.attrs["offset"] != 0:
        raise context.error("has attribute `offset`, but is not causal", got=context.attrs["offset"], expected=0)
    result = TensorType((batch, heads, steps, values[3]), dtype)
    if context.attrs["scores"] is None:
        return (result,)
    return (result, TensorType((batch, heads, steps, length), dtype))


def fits_scores(mask: tuple[Dim, ...], scores: tuple[Dim, ...]) -> bool:
    """Return whether a mask broadcasts to the scores of an attention; symbols are assumed to fit until run time."""
    padded = (1,) * (len(scores) - len(mask)) + mask
    return len(padded) == len(scores) and all(
        found == 1 or not isinstance(found - size, int) or found == size
        for found, size in zip(padded, scores, strict=True)
    )


def _check_mask(context: TypeContext, scores: tuple[Dim, ...]) -> None:
    if len(context.operands) > 4:
        raise context.error("takes a single mask", got=len(context.operands) - 3)
    for index in range(3, len(context.operands)):
        mask = context.shape(index)
        if not fits_scores(mask, scores):
            raise context.error("does not broadcast to the scores", operand=index, got=mask, expected=scores)


def _attention_flops(context: OpContext) -> Dim:
    """Return two operations for each score and element of a query or a value, five for each score's softmax."""
    query, key, value = context.operands[:3]
    shapes = [type_.shape for type_ in (query, key, value) if isinstance(type_, TensorType)]
    if len(shapes) != 3 or shapes[0] is None or shapes[1] is None or shapes[2] is None:
        return 0
    batch, heads, steps, size = shapes[0]
    return batch * heads * steps * shapes[1][2] * ((size + shapes[2][3]) * 2 + 5)


def _infer_rotary(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    require_same_dtype(context, 0, 1, 2)
    batch, _, steps, size = require_rank(context, 0, 4, "(B, H, S, D)")
    half = require_rank(context, 1, 3, "(B, S, R)")[2]
    require_rank(context, 2, 3, "(B, S, R)")
    for index in (1, 2):
        require_equal(context, index, 0, batch, "as axis 0 of operand `x`")
        require_equal(context, index, 1, steps, "as axis 2 of operand `x`")
    require_equal(context, 2, 2, half, "as axis 2 of operand `cos`")
    room = size - half * 2
    if isinstance(room, int) and room < 0:
        raise context.error(f"rotates {half * 2} elements", operand=1, expected=f"{size} or fewer, as axis 3 of `x`")
    return (type_,)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.attention",
        (OperandSpec("query"), OperandSpec("key"), OperandSpec("value"), OperandSpec("mask", variadic=True)),
        _infer_attention,
        attrs=(
            AttrSpec("scale", AttrKind.FLOAT, None, doc="The factor of the scores; ``None``: ``1 / sqrt(D)``."),
            AttrSpec(
                "softcap", AttrKind.FLOAT, 0.0, doc="If not 0, scores become ``softcap * tanh(scores / softcap)``."
            ),
            AttrSpec(
                "causal",
                AttrKind.BOOL,
                False,
                doc="Whether step ``s`` attends only to the keys ``0`` to ``s + offset``.",
            ),
            AttrSpec("offset", AttrKind.DIM, 0, doc="The number of keys before the first step, if causal."),
            AttrSpec(
                "zero_unseen",
                AttrKind.BOOL,
                False,
                doc="Whether a step without visible keys, with minus infinity for all scores, yields zeros instead of "
                "NaN.",
            ),
            AttrSpec(
                "scores",
                AttrKind.STR,
                None,
                ("products", "capped", "masked", "weights"),
                doc="The stage of the scores returned as second result: scaled products, after the softcap, after the "
                "masks, after the softmax; ``None``: no second result.",
            ),
        ),
        flops=_attention_flops,
        kernel=NumpyKernel(_attention),
        rounding=replace(NORM, skips_zeros=True),
        cases=lambda: (
            example((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
            example((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7)),
            example(*[(1, 4, 16, 32)] * 3),
            example((2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), causal=True),
        ),
        doc="Return ``softmax(query @ key.T * scale + mask) @ value`` for each head; ``H // G`` heads of queries share "
        "a head of keys and values. The mask, if any, is added to the scores.\n\n"
        "Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``; the mask broadcasts to "
        "``(B, H, S, T)``, also the shape of the second result.",
    ),
    OpDef(
        "nn.rotary_embedding",
        (OperandSpec("x"), OperandSpec("cos"), OperandSpec("sin")),
        _infer_rotary,
        attrs=(
            AttrSpec(
                "interleaved",
                AttrKind.BOOL,
                False,
                doc="Whether the two elements of a pair are neighbours, instead of ``R`` elements apart.",
            ),
        ),
        flops=flops_per_element(3),
        kernel=NumpyKernel(_rotary_embedding),
        rounding=NORM,
        cases=lambda: (example((2, 3, 5, 8), (2, 5, 4), (2, 5, 4)),),
        doc="Return ``x`` with pairs of the first ``2R`` elements of the last axis rotated by angles with the given "
        "cosine and sine.\n\n"
        "Shapes: ``(B, H, S, D), (B, S, R), (B, S, R) -> (B, H, S, D)``.",
    ),
)
"""The family's ops."""
