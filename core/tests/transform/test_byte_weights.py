"""Constant integers as bytes with a zero point."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.runtime.module import NDArray
from byoc_core.transform.byte_weights import MAX_TERMS, to_bytes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

_SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=4)


@given(data=st.data())
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_less_any_zero_points_of_channels_are_reached(dtype: str, data: st.DataObject) -> None:
    weights = data.draw(hnp.arrays(dtype, _SHAPES)).astype(np.int32)
    channel = data.draw(st.integers(-weights.ndim, weights.ndim - 1))
    axis = channel % weights.ndim
    shape = tuple(size if index == axis else 1 for index, size in enumerate(weights.shape))
    array = weights - data.draw(hnp.arrays(dtype, data.draw(st.sampled_from([(), shape])))).astype(np.int32)
    found = to_bytes(array, channel)
    assert found is not None
    values, zero = found
    assert values.dtype == zero.dtype == np.int8
    assert values.shape == array.shape
    assert zero.shape in ((), shape)
    np.testing.assert_array_equal(values.astype(np.int32) - zero, array)


@given(array=hnp.arrays(np.int32, _SHAPES, elements=st.integers(-600, 600)), data=st.data())
def test_what_is_returned_is_the_array_and_nothing_is_returned_only_where_a_channel_is_too_wide(
    array: NDArray, data: st.DataObject
) -> None:
    channel = data.draw(st.integers(0, array.ndim - 1))
    found = to_bytes(array, channel)
    if found is not None:
        np.testing.assert_array_equal(found[0].astype(np.int32) - found[1], array)
        return
    widest = np.ptp(np.moveaxis(array, channel, 0).reshape(array.shape[channel], -1), axis=1).max()
    assert widest > 255 or abs(array).max() > 255


def test_the_zero_point_is_as_small_as_it_can_be() -> None:
    for low, high, zero in ((-128, 127, 0), (-5, 9, 0), (0, 255, -128), (-255, 0, 127), (1, 128, -1), (255, 255, -128)):
        found = to_bytes(np.array([[low, high]], np.int32), 0)
        assert found is not None
        assert found[1].tolist() == zero


def test_empty_arrays_have_no_bytes() -> None:
    assert to_bytes(np.zeros((0, 3), np.int32), 1) is None


def test_the_largest_sum_fits() -> None:
    assert MAX_TERMS * 255 * 255 < 2**31 < (MAX_TERMS + (1 << 9)) * 255 * 255
