"""Element types by name: numpy's own and the types of ``ml_dtypes``.

A dtype is a string everywhere in byoc (``"float32"``, ``"bfloat16"``); this module turns the string into
a numpy dtype, a DLPack code and sizes. ``ml_dtypes`` is imported at the first request for a type of this package.
Artifacts and digests of constants hold the names, so a name never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from byoc_core.errors import IRTypeError, near_names

__all__ = [
    "DLCode",
    "DTypeInfo",
    "FloatLimits",
    "all_dtypes",
    "complex_dtypes",
    "computing_dtypes",
    "dtype_info",
    "dtype_name",
    "float_limits",
    "is_float",
    "is_integer",
    "to_numpy",
]


class DLCode(IntEnum):
    """``DLDataTypeCode`` of the DLPack specification, version 1.1."""

    INT = 0
    UINT = 1
    FLOAT = 2
    BFLOAT = 4
    COMPLEX = 5
    BOOL = 6
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13
    FLOAT8_E8M0FNU = 14
    FLOAT4_E2M1FN = 17


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """The properties of a dtype.

    Attributes:
        name: the byoc name.
        bits: bits of one element (4 for int4, stored by numpy in one byte; 2 for int2).
        itemsize: bytes of one element in a numpy array.
        dl_code: DLPack type code.
        kind: ``"float"``, ``"int"``, ``"uint"``, ``"bool"`` or ``"complex"``.
        from_ml_dtypes: whether the numpy dtype comes from ``ml_dtypes``.
        is_for_storage: whether numbers of the dtype are stored, and converted before computing with them. Nothing
            computes with complex numbers: ONNX has no such arithmetic.
    """

    name: str
    bits: int
    itemsize: int
    dl_code: DLCode
    kind: str
    from_ml_dtypes: bool = False
    is_for_storage: bool = False


_TABLE: dict[str, DTypeInfo] = {
    info.name: info
    for info in (
        DTypeInfo("bool", 8, 1, DLCode.BOOL, "bool"),
        *(DTypeInfo(f"int{b}", b, b // 8, DLCode.INT, "int") for b in (8, 16, 32, 64)),
        *(DTypeInfo(f"uint{b}", b, b // 8, DLCode.UINT, "uint") for b in (8, 16, 32, 64)),
        *(DTypeInfo(f"float{b}", b, b // 8, DLCode.FLOAT, "float") for b in (16, 32, 64)),
        DTypeInfo("bfloat16", 16, 2, DLCode.BFLOAT, "float", from_ml_dtypes=True),
        DTypeInfo("float8_e4m3fn", 8, 1, DLCode.FLOAT8_E4M3FN, "float", from_ml_dtypes=True),
        DTypeInfo("float8_e5m2", 8, 1, DLCode.FLOAT8_E5M2, "float", from_ml_dtypes=True),
        DTypeInfo("int4", 4, 1, DLCode.INT, "int", from_ml_dtypes=True),
        DTypeInfo("uint4", 4, 1, DLCode.UINT, "uint", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("int2", 2, 1, DLCode.INT, "int", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("uint2", 2, 1, DLCode.UINT, "uint", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("float8_e4m3fnuz", 8, 1, DLCode.FLOAT8_E4M3FNUZ, "float", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("float8_e5m2fnuz", 8, 1, DLCode.FLOAT8_E5M2FNUZ, "float", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("float8_e8m0fnu", 8, 1, DLCode.FLOAT8_E8M0FNU, "float", from_ml_dtypes=True, is_for_storage=True),
        DTypeInfo("float4_e2m1fn", 4, 1, DLCode.FLOAT4_E2M1FN, "float", from_ml_dtypes=True, is_for_storage=True),
        *(DTypeInfo(f"complex{b}", b, b // 8, DLCode.COMPLEX, "complex", is_for_storage=True) for b in (64, 128)),
    )
}


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """The precision and the range of a floating-point type.

    Attributes:
        unit_roundoff: the largest relative error of rounding to nearest a number in the type's normal range.
        smallest_normal: the smallest positive number of full precision.
        largest: the largest finite number.
    """

    unit_roundoff: float
    smallest_normal: float
    largest: float


def all_dtypes() -> tuple[str, ...]:
    """Return the names of all dtypes other than complex, in a fixed order."""
    return tuple(name for name, info in _TABLE.items() if info.kind != "complex")


def complex_dtypes() -> tuple[str, ...]:
    """Return the names of the dtypes of complex numbers, which ops move and nothing computes with."""
    return tuple(name for name, info in _TABLE.items() if info.kind == "complex")


def computing_dtypes() -> tuple[str, ...]:
    """Return the names of the dtypes to compute with, in the order of :func:`all_dtypes`."""
    return tuple(name for name, info in _TABLE.items() if not info.is_for_storage)


def dtype_info(name: str) -> DTypeInfo:
    """Return the properties of a dtype.

    Raises:
        IRTypeError: no such dtype; the near names are listed.
    """
    info = _TABLE.get(name)
    if info is None:
        raise IRTypeError("dtype", f"unknown dtype {name!r}", hint=near_names(str(name), _TABLE) or None)
    return info


def to_numpy(name: str) -> np.dtype[np.generic]:
    """Return the numpy dtype for a byoc dtype name."""
    info = dtype_info(name)
    if info.from_ml_dtypes:
        import ml_dtypes

        extension: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, info.name))
        return extension
    return np.dtype(info.name)


def dtype_name(dtype: np.dtype[np.generic] | type | str) -> str:
    """Return the byoc name of a numpy dtype (native byte order only).

    Raises:
        IRTypeError: the dtype has no byoc name (strings, structures, foreign byte order, ...).
    """
    resolved: np.dtype[np.generic] = np.dtype(dtype)
    name = resolved.name
    if name not in _TABLE or not resolved.isnative:
        raise IRTypeError(
            "dtype", f"numpy dtype {resolved!r} has no byoc counterpart", expected="one of " + ", ".join(_TABLE)
        )
    return name


def is_float(name: str) -> bool:
    """Return whether a dtype is a floating-point type."""
    return dtype_info(name).kind == "float"


def is_integer(name: str) -> bool:
    """Return whether a dtype is a signed or unsigned integer type (bool is not)."""
    return dtype_info(name).kind in ("int", "uint")


@cache
def float_limits(name: str) -> FloatLimits:
    """Return the precision and the range of a floating-point type.

    Raises:
        IRTypeError: no such dtype, or no floating-point type.
    """
    if not is_float(name):
        raise IRTypeError("dtype", f"{name!r} is not a floating-point type")
    info: Any
    if dtype_info(name).from_ml_dtypes:
        import ml_dtypes

        extension: Any = ml_dtypes
        info = extension.finfo(to_numpy(name))
    else:
        info = np.finfo(name)
    return FloatLimits(float(info.eps) / 2, float(info.smallest_normal), float(info.max))
