"""Kernels that combine each element with all before it along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray, native_dtype

__all__ = ["KERNELS"]


def _cumulative(ufunc: Any, neutral: int) -> Callable[..., NDArray]:
    """Gives the kernel that applies a function of numpy to all elements up to each one, one after the other."""

    def kernel(x: NDArray, *, axis: int, exclusive: bool, reverse: bool) -> NDArray:
        wide = x.astype(native_dtype(x.dtype), copy=False)
        walked = np.flip(wide, axis) if reverse else wide
        total = np.asarray(ufunc.accumulate(walked, axis=axis, dtype=wide.dtype))
        if exclusive:
            edge = np.full_like(np.take(total, np.arange(min(total.shape[axis], 1)), axis=axis), neutral)
            kept = np.take(total, np.arange(max(total.shape[axis] - 1, 0)), axis=axis)
            total = np.concatenate((edge, kept), axis=axis)
        return (np.flip(total, axis) if reverse else total).astype(x.dtype, copy=False)

    return kernel


KERNELS: dict[str, Callable[..., NDArray]] = {
    "cumsum": _cumulative(np.add, 0),
    "cumprod": _cumulative(np.multiply, 1),
}
