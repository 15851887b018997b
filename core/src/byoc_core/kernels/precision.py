"""The arithmetic type that a kernel computes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NDArray", "highest", "is_integer", "lowest", "native_dtype", "working_dtype"]

NDArray = npt.NDArray[Any]


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Gives the type in which sums and chains of operations on ``dtype`` are computed.

    That is the type itself, except for floating-point types narrower than 32 bits: those compute in float32 and
    round once at the end, as processors and other frameworks do.
    """
    if dtype.itemsize <= 2 and dtype.kind not in "iub" and not dtype.name.startswith("int"):
        return np.dtype(np.float32)
    return dtype


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Gives the :func:`working_dtype` as one of numpy's own types, which have all of its functions: int8 for int4.

    Sums and products in int8 wrap around as those in int4 do, once they are cast back.
    """
    return np.dtype(np.int8) if is_integer(dtype) and dtype.kind not in "iu" else working_dtype(dtype)


def highest(dtype: np.dtype[Any]) -> Any:
    """Gives the neutral element of ``min``: the largest value of a type, infinity where it has one."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    if dtype.kind == "f":
        return np.inf
    import ml_dtypes

    extension: Any = ml_dtypes
    if dtype.name.startswith("int"):
        return extension.iinfo(dtype).max
    infinity = np.array(np.inf, np.float32).astype(dtype)
    return infinity if np.isinf(infinity) else extension.finfo(dtype).max


def lowest(dtype: np.dtype[Any]) -> Any:
    """Gives the neutral element of ``max``: the smallest value of a type, minus infinity where it has one."""
    if dtype.kind == "b":
        return False
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    if dtype.kind == "f":
        return -np.inf
    import ml_dtypes

    extension: Any = ml_dtypes
    if dtype.name.startswith("int"):
        return extension.iinfo(dtype).min
    infinity = np.array(-np.inf, np.float32).astype(dtype)
    return infinity if np.isinf(infinity) else extension.finfo(dtype).min


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Tells whether a numpy dtype is an integer type, int4 included."""
    return dtype.kind in "iu" or dtype.name.startswith("int")
