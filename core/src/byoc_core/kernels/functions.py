"""Kernels of mathematical functions, of the remainder, and of the tests for NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "isinf", "mod", "reciprocal"]


def _from_ufunc(ufunc: Callable[..., Any]) -> Callable[..., NDArray]:
    """Gives the kernel that applies a numpy function without warnings; 0-d results stay arrays."""

    def kernel(*operands: NDArray) -> NDArray:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(*operands))

    return kernel


def reciprocal(x: NDArray) -> NDArray:
    """Gives ``1 / x``; infinity for zero, with its sign."""
    with np.errstate(all="ignore"):
        return np.asarray(np.ones((), x.dtype) / x)


def isinf(x: NDArray, *, detect_negative: bool, detect_positive: bool) -> NDArray:
    """Tells where ``x`` is infinite, of the signs asked for."""
    infinite = np.isinf(x)
    negative = infinite & (x < 0)
    return np.asarray((negative & detect_negative) | (infinite & ~negative & detect_positive))


def mod(x: NDArray, y: NDArray, *, fmod: bool) -> NDArray:
    """Gives the remainder of ``x / y``, with the sign of ``y``, or of ``x`` with ``fmod``.

    An integer divided by zero leaves 0, a float NaN.
    """
    with np.errstate(all="ignore"):
        return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y))


KERNELS: dict[str, Callable[..., NDArray]] = {
    "not_equal": _from_ufunc(np.not_equal),
    "logical_xor": _from_ufunc(np.logical_xor),
    "mod": mod,
    "isnan": _from_ufunc(np.isnan),
    "isinf": isinf,
    "floor": _from_ufunc(np.floor),
    "ceil": _from_ufunc(np.ceil),
    "round": _from_ufunc(np.rint),
    "sign": _from_ufunc(np.sign),
    "reciprocal": reciprocal,
    "sin": _from_ufunc(np.sin),
    "cos": _from_ufunc(np.cos),
    "tan": _from_ufunc(np.tan),
    "asin": _from_ufunc(np.arcsin),
    "acos": _from_ufunc(np.arccos),
    "atan": _from_ufunc(np.arctan),
    "sinh": _from_ufunc(np.sinh),
    "cosh": _from_ufunc(np.cosh),
    "asinh": _from_ufunc(np.arcsinh),
    "acosh": _from_ufunc(np.arccosh),
    "atanh": _from_ufunc(np.arctanh),
    "bitwise_and": _from_ufunc(np.bitwise_and),
    "bitwise_or": _from_ufunc(np.bitwise_or),
    "bitwise_xor": _from_ufunc(np.bitwise_xor),
    "bitwise_not": _from_ufunc(np.bitwise_not),
    "left_shift": _from_ufunc(np.left_shift),
    "right_shift": _from_ufunc(np.right_shift),
}
