"""Kernels of quantisation: floats as integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.indices import require_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray, highest, lowest, working_dtype

__all__ = ["KERNELS", "dequantize", "quantize"]


def quantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Gives ``round(x / scale) + zero_point``, halves to even, limited to the type of ``zero_point``; NaN gives 0.

    Raises:
        ExecutionError: there is not one parameter for each index, or block, of the axis.
    """
    divisor, zero = _broadcast_parameters("quantize", scale, zero_point, x, axis, block_size)
    wide = working_dtype(x.dtype)
    shifted = np.rint(x.astype(wide, copy=False) / divisor.astype(wide, copy=False)) + zero.astype(wide)
    limited = np.clip(np.where(np.isnan(shifted), 0, shifted), lowest(zero_point.dtype), highest(zero_point.dtype))
    return np.asarray(limited).astype(zero_point.dtype)


def dequantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Gives ``(x - zero_point) * scale`` in the dtype of ``scale``.

    Raises:
        ExecutionError: there is not one parameter for each index, or block, of the axis.
    """
    factor, zero = _broadcast_parameters("dequantize", scale, zero_point, x, axis, block_size)
    wide = working_dtype(scale.dtype)
    steps = x.astype(np.int64) - zero.astype(np.int64)
    result = steps.astype(wide) * factor.astype(wide, copy=False)
    return np.asarray(result).astype(scale.dtype, copy=False)


def _broadcast_parameters(
    op: str, scale: NDArray, zero_point: NDArray, x: NDArray, axis: int, block_size: int
) -> tuple[NDArray, NDArray]:
    """Gives both parameters (one value, one for each index of an axis, or one for each block) as they broadcast."""
    if scale.ndim == 0:
        return scale, zero_point
    axis %= x.ndim
    size = x.shape[axis]
    shape = (*x.shape[:axis], -(-size // block_size), *x.shape[axis + 1 :]) if block_size else (size,)
    require_shape(op, "scale", scale.shape, shape)
    require_shape(op, "zero_point", zero_point.shape, shape)
    if block_size:
        block = np.arange(size) // block_size
        return scale.take(block, axis=axis), zero_point.take(block, axis=axis)
    broadcast = [size if other == axis else 1 for other in range(x.ndim)]
    return scale.reshape(broadcast), zero_point.reshape(broadcast)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "dequantize": NumpyKernel(dequantize, gives=dtype_of(1)),
    "quantize": NumpyKernel(quantize, gives=dtype_of(2)),
}
