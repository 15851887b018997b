"""The arithmetic type of a kernel's computation.

:func:`working_dtype` is the type for most kernels, :func:`native_dtype` for numpy functions without support for int4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NDArray", "highest", "is_integer", "lowest", "native_dtype", "working_dtype"]

NDArray = npt.NDArray[Any]


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type for computing sums and chains of operations on ``dtype``.

    The result is the type itself, except for floating-point types narrower than 32 bits: these compute in float32 and
    round once at the end, as processors and other frameworks do.
    """
    if dtype.itemsize <= 2 and dtype.kind not in "iub" and not _is_narrow_integer(dtype):
        return np.dtype(np.float32)
    return dtype


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the :func:`working_dtype` as a native numpy type, with all numpy functions: int8 for int4.

    Sums and products in int8, cast back to int4, wrap around like sums and products in int4.
    """
    if _is_narrow_integer(dtype):
        return np.dtype(np.uint8 if dtype.name.startswith("u") else np.int8)
    return working_dtype(dtype)


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the neutral element of ``min``: the largest value of a type, infinity if the type has infinity."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    if dtype.kind == "f":
        return np.inf
    import ml_dtypes

    extension: Any = ml_dtypes
    if _is_narrow_integer(dtype):
        return extension.iinfo(dtype).max
    infinity = np.array(np.inf, np.float32).astype(dtype)
    return infinity if np.isinf(infinity) else extension.finfo(dtype).max


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the neutral element of ``max``: the smallest value of a type, minus infinity if the type has infinity."""
    if dtype.kind == "b":
        return False
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    if dtype.kind == "f":
        return -np.inf
    import ml_dtypes

    extension: Any = ml_dtypes
    if _is_narrow_integer(dtype):
        return extension.iinfo(dtype).min
    infinity = np.array(-np.inf, np.float32).astype(dtype)
    return infinity if np.isinf(infinity) else extension.finfo(dtype).min


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a numpy dtype is an integer type, int4 included."""
    return dtype.kind in "iu" or _is_narrow_integer(dtype)


def _is_narrow_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is an integer type of ``ml_dtypes``."""
    return dtype.kind not in "iu" and dtype.name.startswith(("int", "uint"))
