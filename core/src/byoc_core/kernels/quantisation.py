"""Kernels of quantisation: floats as integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, highest, lowest, working_dtype

__all__ = ["KERNELS", "dequantize", "quantize"]


def quantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Gives ``round(x / scale) + zero_point``, halves to even, limited to the type of ``zero_point``; NaN gives 0."""
    wide = working_dtype(x.dtype)
    with np.errstate(all="ignore"):
        steps = np.rint(x.astype(wide, copy=False) / _along(scale, x, axis, block_size).astype(wide, copy=False))
        shifted = steps + _along(zero_point, x, axis, block_size).astype(wide)
        limited = np.clip(np.where(np.isnan(shifted), 0, shifted), lowest(zero_point.dtype), highest(zero_point.dtype))
        return np.asarray(limited).astype(zero_point.dtype)


def dequantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Gives ``(x - zero_point) * scale`` in the dtype of ``scale``."""
    wide = working_dtype(scale.dtype)
    with np.errstate(all="ignore"):
        steps = x.astype(np.int64) - _along(zero_point, x, axis, block_size).astype(np.int64)
        result = steps.astype(wide) * _along(scale, x, axis, block_size).astype(wide, copy=False)
        return np.asarray(result).astype(scale.dtype, copy=False)


def _along(parameter: NDArray, x: NDArray, axis: int, block_size: int) -> NDArray:
    """Gives a parameter (one value, one for each index of an axis, or one for each block) as it broadcasts to ``x``."""
    if block_size:
        return np.repeat(parameter, block_size, axis=axis).take(np.arange(x.shape[axis]), axis=axis)
    if parameter.ndim == 0:
        return parameter
    shape = [1] * x.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


KERNELS: dict[str, Callable[..., NDArray]] = {"dequantize": dequantize, "quantize": quantize}
