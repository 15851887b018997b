"""Kernels of mathematical functions, of the remainder, and of the tests for NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.numpy_kernel import NumpyKernel, arithmetic, fixed_dtype, predicate
from byoc_core.kernels.precision import NDArray, is_integer

__all__ = ["KERNELS", "isinf", "mod", "reciprocal"]


def reciprocal(x: NDArray) -> NDArray:
    """Gives ``1 / x``; infinity for zero, with its sign."""
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
    remainder = np.fmod if fmod else np.mod
    if not is_integer(x.dtype):
        return np.asarray(remainder(x, y)).astype(x.dtype, copy=False)
    divisor = np.where(y != 0, y, np.ones_like(y))  # int4 warns of zeros, whatever `errstate` says
    return np.where(y != 0, remainder(x, divisor), 0).astype(x.dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "not_equal": predicate(np.not_equal),
    "logical_xor": predicate(np.logical_xor),
    "mod": NumpyKernel(mod, fresh=True),
    "isnan": predicate(np.isnan),
    "isinf": NumpyKernel(isinf, fresh=True, gives=fixed_dtype("bool")),
    "floor": arithmetic(np.floor),
    "ceil": arithmetic(np.ceil),
    "round": arithmetic(np.rint),
    "sign": arithmetic(np.sign),
    "reciprocal": NumpyKernel(reciprocal, fresh=True),
    "sin": arithmetic(np.sin),
    "cos": arithmetic(np.cos),
    "tan": arithmetic(np.tan),
    "asin": arithmetic(np.arcsin),
    "acos": arithmetic(np.arccos),
    "atan": arithmetic(np.arctan),
    "sinh": arithmetic(np.sinh),
    "cosh": arithmetic(np.cosh),
    "asinh": arithmetic(np.arcsinh),
    "acosh": arithmetic(np.arccosh),
    "atanh": arithmetic(np.arctanh),
    "bitwise_and": arithmetic(np.bitwise_and),
    "bitwise_or": arithmetic(np.bitwise_or),
    "bitwise_xor": arithmetic(np.bitwise_xor),
    "bitwise_not": arithmetic(np.bitwise_not),
    "left_shift": arithmetic(np.left_shift),
    "right_shift": arithmetic(np.right_shift),
}
