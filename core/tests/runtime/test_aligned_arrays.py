"""Arrays at multiples of 64 bytes, and shapes without memory."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.runtime.aligned_arrays import ARRAY_ALIGNMENT, aligned_copy, aligned_empty
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 5), max_size=4).map(tuple), st.sampled_from(["bool", "float16", "float32", "int64"]))
def test_arrays_are_aligned_and_copies_are_frozen(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned_empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.flags.c_contiguous
    assert array.ctypes.data % ARRAY_ALIGNMENT == 0
    array[...] = 1
    copy = aligned_copy(array)
    assert copy.ctypes.data % ARRAY_ALIGNMENT == 0
    np.testing.assert_array_equal(copy, array)
    assert not copy.flags.writeable


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        ((1 << 33, 1 << 33), 1 << 68),  # the product wraps to 0 in 64 bits
        ((1 << 62,), 1 << 64),
        ((1 << 70,), 1 << 72),
        ((0, 1 << 62), 0),
        ((1 << 50,), 1 << 52),
    ],
)
def test_shapes_without_memory_are_our_errors(shape: tuple[int, ...], nbytes: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        aligned_empty(shape, np.dtype("float32"))
    assert str(caught.value) == f"array: cannot be allocated; got float32{list(shape)}, {nbytes} bytes"
