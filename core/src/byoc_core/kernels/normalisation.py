"""Kernels of normalisation: batch norm (inference), layer norm, softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "batch_norm", "layer_norm", "softmax"]


def batch_norm(
    x: NDArray, gamma: NDArray, beta: NDArray, mean: NDArray, variance: NDArray, *, axis: int, epsilon: float
) -> NDArray:
    """Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.

    Shapes: ``(..., C, ...)`` and four times ``(C,)``; the result has the shape of ``x``.
    """
    wide = working_dtype(x.dtype)
    shape = [1] * x.ndim
    shape[axis] = -1
    scale, shift, centre, spread = (p.astype(wide, copy=False).reshape(shape) for p in (gamma, beta, mean, variance))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(spread + np.asarray(epsilon, wide))
        return np.asarray((x.astype(wide, copy=False) - centre) * factor + shift).astype(x.dtype, copy=False)


def layer_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, axes: tuple[int, ...], epsilon: float) -> NDArray:
    """Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the statistics of ``x`` over ``axes``.

    Shapes: ``gamma`` and ``beta`` have the sizes of ``axes``, in order; the result has the shape of ``x``.
    """
    wide = working_dtype(x.dtype)
    normalised = sorted(axis % x.ndim for axis in axes)
    shape = [size if axis in normalised else 1 for axis, size in enumerate(x.shape)]
    if x.size == 0:
        return x.copy()
    with np.errstate(all="ignore"):
        values = x.astype(wide, copy=False)
        centred = values - values.mean(axis=tuple(normalised), keepdims=True)
        variance = np.square(centred).mean(axis=tuple(normalised), keepdims=True)
        scaled = centred / np.sqrt(variance + np.asarray(epsilon, wide))
        result = scaled * gamma.astype(wide, copy=False).reshape(shape) + beta.astype(wide, copy=False).reshape(shape)
        return np.asarray(result).astype(x.dtype, copy=False)


def softmax(x: NDArray, *, axis: int) -> NDArray:
    """Gives ``exp(x) / sum(exp(x))`` along one axis, shifted by the maximum so that nothing overflows."""
    if x.size == 0:
        return x.copy()
    with np.errstate(all="ignore"):
        values = x.astype(working_dtype(x.dtype), copy=False)
        powers = np.exp(values - values.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True)).astype(x.dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "nn.batch_norm": batch_norm,
    "nn.layer_norm": layer_norm,
    "nn.softmax": softmax,
}
