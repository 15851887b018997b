"""Kernels of elementwise ops without a numpy function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from byoc_core.dtypes import all_dtypes, dtype_info, float_limits, is_float, to_numpy
from byoc_core.kernels.error_function import erf64
from byoc_core.kernels.memory import BLOCK_ELEMENTS, in_blocks
from byoc_core.kernels.numpy_kernel import common_dtype
from byoc_core.kernels.precision import NDArray, is_integer

__all__ = ["bitcast", "cast", "cast_dtype", "clip", "divide", "dtype_of_choice", "erf", "power", "sigmoid", "where"]


def divide(x: NDArray, y: NDArray) -> NDArray:
    """Return ``x / y``; IEEE 754 division for floats.

    Integers truncate towards zero, as in C and ONNX. Cases undefined in C are defined: division by zero yields 0, and
    the smallest integer divided by -1 is itself.
    """
    if not is_integer(x.dtype):
        return np.asarray(np.divide(x, y))
    divisor = np.where(y != 0, y, np.ones_like(y))  # int4 warns of zeros despite `errstate`
    floor = np.floor_divide(x, divisor)
    inexact = x - floor * divisor != 0
    adjusted = floor + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)
    return np.asarray(np.where(y != 0, adjusted, np.zeros_like(adjusted)))


def power(x: NDArray, y: NDArray) -> NDArray:
    """Return ``x ** y``.

    Integers wrap around. A negative exponent yields ``1 / x**-y`` truncated towards zero: 1 and -1 keep their
    magnitude, every other base (0 too) yields 0. Floats have the special cases of ``pow`` of C: ``-0 ** 0.5`` is 0, and
    ``-inf ** 0.5`` is infinite.
    """
    if not is_integer(x.dtype):
        result = np.asarray(np.power(x, y))
        is_root = y == 0.5
        if np.any(is_root):  # numpy takes square roots of both
            np.copyto(result, 0.0, where=is_root & (x == 0))
            np.copyto(result, np.inf, where=is_root & (x == -np.inf))
        return result
    negative = y < 0
    zeros, ones = np.zeros_like(x), np.ones_like(x)
    result = np.power(x, np.where(negative, np.zeros_like(y), y))
    if np.any(negative):
        odd_sign = np.where(y % 2 != 0, x, ones)
        inverse = np.where(x == ones, ones, np.where(x == zeros - ones, odd_sign, zeros)) if _signed(x) else result
        result = np.where(negative, inverse, result)
    return np.asarray(result).astype(x.dtype, copy=False)


def _signed(x: NDArray) -> bool:
    return x.dtype.kind != "u"


def sigmoid(x: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Return ``1 / (1 + exp(-x))``; neither sign of ``x`` overflows."""
    if x.size > BLOCK_ELEMENTS and x.flags.c_contiguous:
        return in_blocks(sigmoid, x, out)
    unit = x.dtype.type(1)
    decay = np.exp(-np.abs(x))
    return np.asarray(np.divide(np.where(x >= 0, unit, decay), unit + decay, out=out))


def erf(x: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Return the error function, computed in float64 and rounded once to the dtype of ``x``."""
    if x.size > BLOCK_ELEMENTS and x.flags.c_contiguous:
        return in_blocks(erf, x, out)
    return erf64(x).astype(x.dtype, copy=False)


def clip(
    x: NDArray,
    *,
    min: float | None,  # noqa: A002 - the op's attribute name
    max: float | None,  # noqa: A002 - the op's attribute name
    out: NDArray | None = None,
) -> NDArray:
    """Return ``x`` limited from below, then from above; an open end is ``None``; NaN stays NaN."""
    if min is None and max is None:
        return x.copy()
    result = x if min is None else np.maximum(x, np.asarray(min, x.dtype), out=out)
    return np.asarray(result if max is None else np.minimum(result, np.asarray(max, x.dtype), out=out))


def bitcast(x: NDArray, *, dtype: str) -> NDArray:
    """Return the bits of each element as an element of another dtype."""
    return np.array(x, order="C").view(_numpy_dtype(dtype))


def cast(x: NDArray, *, dtype: str, out: NDArray | None = None) -> NDArray:
    """Return ``x`` in another dtype: floats truncate towards zero to integers; all but zero is true.

    A value outside the range of the target integer type has an unspecified result, as in C and ONNX.
    """
    target = _numpy_dtype(dtype)
    if x.dtype.isbuiltin == target.isbuiltin == 2 and x.dtype != target:
        x = x.astype(np.float32)  # exact; the types of `ml_dtypes` are not all converted to each other
    if out is None:
        return x.astype(target)
    out[...] = x
    return out


_numpy_dtype = lru_cache(maxsize=None)(to_numpy)


def cast_dtype(_: Sequence[np.dtype[Any]], attrs: Mapping[str, Any]) -> np.dtype[Any] | None:
    """Return the numpy dtype named by attribute ``dtype``."""
    dtype = attrs["dtype"]
    return _numpy_dtype(dtype) if dtype in all_dtypes() else None


def open_casts(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    """Return whether each float is out of range of the type: processors saturate, wrap around or use a fixed number."""
    (x,), target = operands, attrs["dtype"]
    if x.dtype.kind != "f" or target == "bool":
        return np.asarray(False)
    if is_float(target):
        return np.abs(x) > float_limits(target).largest if target.startswith("float8") else np.asarray(False)
    bits, is_signed = dtype_info(target).bits, dtype_info(target).kind == "int"
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if is_signed else (0.0, 2.0**bits)
    truncated = np.trunc(x)
    return ~((truncated >= low) & (truncated < high))


def open_powers(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    """Return whether each element is an integer zero with a negative exponent."""
    x, y = operands
    return np.asarray((x == 0) & (y < 0)) if x.dtype.kind != "f" else np.asarray(False)


def where(condition: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """Return ``x`` if the condition holds, else ``y``, elementwise; all three broadcast."""
    return np.asarray(np.where(condition, x, y))


def dtype_of_choice(dtypes: Sequence[np.dtype[Any]], attrs: Mapping[str, Any]) -> np.dtype[Any] | None:
    """Return the dtype of the operands chosen from by ``where``."""
    return common_dtype(dtypes[1:], attrs)
