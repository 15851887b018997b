"""Kernels of quantisation: floats as integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "dequantize", "quantize"]


def quantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int) -> NDArray:
    """Gives ``round(x / scale) + zero_point``, halves to even, limited to the type of ``zero_point``; NaN gives 0."""
    wide = working_dtype(x.dtype)
    limits = np.iinfo(zero_point.dtype)
    with np.errstate(all="ignore"):
        steps = np.rint(x.astype(wide, copy=False) / _along(scale, axis, x.ndim).astype(wide, copy=False))
        shifted = steps + _along(zero_point, axis, x.ndim).astype(wide)
        limited = np.clip(np.where(np.isnan(shifted), 0, shifted), limits.min, limits.max)
        return np.asarray(limited).astype(zero_point.dtype)


def dequantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int) -> NDArray:
    """Gives ``(x - zero_point) * scale`` in the dtype of ``scale``."""
    wide = working_dtype(scale.dtype)
    with np.errstate(all="ignore"):
        steps = x.astype(np.int64) - _along(zero_point, axis, x.ndim).astype(np.int64)
        result = steps.astype(wide) * _along(scale, axis, x.ndim).astype(wide, copy=False)
        return np.asarray(result).astype(scale.dtype, copy=False)


def _along(parameter: NDArray, axis: int, rank: int) -> NDArray:
    """Gives a parameter (one value, or one for each index of an axis) in a shape that broadcasts."""
    if parameter.ndim == 0:
        return parameter
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape)


KERNELS: dict[str, Callable[..., NDArray]] = {"dequantize": dequantize, "quantize": quantize}
