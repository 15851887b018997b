"""Windows stay inside their image for any attributes: a file may hold any."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.kernels.windows import num_windows, window_view
from byoc_core.opset.families import KERNELS
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

SMALL = st.integers(-3, 6)
ANY = st.one_of(SMALL, st.sampled_from([-(2**62), -(10**9), -64, 64, 2**31, 2**62, 2**63 - 1]))
SECRET = 1e6
"""The value around the image, far from any result of an image of ones."""


def image_among_secrets(*shape: int) -> Any:
    """Return ones of a shape inside a buffer of secrets."""
    size = int(np.prod(shape))
    memory = np.full(size + 2000, SECRET, np.float32)
    image = memory[1000 : 1000 + size].reshape(shape)
    image[...] = 1
    return image


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), ANY, ANY, ANY, ANY), min_size=1, max_size=3))
def test_a_view_of_windows_lies_inside_the_image(axes: list[tuple[int, int, int, int, int]]) -> None:
    sizes, window, strides, dilation, counts = zip(*axes, strict=True)
    image = image_among_secrets(1, 1, *sizes)
    try:
        view = window_view(image, window, strides, dilation, counts)
    except ExecutionError:
        return
    assert all(step > 0 for step in (*strides, *dilation))
    assert not view.size or view.max() == 1


@settings(deadline=None)
@given(st.integers(0, 6), ANY, ANY, ANY, ANY, ANY, st.booleans())
def test_windows_that_are_counted_lie_inside_the_padded_image(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, ceil_mode: bool
) -> None:
    try:
        count = num_windows(size, window, stride, dilation, begin, end, ceil_mode=ceil_mode)
    except ExecutionError:
        return
    assert count >= 0
    if not ceil_mode:
        assert (count - 1) * stride + (window - 1) * dilation < size + begin + end


@pytest.mark.parametrize("op", ["nn.max_pool1d", "nn.avg_pool1d", "nn.lp_pool1d", "nn.conv1d"])
@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_attribute_reads_outside_the_image(op: str, data: st.DataObject) -> None:
    x = image_among_secrets(1, 1, 16)
    attrs: dict[str, Any] = {
        "strides": (data.draw(SMALL),), "dilation": (data.draw(st.sampled_from([1, 2, -1, -64, -(10**9), 2**62])),),
        "padding": (data.draw(SMALL), data.draw(SMALL)),
    }  # fmt: skip
    operands = [x]
    if op == "nn.conv1d":
        operands.append(np.ones((1, 1, data.draw(st.integers(0, 3))), np.float32))
        attrs |= {"groups": data.draw(SMALL), "data_layout": "NCW", "kernel_layout": "OIW"}
    else:
        attrs |= {"pool_size": (data.draw(SMALL),), "ceil_mode": data.draw(st.booleans()), "layout": "NCW"}
        attrs |= {"count_include_pad": True} if op == "nn.avg_pool1d" else {}
        attrs |= {"p": 2} if op == "nn.lp_pool1d" else {}
    with contextlib.suppress(ExecutionError, ArithmeticError, ValueError):
        result = np.asarray(KERNELS[op](*operands, **attrs))
        assert not result.size or result.max() <= 16


def test_what_is_refused_is_named() -> None:
    image = image_among_secrets(1, 1, 4)
    with pytest.raises(ExecutionError) as caught:
        window_view(image, (2,), (1,), (-64,), (4,))
    assert str(caught.value) == (
        "operand `x`: the windows do not lie inside the image; got 4 windows of 2, stride 1, dilation -64, "
        "expected windows inside 4 elements"
    )
    with pytest.raises(ExecutionError) as caught:
        num_windows(4, 2, 0, 1, 0, 0)
    assert str(caught.value) == (
        "operand `x`: the windows cannot be counted; got window 2, stride 0, dilation 1, padding 0 and 0, "
        "expected padding of 0 or more; window, stride and dilation of 1 or more"
    )
