"""Convolutions of all layouts and geometries against a float64 oracle, with the bound of Higham, ch. 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Function, tensor


def _random(shape: Any, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(sum_check: Any, function: Function, actual: Any, x: Any, w: Any) -> None:
    """Holds the result of a function of one convolution to the reference kernel in float64."""
    (binding,) = function.bindings
    kernel = binding.op.kernel
    assert kernel is not None
    wide = [array.astype("float64") for array in (x, w)]
    oracle = kernel(*wide, **binding.attrs)
    magnitude = kernel(*map(np.abs, wide), **binding.attrs)
    sum_check(actual, oracle, magnitude, int(np.prod(w.shape[1:])))


CHANNELS_LAST: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "pointwise": ((1, 9, 11, 17), (40, 17, 1, 1), {}),
    "pointwise, strided": ((2, 9, 8, 5), (33, 5, 1, 1), {"strides": (2, 3)}),
    "pointwise, padded": ((1, 4, 3, 20), (6, 20, 1, 1), {"padding": (1, 0, 2, 1)}),
    "a line of taps": ((2, 6, 7, 20), (5, 20, 1, 3), {"padding": (0, 1)}),
    "padded": ((2, 9, 11, 18), (70, 18, 3, 3), {"padding": (1, 1)}),
    "uneven padding": ((1, 9, 11, 18), (5, 18, 3, 2), {"padding": (0, 1, 2, 3)}),
    "padding beyond the filter": ((1, 2, 3, 18), (5, 18, 2, 2), {"padding": (4, 3)}),
    "strided": ((2, 13, 12, 17), (10, 17, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "strides of two kinds": ((1, 13, 17, 17), (6, 17, 3, 5), {"strides": (1, 3), "padding": (1, 2)}),
    "dilated and strided": ((1, 15, 15, 4), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 2), "strides": (3, 2)}),
    "first layer": ((2, 30, 29, 3), (20, 3, 7, 7), {"strides": (2, 2), "padding": (3, 3)}),
    "first layer, one channel": ((2, 12, 11, 1), (6, 1, 5, 5), {"padding": (2, 2)}),
    "first layer, dilated down": ((1, 12, 11, 3), (6, 3, 3, 3), {"dilation": (2, 1), "padding": (1, 2, 3, 0)}),
    "first layer, not padded": ((2, 12, 11, 3), (6, 3, 11, 11), {}),
    "groups": ((2, 9, 9, 12), (9, 4, 3, 3), {"groups": 3, "padding": (1, 1)}),
    "wide groups": ((1, 5, 9, 40), (72, 20, 3, 3), {"groups": 2}),
    "pointwise groups": ((1, 9, 9, 12), (8, 3, 1, 1), {"groups": 4}),
    "depthwise": ((1, 9, 9, 20), (20, 1, 3, 3), {"groups": 20, "padding": (1, 1)}),
    "long sums": ((1, 4, 5, 700), (20, 700, 1, 1), {}),
    "long sums of taps": ((1, 4, 5, 130), (20, 130, 3, 3), {"padding": (1, 1)}),
    "a large filter": ((2, 6, 8, 600), (34, 600, 3, 3), {"padding": (1, 1)}),
    "many taps": ((1, 90, 91, 2), (3, 2, 90, 90), {"padding": (1, 1), "dilation": (1, 1)}),
    "many taps of many channels": ((1, 34, 36, 17), (3, 17, 33, 33), {"padding": (1, 1)}),
    "one pixel": ((1, 3, 3, 4), (5, 4, 3, 3), {}),
    "empty batch": ((0, 5, 5, 4), (5, 4, 3, 3), {}),
    "one output channel": ((2, 7, 7, 4), (1, 4, 3, 3), {}),
}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channels_last(make_bench: Any, sum_check: Any, dtype: str, march: str) -> None:
    bench = make_bench(march=march)
    made = []
    for x, w, attrs in CHANNELS_LAST.values():
        for is_constant in (True, False):
            builder = bench.builder()
            image = builder.param("x", tensor(x, dtype))
            weight = builder.const(_random(w, dtype, 1)) if is_constant else builder.param("w", tensor(w, dtype))
            made.append(bench.add(builder, builder.emit("nn.conv2d", image, weight, data_layout="NHWC", **attrs)))
    for function, (x, w, _) in zip(made, [case for case in CHANNELS_LAST.values() for _ in range(2)], strict=True):
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, *inputs[: len(function.params)])
        _check(sum_check, function, actual, *inputs)


@st.composite
def _geometries(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Draws an op, the shapes of image and filter, and the attributes."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    is_transposed = draw(st.booleans()) if rank != 2 else draw(st.sampled_from([False, False, True]))
    letters = "DHW"[-rank:]

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    window, strides, dilation, before, after = each(1, 4), each(1, 3), each(1, 2), each(0, 3), each(0, 3)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    sizes = {"N": draw(st.integers(0, 2)), "C": groups * draw(st.sampled_from([1, 2, 3, 7, 16, 19]))}
    out = groups * draw(st.sampled_from([1, 2, 5, 16, 33, 67]))
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(window, dilation, strict=True)]
    for axis, letter in enumerate(letters):
        around = before[axis] + after[axis]
        least = max(1, reach[axis] - around)
        if is_transposed:
            least = 1 + max(0, around + 1 - reach[axis])
        sizes[letter] = draw(st.integers(least, least + 8))
    attrs: dict[str, Any] = {"strides": strides, "dilation": dilation, "padding": (*before, *after), "groups": groups}
    attrs["data_layout"] = draw(st.sampled_from([f"NC{letters}", f"N{letters}C", f"N{letters}C"]))
    attrs["kernel_layout"] = draw(st.sampled_from([f"OI{letters}", f"IO{letters}", f"{letters}IO"]))
    filter_sizes = {"O": out, "I": sizes["C"] // groups, **dict(zip(letters, window, strict=True))}
    if is_transposed:
        filter_sizes.update(O=out // groups, I=sizes["C"])
    image = tuple(sizes[axis] for axis in attrs["data_layout"])
    weight = tuple(filter_sizes[axis] for axis in attrs["kernel_layout"])
    return f"nn.conv{rank}d{'_transpose' if is_transposed else ''}", image, weight, attrs


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(_geometries(), st.booleans()), min_size=4, max_size=6),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["generic", "x86-64-v3", "native"]),
)
def test_any_geometry(make_bench: Any, sum_check: Any, cases: Any, dtype: str, march: str) -> None:
    bench = make_bench(march=march, opt_level=1)
    made = []
    for (op, x, w, attrs), is_constant in cases:
        builder = bench.builder()
        image = builder.param("x", tensor(x, dtype))
        weight = builder.const(_random(w, dtype, 1)) if is_constant else builder.param("w", tensor(w, dtype))
        made.append((bench.add(builder, builder.emit(op, image, weight, **attrs)), x, w))
    for function, x, w in made:
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, *inputs[: len(function.params)])
        _check(sum_check, function, actual, *inputs)


ALL_KINDS: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("nn.conv1d", (2, 4, 70), (6, 2, 3), {"groups": 2, "padding": (1, 1)}),
    ("nn.conv1d", (2, 70, 4), (6, 4, 3), {"data_layout": "NWC", "strides": (2,)}),
    ("nn.conv2d", (2, 4, 9, 70), (6, 4, 3, 2), {"strides": (2, 3), "dilation": (1, 2), "padding": (1, 0, 2, 3)}),
    ("nn.conv2d", (2, 9, 8, 4), (70, 4, 3, 2), {"data_layout": "NHWC", "padding": (1, 1)}),
    ("nn.conv3d", (1, 4, 5, 6, 7), (6, 2, 3, 2, 3), {"groups": 2, "padding": (1, 1, 1)}),
    ("nn.conv3d", (1, 5, 6, 7, 4), (3, 2, 3, 4, 70), {"data_layout": "NDHWC", "kernel_layout": "DHWIO"}),
    ("nn.conv1d_transpose", (2, 4, 50), (4, 3, 5), {"groups": 2, "strides": (3,), "padding": (2, 1)}),
    ("nn.conv1d_transpose", (2, 50, 4), (4, 3, 5), {"data_layout": "NWC", "strides": (2,), "output_padding": (1,)}),
    ("nn.conv2d_transpose", (2, 4, 5, 40), (4, 6, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    ("nn.conv2d_transpose", (2, 5, 6, 4), (4, 3, 3, 3), {"data_layout": "NHWC", "groups": 2, "dilation": (2, 3)}),
    ("nn.conv3d_transpose", (1, 4, 3, 4, 5), (4, 6, 2, 3, 2), {"strides": (2, 1, 2), "padding": (1, 0, 1)}),
    ("nn.conv3d_transpose", (1, 3, 4, 5, 4), (4, 6, 2, 3, 2), {"data_layout": "NDHWC", "strides": (1, 2, 3)}),
]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_integers_wrap_around(bench: Any, dtype: str) -> None:
    functions = [bench.op(op, [tensor(x, dtype), tensor(w, dtype)], **attrs) for op, x, w, attrs in ALL_KINDS]
    limits = np.iinfo(dtype)
    for function, (_, x, w, _) in zip(functions, ALL_KINDS, strict=True):
        rng = np.random.default_rng(0)
        inputs = [rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in (x, w)]
        (actual,) = bench.run(function, *inputs)
        (binding,) = function.bindings
        assert binding.op.kernel is not None
        # Modulo 2**64 first and then modulo 2**bits is modulo 2**bits.
        exact = binding.op.kernel(*(array.astype("int64") for array in inputs), **binding.attrs)
        np.testing.assert_array_equal(actual, exact.astype(dtype))
