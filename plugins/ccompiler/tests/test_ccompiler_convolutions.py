"""Convolutions of all layouts and geometries against a float64 oracle, with the bound of Higham, ch. 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, assert_sum


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(function: Function, actual: NDArray, x: NDArray, w: NDArray) -> None:
    """Check the result of a function of a single convolution against the reference kernel in float64."""
    (binding,) = function.bindings
    kernel = binding.op.kernel
    assert kernel is not None
    wide = [array.astype("float64") for array in (x, w)]
    oracle = np.asarray(kernel(*wide, **binding.attrs))
    magnitude = np.asarray(kernel(*map(np.abs, wide), **binding.attrs))
    assert_sum(actual, oracle, magnitude, int(np.prod(w.shape[1:])))


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
    "empty batch, a large filter": ((0, 6, 8, 600), (34, 600, 3, 3), {"padding": (1, 1)}),
    "empty batch": ((0, 5, 5, 4), (5, 4, 3, 3), {}),
    "one output channel": ((2, 7, 7, 4), (1, 4, 3, 3), {}),
}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channels_last(dtype: str, march: str) -> None:
    bench = Bench(march=march, winograd="off")
    functions = []
    for x, w, attrs in CHANNELS_LAST.values():
        for is_constant in (True, False):
            builder = bench.builder()
            image = builder.param("x", tensor(x, dtype))
            weight = builder.const(_random(w, dtype, 1)) if is_constant else builder.param("w", tensor(w, dtype))
            functions.append(bench.add(builder, builder.emit("nn.conv2d", image, weight, data_layout="NHWC", **attrs)))
    for function, (x, w, _) in zip(functions, [case for case in CHANNELS_LAST.values() for _ in range(2)], strict=True):
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, *inputs[: len(function.params)])
        _check(function, actual, *inputs)


@st.composite
def _geometries(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Draw an op, the shapes of image and filter, and the attributes."""
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
    st.sampled_from(["generic", "x86-64-v3", "native", PORTABLE]),
)
def test_any_geometry(cases: list[tuple[Any, bool]], dtype: str, march: str) -> None:
    bench = Bench(march=march, opt_level=MEANING, winograd="off")
    functions = []
    for (op, x, w, attrs), is_constant in cases:
        builder = bench.builder()
        image = builder.param("x", tensor(x, dtype))
        weight = builder.const(_random(w, dtype, 1)) if is_constant else builder.param("w", tensor(w, dtype))
        functions.append((bench.add(builder, builder.emit(op, image, weight, **attrs)), x, w))
    for function, x, w in functions:
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, *inputs[: len(function.params)])
        _check(function, actual, *inputs)


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
def test_integers_wrap_around(bench: Bench, dtype: str) -> None:
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
        np.testing.assert_array_equal(actual, np.asarray(exact).astype(dtype))


def test_symbolic_images() -> None:
    bench = Bench(winograd="off")
    attrs: list[dict[str, Any]] = [
        {},
        {"padding": (1, 1)},
        {"strides": (2, 2), "padding": (1, 0, 2, 1)},
        {"groups": 2, "padding": (1, 1)},
    ]
    functions = []
    for channels in (3, 18):
        for options in attrs:
            groups = options.get("groups", 1)
            weight = _random((10, channels // groups, 3, 3), seed=1)
            if channels % groups == 0:
                builder = bench.builder()
                x = builder.param("x", tensor(("n", "h", "w", channels)))
                value = builder.emit("nn.conv2d", x, builder.const(weight), data_layout="NHWC", **options)
                functions.append((bench.add(builder, value), channels, weight))
    builder = bench.builder()
    x = builder.param("x", tensor(("n", "h", "w", 18)))
    pointwise = _random((40, 18, 1, 1), seed=1)
    functions.append((bench.add(builder, builder.emit("nn.conv2d", x, pointwise, data_layout="NHWC")), 18, pointwise))
    for function, channels, weight in functions:
        for n, h, w in ((2, 13, 12), (1, 3, 3), (3, 40, 5), (0, 4, 4)):
            image = _random((n, h, w, channels))
            (actual,) = bench.run(function, image)
            _check(function, actual, image, weight)


def test_one_axis_channels_last() -> None:
    bench = Bench()
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        ((2, 50, 20), (40, 20, 3), {"padding": (1, 1)}),
        ((1, "w", 20), (33, 20, 5), {"strides": (2,), "dilation": (2,)}),
        ((1, 80, 2), (8, 2, 10), {"strides": (5,), "padding": (4, 3)}),
        ((2, 9, 20), (8, 20, 1), {}),
        ((2, 9, 20), (8, 10, 2), {"groups": 2, "kernel_layout": "OIW"}),
    ]
    functions = []
    for shape, weight, attrs in cases:
        types = [tensor(shape), tensor(weight)]
        functions.append(bench.op("nn.conv1d", types, data_layout="NWC", **attrs))
    for function, (shape, weight, _) in zip(functions, cases, strict=True):
        inputs = [_random([23 if size == "w" else size for size in shape]), _random(weight, seed=1)]
        (actual,) = bench.run(function, *inputs)
        _check(function, actual, *inputs)


@pytest.mark.parametrize("groups", [1, 2])
def test_what_follows_is_computed_on_the_sums(groups: int) -> None:
    """A bias, a residual, an activation and a comparison, with two needed results."""
    bench = Bench(winograd="off")
    x, weight, bias = _random((2, 7, 9, 20)), _random((70, 20 // groups, 3, 3), seed=1), _random(70, seed=2)
    residual = _random((2, 7, 9, 70), seed=3)
    builder = bench.builder()
    image, other = builder.param("x", tensor(x.shape)), builder.param("residual", tensor(residual.shape))
    sums = builder.emit("nn.conv2d", image, builder.const(weight), padding=(1, 1), groups=groups, data_layout="NHWC")
    total = builder.emit("add", builder.emit("nn.bias_add", sums, builder.const(bias), axis=3), other)
    function = bench.add(builder, builder.emit("nn.relu", total), builder.emit("greater", total, builder.const(_ZERO)))
    relu, is_positive = bench.run(function, x, residual)
    assert bench.module.get_source("c").count("/* nn.conv2d, nn.bias_add, add, nn.relu, greater */") == 1
    (binding, *_) = function.bindings
    assert binding.op.kernel is not None
    wide = [array.astype("float64") for array in (x, weight)]
    exact = binding.op.kernel(*wide, **binding.attrs) + bias.astype("float64") + residual
    terms = np.abs(bias) + np.abs(residual) + binding.op.kernel(*map(np.abs, wide), **binding.attrs)
    count = 20 // groups * 9 + 2
    bound = count * 2.0**-24 / (1 - count * 2.0**-24) * terms
    assert np.all(np.abs(relu - np.maximum(exact, 0)) <= bound)
    is_certain = np.abs(exact) > bound
    np.testing.assert_array_equal(is_positive[is_certain], (exact > 0)[is_certain])
    np.testing.assert_array_equal(is_positive, relu > 0)


_ZERO = np.float32(0)


@pytest.mark.parametrize("window", [1, 3])
def test_parts_of_larger_images_are_read_and_written_where_they_lie(window: int) -> None:
    """As in an inception module: each half of the channels is convolved, the results are side by side."""
    bench = Bench(winograd="off")
    builder = bench.builder()
    image = builder.param("x", tensor((2, 7, 9, 40)))
    parts = builder.bind("split", [image], {"sections": (24, 16), "axis": 3}).results
    weights = [_random((33, 24, window, window), seed=1), _random((7, 16, window, window), seed=2)]
    padding = (window // 2, window // 2)
    results = [
        builder.emit("nn.relu", builder.emit("nn.conv2d", part, builder.const(w), padding=padding, data_layout="NHWC"))
        for part, w in zip(parts, weights, strict=True)
    ]
    function = bench.add(builder, builder.emit("concat", *results, axis=3))
    x = _random((2, 7, 9, 40))
    (actual,) = bench.run(function, x)
    assert bench.module.get_source("c").count("/* nn.conv2d, nn.relu */") == 2
    assert "/* permute_dims */" not in bench.module.get_source("c")
    (kernel,) = {binding.op.kernel for binding in function.bindings if binding.op.name == "nn.conv2d"}
    assert kernel is not None
    attrs = next(binding.attrs for binding in function.bindings if binding.op.name == "nn.conv2d")
    for part, weight, result in zip(
        (x[..., :24], x[..., 24:]), weights, (actual[..., :33], actual[..., 33:]), strict=True
    ):
        wide = [array.astype("float64") for array in (part, weight)]
        oracle, magnitude = kernel(*wide, **attrs), kernel(*map(np.abs, wide), **attrs)
        assert_sum(result, np.maximum(oracle, 0), np.asarray(magnitude), int(np.prod(weight.shape[1:])))


def test_the_first_layer_reads_channels_first_as_they_are() -> None:
    """The image is copied anyway, padded with zeros: no separate kernel transposes it."""
    bench = Bench()
    function = bench.op("nn.conv2d", [tensor((2, 3, 30, 29)), tensor((8, 3, 7, 7))], strides=(2, 2), padding=(3, 3))
    inputs = [_random((2, 3, 30, 29)), _random((8, 3, 7, 7), seed=1)]
    (actual,) = bench.run(function, *inputs)
    _check(function, actual, *inputs)
    assert bench.module.get_source("c").count("/* permute_dims */") == 1  # of the result


def test_constant_filters_are_packed_and_equal_shapes_share_code() -> None:
    sources, weights = [], [_random((64, 64, 3, 3), seed=seed) for seed in range(4)]
    for count in (1, 4):
        bench = Bench(winograd="off")
        builder = bench.builder()
        value = builder.param("x", tensor((1, 14, 14, 64)))
        constants = [builder.const(weight) for weight in weights[:count]]
        for weight in constants:
            value = builder.emit("nn.conv2d", value, weight, padding=(1, 1), data_layout="NHWC")
        function = bench.add(builder, value)
        sources.append(bench.module.get_source("c"))
        assert len(bench.calls(function)) == count
        assert len(set(bench.calls(function))) == 1
        assert not {constant.digest for constant in constants} & set(bench.module.constants)
        assert sum(array.nbytes for array in bench.module.constants.values()) == count * weights[0].nbytes
    for shared in ("static BYOC_CONTRACTED void", "static inline void byoc_shared_windows_"):
        counts = [source.count(shared) for source in sources]
        assert counts[0] == counts[1] > 0
