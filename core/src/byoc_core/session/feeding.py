"""Conversion of what callers pass to the arrays that a compiled model takes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.dlpack import from_dlpack
from byoc_core.runtime.module import NDArray

__all__ = ["CASTINGS", "Casting", "as_dtype"]

Casting = Literal["no", "safe", "same_kind"]
CASTINGS: tuple[Casting, ...] = ("no", "safe", "same_kind")
_RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
_KINDS_OF_NUMBERS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


def as_dtype(value: Any, dtype: str, casting: Casting, where: str) -> NDArray:
    """Return an input as an array of the declared dtype: converted, if the casting permits.

    Numbers and nested lists of numbers have no dtype of their own, and become any dtype of their kind or of a higher
    kind (bools, integers, floats, complex numbers), if all integers are in its range.

    Args:
        value: an array, an object with ``__dlpack__``, a number, or nested lists of numbers.
        dtype: the declared dtype.
        casting: the permitted conversions of arrays, in numpy's terms: ``"safe"`` loses nothing, ``"same_kind"``
            rounds floats too, and converts integers in the range of the dtype.
        where: the input, for errors.

    Raises:
        CallError: a conversion is not permitted, an integer is out of range, or the value is no array of numbers.
    """
    target = to_numpy(dtype)
    if isinstance(value, bool | int | float | complex | list | tuple):
        return _from_numbers(value, target, dtype, where)
    array = value if isinstance(value, np.ndarray | np.generic) else from_dlpack(value, where)
    if array.dtype == target:
        return np.asarray(array)
    if not np.can_cast(array.dtype, target, casting=casting):
        raise CallError(
            where,
            f"is not converted by casting={casting!r}",
            got=array.dtype,
            expected=dtype,
            hint="Convert the array, or pass casting='same_kind'." if casting == "safe" else "Convert the array.",
        )
    return _cast(np.asarray(array), target, dtype, where)


def _from_numbers(value: Any, target: np.dtype[Any], dtype: str, where: str) -> NDArray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise CallError(where, "is nested lists of different lengths", expected="an array") from error
    kind = _KINDS_OF_NUMBERS.get(array.dtype.kind)
    if array.size and (kind is None or _RANKS[kind] > _RANKS[dtype_info(dtype).kind]):
        raise CallError(where, "is not converted", got=f"numbers of {array.dtype}", expected=dtype)
    return _cast(array, target, dtype, where)


def _cast(array: NDArray, target: np.dtype[Any], dtype: str, where: str) -> NDArray:
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
    if array.dtype.kind in "iu" and dtype_info(dtype).kind in ("int", "uint") and not np.array_equal(converted, array):
        raise CallError(where, "has integers out of the range of the dtype", got=array.dtype, expected=dtype)
    return converted
