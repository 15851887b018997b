"""Kernels of attention and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import require_shape
from byoc_core.kernels.normalisation import softmax
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "attention", "rotary_embedding"]


def attention(
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
    """Gives ``softmax(query @ key.T * scale + mask) @ value``; several heads of queries may share one of keys.

    A query that sees no key, all its scores being minus infinity, gives NaN, or zeros with ``zero_unseen``. ``scores``
    names a stage whose scores, ``(B, H, S, T)``, are a second result.

    Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``; ``mask`` broadcasts to ``(B, H, S, T)``.

    Cost: ``2 * B * H * S * T * (D + E)`` operations, and the scores ``(B, H, S, T)`` beside the result.

    Raises:
        ExecutionError: the sizes of the operands do not fit.
    """
    wide = working_dtype(query.dtype)
    batch, heads, steps, size = query.shape
    groups, length = key.shape[1:3]
    require_shape("nn.attention", "key", key.shape, (batch, groups, length, size))
    require_shape("nn.attention", "value", value.shape, (batch, groups, length, value.shape[3]))
    if not groups or heads % groups:
        raise ExecutionError(
            "op `nn.attention`, operand `query`",
            "the heads of operand `key` do not divide those of this one (axis 1)",
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


def _require_mask(found: tuple[int, ...], scores: tuple[int, ...]) -> None:
    places = zip(found[::-1], scores[::-1], strict=False)
    if len(found) > len(scores) or any(size not in (1, whole) for size, whole in places):
        raise ExecutionError(
            "op `nn.attention`, operand `mask`", "does not broadcast to the scores", got=found, expected=scores
        )


def _weigh(scores: NDArray) -> NDArray:
    """Gives the softmax of scores along the last axis; zeros where all are minus infinity."""
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers: NDArray = np.exp(scores - np.where(np.isneginf(peak), np.zeros_like(peak), peak))
    total = powers.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    powers /= total
    return powers


def rotary_embedding(x: NDArray, cos: NDArray, sin: NDArray, *, interleaved: bool) -> NDArray:
    """Gives ``x`` with pairs of its first elements turned by angles, whose cosines and sines are given.

    Shapes: ``(B, H, S, D), (B, S, R), (B, S, R) -> (B, H, S, D)``; the first ``2R`` of ``D`` are turned.

    Raises:
        ExecutionError: the angles do not fit batch and steps, or turn more elements than there are.
    """
    for name, angle in (("cos", cos), ("sin", sin)):
        require_shape("nn.rotary_embedding", name, angle.shape, (x.shape[0], x.shape[2], cos.shape[-1]))
    if 2 * cos.shape[-1] > x.shape[3]:
        raise ExecutionError(
            "op `nn.rotary_embedding`, operand `cos`",
            "turns more elements than axis 3 of operand `x` has",
            got=2 * cos.shape[-1],
            expected=f"{x.shape[3]} or fewer",
        )
    wide = working_dtype(x.dtype)
    half = cos.shape[-1]
    across, along = (angle.astype(wide, copy=False)[:, np.newaxis] for angle in (cos, sin))
    result = x.astype(wide)
    turned = result[..., : 2 * half]
    places = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    left, right = (turned[..., place].copy() for place in places)
    turned[..., places[0]] = across * left - along * right
    turned[..., places[1]] = along * left + across * right
    return result.astype(x.dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, NDArray]]] = {
    "nn.attention": attention,
    "nn.rotary_embedding": rotary_embedding,
}
