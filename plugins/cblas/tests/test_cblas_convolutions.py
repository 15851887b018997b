"""Convolutions: layouts, groups, strides, borders, dilation, images of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.cblas.tests.judged_layers import build_layer, judge, module_text, numbers, reference, run_layer

LAYOUTS = [("NCHW", "OIHW"), ("NHWC", "OIHW"), ("NHWC", "HWIO"), ("NCHW", "HWIO"), ("NCHW", "IOHW"), ("NHWC", "IOHW")]
COMPLETE: dict[str, Any] = {
    "strides": (1, 1),
    "padding": (0, 0, 0, 0),
    "dilation": (1, 1),
    "groups": 1,
    "data_layout": "NCHW",
    "kernel_layout": "OIHW",
}


def check_convolution(
    image: tuple[int, int, int, int],
    filters: int,
    window: tuple[int, int],
    attrs: dict[str, Any],
    dtype: str = "float32",
    *,
    relu: bool = False,
    symbolic: bool = False,
    num_threads: int = 1,
) -> None:
    """Check a convolution with a bias. The image is given as batch, channels, height, width."""
    attrs = COMPLETE | attrs
    n, c, h, w = image
    is_last = attrs["data_layout"] == "NHWC"
    groups: int = attrs["groups"]
    per_group = c // groups
    sizes = {"O": filters, "I": per_group, "H": window[0], "W": window[1]}
    weight_shape = tuple(sizes[letter] for letter in attrs["kernel_layout"])
    x = numbers((n, h, w, c) if is_last else image, dtype, 1)
    weight, bias = numbers(weight_shape, dtype, 2), numbers((filters,), dtype, 3)
    shown = "".join(f", {name}={value!r}" for name, value in attrs.items())
    lines = [f"p = R.nn.conv2d(x, w{shown})", f"s = R.nn.bias_add(p, b, axis={3 if is_last else 1})"]
    lines += ["r = R.nn.relu(s)"] if relu else []
    shape: list[object] = list(x.shape)
    if symbolic:
        shape = ["n", "h", "w", c] if is_last else ["n", c, "h", "w"]
    executable = build_layer(module_text({"x": shape, "w": weight_shape, "b": (filters,)}, dtype, lines))
    result = run_layer(executable, num_threads, x, weight, bias)
    added = bias.astype("float64") if is_last else bias.astype("float64").reshape(-1, 1, 1)
    exact = reference("nn.conv2d", x, weight, **attrs) + added
    magnitude = reference("nn.conv2d", abs(x), abs(weight), **attrs) + abs(added)
    judge(result, np.maximum(exact, 0) if relu else exact, magnitude, per_group * window[0] * window[1], dtype)


@pytest.mark.parametrize(("data_layout", "kernel_layout"), LAYOUTS)
@pytest.mark.parametrize(
    ("image", "filters", "window", "attrs"),
    [
        ((2, 16, 9, 8), 32, (3, 3), {"padding": (1, 1, 1, 1)}),
        ((1, 3, 30, 31), 8, (7, 7), {"padding": (3, 3, 3, 3), "strides": (2, 2)}),
        ((2, 6, 8, 9), 4, (1, 1), {}),
        ((2, 6, 8, 9), 4, (1, 1), {"groups": 2}),
        ((2, 6, 8, 9), 4, (1, 1), {"strides": (2, 2)}),
        ((2, 6, 8, 9), 4, (1, 1), {"padding": (1, 0, 0, 2)}),
        ((1, 12, 10, 9), 12, (3, 3), {"groups": 12, "padding": (1, 1, 1, 1)}),
        ((1, 12, 10, 9), 6, (3, 2), {"groups": 3, "dilation": (2, 3), "padding": (0, 2, 1, 0)}),
        ((0, 3, 5, 5), 4, (3, 3), {}),
        ((1, 4, 70, 70), 5, (3, 3), {"padding": (1, 1, 1, 1)}),  # several blocks of pixels
        ((1, 300, 12, 40), 7, (3, 3), {}),
    ],
)
def test_convolutions(
    image: tuple[int, int, int, int],
    filters: int,
    window: tuple[int, int],
    attrs: dict[str, Any],
    data_layout: str,
    kernel_layout: str,
) -> None:
    attrs = attrs | {"data_layout": data_layout, "kernel_layout": kernel_layout}
    check_convolution(image, filters, window, attrs)
    if (data_layout, kernel_layout) in LAYOUTS[:3:2]:
        check_convolution(image, filters, window, attrs, "float64", relu=True, symbolic=True)


@given(
    layouts=st.sampled_from(LAYOUTS),
    groups=st.sampled_from([1, 1, 2, 3]),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    relu=st.booleans(),
    symbolic=st.booleans(),
)
def test_convolutions_of_any_size(
    layouts: tuple[str, str],
    groups: int,
    sizes: tuple[int, int, int, int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, int, int, int],
    relu: bool,
    symbolic: bool,
) -> None:
    n, c, h, w, filters = sizes
    assume(h + padding[0] + padding[2] > dilation[0] * (window[0] - 1))
    assume(w + padding[1] + padding[3] > dilation[1] * (window[1] - 1))
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    attrs |= {"data_layout": layouts[0], "kernel_layout": layouts[1]}
    check_convolution((n, c * groups, h, w), filters * groups, window, attrs, relu=relu, symbolic=symbolic)


@pytest.mark.parametrize("num_threads", [2, 3])
@pytest.mark.parametrize("image", [(1, 16, 60, 60), (5, 16, 20, 20), (1, 64, 14, 14)])
@pytest.mark.parametrize("layouts", LAYOUTS[:3:2])
def test_convolutions_on_several_threads(
    num_threads: int, image: tuple[int, int, int, int], layouts: tuple[str, str]
) -> None:
    attrs = {"padding": (1, 1, 1, 1), "data_layout": layouts[0], "kernel_layout": layouts[1]}
    check_convolution(image, 32, (3, 3), attrs, num_threads=num_threads)
    check_convolution(image, 32, (3, 3), attrs, num_threads=num_threads, symbolic=True)


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1)])
def test_a_bias_for_each_channel_is_added_by_the_same_call(shape: tuple[int, ...]) -> None:
    operands = {"x": ("n", 3, 6, 6), "w": (4, 3, 3, 3), "b": shape}
    executable = build_layer(module_text(operands, "float32", ["p = R.nn.conv2d(x, w)", "s = R.add(p, b)"]))
    (module,) = executable.modules
    assert len([name for name in module.function_names if "step" in name]) == 1
    x, w, b = (numbers(sizes, "float32", k) for k, sizes in enumerate(((2, 3, 6, 6), (4, 3, 3, 3), shape)))
    result = run_layer(executable, 1, x, w, b)
    bias = b.astype("float64").reshape(4, 1, 1)
    exact, magnitude = (reference("nn.conv2d", *pair, **COMPLETE) for pair in ((x, w), (abs(x), abs(w))))
    judge(result, exact + bias, magnitude + abs(bias), 27, "float32")
