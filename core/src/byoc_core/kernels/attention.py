"""Kernels of attention and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from byoc_core.kernels.normalisation import softmax
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "attention", "rotary_embedding"]


def attention(
    query: NDArray, key: NDArray, value: NDArray, *mask: NDArray, scale: float | None, causal: bool
) -> NDArray:
    """Gives ``softmax(query @ key.T * scale + mask) @ value``; several heads of queries may share one of keys.

    Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``; ``mask`` broadcasts to ``(B, H, S, T)``.

    Cost: ``2 * B * H * S * T * (D + E)`` operations, and the scores ``(B, H, S, T)`` beside the result.
    """
    wide = working_dtype(query.dtype)
    batch, heads, steps, size = query.shape
    groups, length = key.shape[1:3]
    factor = 1 / math.sqrt(size) if scale is None else scale
    queries, keys, values = (operand.astype(wide, copy=False) for operand in (query, key, value))
    with np.errstate(all="ignore"):
        shared = queries.reshape(batch, groups, heads // groups * steps, size)
        scores = (shared @ keys.swapaxes(2, 3)).reshape(batch, heads, steps, length) * np.asarray(factor, wide)
        for added in mask:
            scores += added.astype(wide, copy=False)
        if causal:
            scores[..., np.triu(np.ones((steps, length), bool), 1)] = -np.inf
        weights = softmax(scores, axis=-1).reshape(batch, groups, heads // groups * steps, length)
        result: NDArray = (weights @ values).reshape(batch, heads, steps, value.shape[3])
        return result.astype(query.dtype, copy=False)


def rotary_embedding(x: NDArray, cos: NDArray, sin: NDArray, *, interleaved: bool) -> NDArray:
    """Gives ``x`` with pairs of its first elements turned by angles, whose cosines and sines are given.

    Shapes: ``(B, H, S, D), (B, S, R), (B, S, R) -> (B, H, S, D)``; the first ``2R`` of ``D`` are turned.
    """
    wide = working_dtype(x.dtype)
    half = cos.shape[-1]
    across, along = (angle.astype(wide, copy=False)[:, np.newaxis] for angle in (cos, sin))
    result = x.astype(wide)
    turned = result[..., : 2 * half]
    places = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    left, right = (turned[..., place].copy() for place in places)
    with np.errstate(all="ignore"):
        turned[..., places[0]] = across * left - along * right
        turned[..., places[1]] = along * left + across * right
    return result.astype(x.dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "nn.attention": attention,
    "nn.rotary_embedding": rotary_embedding,
}
