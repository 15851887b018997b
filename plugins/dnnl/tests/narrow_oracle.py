"""Permitted results of kernels on narrow floats computing in float32 with a single rounding; error bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import float_limits, to_numpy

__all__ = ["gamma", "is_rounded_once", "layer_norm_error", "log_softmax_error", "narrowed", "softmax_error"]

NDArray = npt.NDArray[Any]
_UNIT = 2.0**-24


def is_rounded_once(found: NDArray, exact: NDArray, error: npt.ArrayLike, dtype: str) -> NDArray:
    """Return for each element whether it is a number within ``error`` of the exact value, rounded once.

    Rounding is monotone, so the result lies between the rounded ends of the interval; an end beyond the largest number
    rounds to infinity, as the result does. A result below the smallest normal number may be flushed to zero. NaN
    requires NaN.
    """
    low, high = (_rounded(exact + sign * np.asarray(error), dtype) for sign in (-1, 1))
    given = found.astype(np.float64)
    smallest = float_limits(dtype).smallest_normal
    is_flushed = (given == 0) & (np.minimum(np.abs(low), np.abs(high)) < smallest)
    return np.where(np.isnan(exact), np.isnan(given), ((low <= given) & (given <= high)) | is_flushed)


def _rounded(exact: NDArray, dtype: str) -> NDArray:
    with np.errstate(over="ignore"):
        return exact.astype(to_numpy(dtype)).astype(np.float64)


def narrowed(array: NDArray, dtype: str) -> NDArray:
    """Return numbers rounded to a narrow float, without subnormals: some instructions flush these to zero."""
    smallest = float_limits(dtype).smallest_normal
    return np.where(np.abs(array) < smallest, np.copysign(smallest, array), array).astype(to_numpy(dtype))


def gamma(length: int, unit: float = _UNIT) -> float:
    """Return the largest effect of ``length`` roundings, relative to the magnitude (Higham, chapter 3)."""
    return length * unit / (1 - length * unit)


def log_softmax_error(x: NDArray, exact: NDArray, axis: int) -> NDArray:
    """Bound the float32 error of log-softmax, with exponentials within 1.5 ULP and logarithms within 1.

    Each argument of an exponential is rounded, changing the result by ``|t| u``; for numbers below 1, ``|t| exp(t)`` is
    below 0.37. So the relative error of the sum of ``n`` exponentials, at least 1, is ``(3 + 0.37 n + n) u``; the error
    of the logarithm is the same plus ``2 u log n``. The maximum is added before or after, and the difference is
    rounded.
    """
    size = x.shape[axis]
    largest = np.abs(x.astype(np.float64)).max()
    return np.asarray(1.01 * _UNIT * (2 * (np.abs(exact) + largest) + 3 + 1.37 * size + 2 * np.log(size)))


def softmax_error(x: NDArray, exact: NDArray, dtype: str) -> NDArray:
    """Bound the error of softmax of rows before the last rounding: in float32, exponentials rounded to ``dtype``.

    Exponentials have 3 ULP and the rounding of their arguments, above -8 here: so the exponentials are normal
    numbers of every dtype. The quotient, or the product with a reciprocal, is rounded up to three times.
    """
    spread = x.astype(np.float64).max(-1) - x.astype(np.float64).min(-1)
    assert spread.max() < 8
    exponential = (1 + float_limits(dtype).unit_roundoff) * (1 + gamma(2 * 3 + 8))
    in_sum = 1 + gamma(2 * 3 + 8 + x.shape[-1])
    return np.asarray(np.abs(exact) * (exponential * in_sum * (1 + gamma(3)) - 1)) * 1.01


def layer_norm_error(x: NDArray, scale: NDArray, shift: NDArray, epsilon: float) -> NDArray:
    """Bound the error in float32 of the layer normalisation of rows by two passes: mean, then mean of squares."""
    wide, size = x.astype(np.float64), x.shape[-1]
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(variance + epsilon)
    off_mean = gamma(size + 1) * np.abs(wide).mean(-1, keepdims=True)
    off_centred = off_mean + _UNIT * (np.abs(centred) + off_mean)
    squares = (2 * np.abs(centred) * off_centred + off_centred**2).mean(-1, keepdims=True)
    off_variance = squares + gamma(size + 3) * (variance + squares)
    off_inverse = inverse * (off_variance / (variance + epsilon) / 2 + gamma(4))
    normal = np.abs(centred) * off_inverse + off_centred * inverse
    size_of_result = np.abs(centred) * inverse * np.abs(scale) + np.abs(shift)
    return np.asarray(1.01 * (normal * np.abs(scale.astype(np.float64)) + gamma(4) * size_of_result))
