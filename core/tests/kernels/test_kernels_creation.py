"""Kernels making tensors of given sizes, and kernels checking sizes at run time, against Python's ranges and lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.opset.families import KERNELS
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

ORACLES = {
    "shape_of": "the shape that was drawn",
    "size": "len of Python",
}
"""The oracles of ops missing in ONNX Runtime."""

_SINGLE: Mapping[str, Callable[..., Any]] = KERNELS
"""The kernels with a single result."""

_BOUNDS = st.integers(-20, 20)


@given(_BOUNDS, _BOUNDS, st.integers(-4, 4).filter(bool), st.sampled_from(["int64", "int8", "float32", "bfloat16"]))
def test_a_range_is_that_of_python(start: int, stop: int, step: int, dtype: str) -> None:
    result = _SINGLE["arange"](start=start, stop=stop, step=step, dtype=dtype)
    assert result.dtype.name == dtype
    assert result.tolist() == list(range(start, stop, step))


def test_large_numbers_of_a_range_are_rounded_once() -> None:
    first = 2**24 - 1
    result = _SINGLE["arange"](start=first, stop=first + 4, step=1, dtype="float32")
    assert result.tolist() == [float(np.float32(first + index)) for index in range(4)]
    bfloat = _SINGLE["arange"](start=255, stop=259, step=1, dtype="bfloat16")
    assert bfloat.tolist() == [float(ml_dtypes.bfloat16(255 + index)) for index in range(4)]


@given(st.lists(st.integers(0, 4), max_size=4))
def test_shapes_are_data(shape: list[int]) -> None:
    x = np.zeros(shape, np.int8)
    assert _SINGLE["shape_of"](x).tolist() == shape
    assert _SINGLE["size"](x).shape == ()
    assert _SINGLE["size"](x) == len(x.reshape(-1))
    assert _SINGLE["shape_to_tensor"](sizes=shape).tolist() == shape
    filled = _SINGLE["full"](np.array(7, np.int8), shape=tuple(shape))
    assert filled.dtype == np.int8
    assert filled.tolist() == (x + np.int8(7)).tolist()


@pytest.mark.parametrize(
    ("begin", "end", "stride", "text"),
    [
        (0, 5, 1, "op `strided_slice`: a bound lies outside axis 0 of size 4; got 5"),
        (-5, 4, 1, "op `strided_slice`: a bound lies outside axis 0 of size 4; got -5"),
        (4, 0, -1, "op `strided_slice`: a bound lies outside axis 0 of size 4; got 4"),
    ],
)
def test_a_strict_slice_refuses_bounds_beyond_the_axis(begin: int, end: int, stride: int, text: str) -> None:
    x = np.arange(4)
    attrs: dict[str, Any] = {"axes": (0,), "begin": (begin,), "end": (end,), "strides": (stride,)}
    with pytest.raises(ExecutionError) as caught:
        _SINGLE["strided_slice"](x, **attrs, mode="strict")
    assert str(caught.value) == text
    assert _SINGLE["strided_slice"](x, **attrs, mode="clip").tolist() == x[slice(begin, end, stride)].tolist()


@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 2))
def test_a_strict_slice_with_bounds_on_the_axis_is_that_of_python(begin: int, end: int, stride: int) -> None:
    x = np.arange(4)
    attrs: dict[str, Any] = {"axes": (0,), "strides": (stride,), "mode": "strict"}
    assert _SINGLE["strided_slice"](x, begin=(begin,), end=(end,), **attrs).tolist() == x[begin:end:stride].tolist()
    opened = _SINGLE["strided_slice"](x, begin=(begin,), end=(1 << 62,), **attrs)
    assert opened.tolist() == x[begin::stride].tolist()


@pytest.mark.parametrize("sections", [(1, 2), (2, 3), (5, -1)])
def test_parts_have_to_make_up_the_axis(sections: tuple[int, int]) -> None:
    with pytest.raises(ExecutionError) as caught:
        KERNELS["split"](np.arange(4), sections=sections, axis=0)
    assert str(caught.value) == (
        f"op `split`: the sizes of the parts do not add up to the size of the axis; got {sections}, expected 4"
    )
