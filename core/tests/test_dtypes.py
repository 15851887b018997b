"""Element types by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from byoc_core.dtypes import (
    DLCode,
    all_dtypes,
    dtype_info,
    dtype_name,
    float_limits,
    is_float,
    is_integer,
    to_numpy,
)
from byoc_core.errors import IRTypeError

pytestmark = pytest.mark.lowest


@pytest.mark.parametrize("name", all_dtypes())
def test_names_sizes_and_numpy_agree(name: str) -> None:
    info, dtype = dtype_info(name), to_numpy(name)
    assert dtype_name(dtype) == name == info.name
    assert dtype.itemsize == info.itemsize
    narrow = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
    assert info.bits == narrow.get(name, 8 * info.itemsize)
    assert np.zeros(2, dtype).nbytes == 2 * info.itemsize


def test_all_dtypes_stand_in_a_fixed_order() -> None:
    assert all_dtypes() == (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *(
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "int4",
            "uint4",
            "int2",
            "uint2",
        ),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
    )


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"])
def test_type_codes_are_those_of_dlpack(name: str) -> None:
    code, bits = dtype_info(name).dl_code, dtype_info(name).bits
    by_kind = {"b": DLCode.BOOL, "i": DLCode.INT, "u": DLCode.UINT, "f": DLCode.FLOAT}
    assert code == by_kind[np.dtype(name).kind]
    assert bits == np.dtype(name).itemsize * 8


def test_kinds() -> None:
    assert [name for name in all_dtypes() if is_float(name)] == [
        *("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
    ]
    assert all(map(is_integer, ("int2", "int4", "uint2", "uint4")))
    assert is_integer("uint8")
    assert not is_integer("bool")
    assert not is_integer("float32")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("float23", "dtype: unknown dtype 'float23'. Did you mean 'float32' or 'float64' or 'float16'?"),
        ("string", "dtype: unknown dtype 'string'"),
        ("", "dtype: unknown dtype ''"),
    ],
)
def test_an_unknown_name_lists_the_near_ones(name: str, text: str) -> None:
    for ask in (dtype_info, to_numpy, is_float, is_integer):
        with pytest.raises(IRTypeError) as caught:
            ask(name)
        assert str(caught.value) == text


@pytest.mark.parametrize("dtype", ["U3", "O", ">f4", "M8[s]", "V8"])
def test_a_numpy_dtype_without_a_counterpart(dtype: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        dtype_name(dtype)
    assert str(caught.value) == (
        f"dtype: numpy dtype {np.dtype(dtype)!r} has no byoc counterpart; expected one of bool, int8, int16, int32, "
        "int64, uint8, uint16, uint32, uint64, float16, float32, float64, bfloat16, float8_e4m3fn, float8_e5m2, int4, "
        "uint4, int2, uint2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn, "
        "complex64, complex128"
    )


def test_ml_dtypes_is_imported_only_when_asked_for() -> None:
    check = "import sys, byoc_core.dtypes as d; d.to_numpy('float32'); assert 'ml_dtypes' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize(
    ("name", "bits", "smallest", "largest"),
    [
        ("float16", 11, 2.0**-14, 65504.0),
        ("float32", 24, 2.0**-126, 2.0**128 - 2.0**104),
        ("float64", 53, 2.0**-1022, sys.float_info.max),
        ("bfloat16", 8, 2.0**-126, 2.0**128 - 2.0**120),
        ("float8_e4m3fn", 4, 2.0**-6, 448.0),
        ("float8_e5m2", 3, 2.0**-14, 57344.0),
    ],
)
def test_limits_of_floats(name: str, bits: int, smallest: float, largest: float) -> None:
    """A significand of n bits rounds by half a unit in the last place."""
    limits = float_limits(name)
    assert (limits.unit_roundoff, limits.smallest_normal, limits.largest) == (2.0**-bits, smallest, largest)


def test_what_is_no_float_has_no_limits_of_floats() -> None:
    with pytest.raises(IRTypeError) as caught:
        float_limits("int8")
    assert str(caught.value) == "dtype: 'int8' is not a floating-point type"
