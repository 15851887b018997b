"""Elements as elements of another dtype: by value, and bit for bit, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import IRTypeError
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.ops import default_ops
from hypothesis import given
from hypothesis import strategies as st

ORACLES = {"bitcast": "numpy.ndarray.view"}

_PAIRS = [("float32", "int32"), ("uint32", "float32"), ("float64", "int64"), ("bfloat16", "uint16"), ("int8", "uint8")]


@given(data=st.binary(min_size=48, max_size=48), pair=st.sampled_from(_PAIRS), is_turned=st.booleans())
def test_bits_stay(data: bytes, pair: tuple[str, str], is_turned: bool) -> None:
    kernel = default_ops()["bitcast"].kernel
    assert kernel is not None
    x = np.frombuffer(data, to_numpy(pair[0])).reshape(2, -1)
    x = x.T if is_turned else x
    result = np.asarray(kernel(x, dtype=pair[1]))
    assert result.dtype == to_numpy(pair[1])
    np.testing.assert_array_equal(result, np.ascontiguousarray(x).view(to_numpy(pair[1])))


@pytest.mark.parametrize(
    ("source", "dtype", "problem"),
    [
        ("float32", "int64", "has elements of another number of bits; got float32, expected as int64"),
        ("int4", "uint4", "has elements of another number of bits"),
        ("uint8", "bool", "not all bits are truth values"),
    ],
)
def test_dtypes_that_do_not_fit(source: str, dtype: str, problem: str) -> None:
    builder = FunctionBuilder("main", ops=default_ops())
    with pytest.raises(IRTypeError, match=problem):
        builder.emit("bitcast", builder.param("x", tensor((2,), source)), dtype=dtype)


@pytest.mark.parametrize("source", all_dtypes())
@pytest.mark.parametrize("target", all_dtypes())
def test_all_dtypes_are_converted_to_each_other(source: str, target: str) -> None:
    """1 is in every dtype."""
    kernel = default_ops()["cast"].kernel
    assert kernel is not None
    ones = np.ones((2, 2), np.float32)
    for x in (ones.astype(to_numpy(source)), np.asfortranarray(ones).astype(to_numpy(source))[:, ::-1]):
        result = np.asarray(kernel(x, dtype=target))
        assert result.dtype == to_numpy(target)
        np.testing.assert_array_equal(result.astype(np.float32), ones)
