"""Quantisation in the loops of the ops before, and products of quantised tensors, computed on integers.

Integers are compared to the last bit. For quantised floats, the result must come from a quotient within the arithmetic
error of the exact quotient: the integer of the exact quotient, or a neighbouring integer if the quotient is this near
to a tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.steps import flatten
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.dims import symbol
from byoc_core.ir import Function, FunctionBuilder, TensorType, Value, tensor
from byoc_core.transform.byte_weights import to_bytes

from plugins.ccompiler.tests.bench import PORTABLE, WARNINGS, Bench
from plugins.ccompiler.tests.emulated_instructions import BYTE_FLAGS, emulate, need_processor

NDArray = npt.NDArray[Any]
UNIT = 2.0**-24
"""The unit roundoff of float32."""


def _kernels(bench: Bench, function: Function) -> list[list[str]]:
    module = prepare_regions([function], bench.constants, FAMILIES)
    return [[step.op for step in group.steps] for group in form_groups(flatten(module[function.name])[0], FAMILIES)]


def _draw(seed: int, shape: Sequence[int], dtype: str) -> NDArray:
    limits = np.iinfo(dtype)
    drawn: NDArray = np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return drawn


def _assert_quantised(actual: NDArray, quotient: NDArray, error: NDArray | float, zero: int) -> None:
    """Check integers against exact quotients, given the largest error before rounding."""
    limits = np.iinfo(actual.dtype)
    ends = [np.clip(np.rint(quotient + sign * error) + zero, limits.min, limits.max) for sign in (-1, 1)]
    assert np.all((ends[0] <= actual) & (actual <= ends[1]))
    assert np.mean(ends[0] == ends[1]) > 0.99  # or this would say nothing


@pytest.mark.parametrize("parameters", [(), (24,)])
@pytest.mark.parametrize("op", ["nn.conv2d", "nn.dense", "matmul"])
def test_quantise_is_part_of_the_epilogue_of_floats(bench: Bench, op: str, parameters: tuple[int, ...]) -> None:
    builder = bench.builder()
    rng = np.random.default_rng(0)
    shapes = {
        "nn.conv2d": ((2, 9, 8, 16), (24, 16, 3, 3)),
        "nn.dense": ((30, 16), (24, 16)),
        "matmul": ((30, 16), (16, 24)),
    }
    image, weight = (rng.standard_normal(shape, np.float32) for shape in shapes[op])
    x = builder.param("x", tensor(image.shape))
    attrs = {"data_layout": "NHWC", "padding": (1, 1)} if op == "nn.conv2d" else {}
    product = builder.emit(op, x, builder.const(weight), **attrs)
    scale = rng.uniform(0.05, 0.2, parameters).astype(np.float32)
    zero = np.full(parameters, -3, np.int8)
    quantised = builder.emit(
        "quantize", builder.emit("nn.relu", product), builder.const(scale), builder.const(zero), axis=-1
    )
    function = bench.add(builder, quantised)
    assert _kernels(bench, function) == [[op, "nn.relu", "quantize"]]
    (actual,) = bench.run(function, image)
    (exact,) = bench.reference(_alone(bench, op, weight, image.shape, attrs), image, wide=True)
    sizes = _alone(bench, op, np.abs(weight), image.shape, attrs)
    (magnitude,) = bench.reference(sizes, np.abs(image), wide=True)
    depth = weight[0].size if op != "matmul" else weight.shape[0]
    _assert_quantised(actual, np.maximum(exact, 0) / scale, (depth + 2) * UNIT * magnitude / scale, -3)


def _alone(bench: Bench, op: str, weight: NDArray, shape: Sequence[int | str], attrs: Mapping[str, object]) -> Function:
    builder = bench.builder()
    x = builder.param("x", tensor(shape))
    function: Function = bench.add(builder, builder.emit(op, x, builder.const(weight), **attrs))
    return function


def test_dequantise_and_quantise_share_the_loop_of_what_stands_between(bench: Bench) -> None:
    """A residual in the form of quantisation tools: a single loop, the same bits as op by op."""
    builder = bench.builder()
    shape = (3, 5, 24)
    x, y = (builder.param(name, TensorType(shape, dtype)) for name, dtype in (("x", "uint8"), ("y", "int8")))
    scale = builder.const(np.linspace(0.01, 0.3, 5, dtype=np.float32))
    left = builder.emit("dequantize", x, scale, builder.const(np.arange(5, dtype=np.uint8)), axis=1)
    right = builder.emit("dequantize", y, builder.const(np.float32(0.1)), builder.const(np.int8(7)))
    total = builder.emit("nn.relu", builder.emit("add", left, right))
    function = bench.add(
        builder, builder.emit("quantize", total, builder.const(np.float32(0.07)), builder.const(np.uint8(9)))
    )
    assert _kernels(bench, function) == [["dequantize", "dequantize", "add", "nn.relu", "quantize"]]
    inputs = (_draw(0, shape, "uint8"), _draw(1, shape, "int8"))
    np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


def test_weights_transposed_without_axes(bench: Bench) -> None:
    builder = bench.builder()
    x, array = builder.param("x", TensorType((5, 64), "uint8")), _draw(0, (32, 64), "int8")
    image = builder.emit("dequantize", x, builder.const(np.float32(0.5)), builder.const(np.uint8(3)))
    weight = builder.emit(
        "dequantize", builder.const(array), builder.const(np.float32(0.25)), builder.const(np.int8(0))
    )
    function = bench.add(builder, builder.emit("matmul", image, builder.emit("permute_dims", weight)))
    assert _kernels(bench, function) == [["ccompiler.byte_product", "cast", "multiply"]]
    integers = _draw(1, (5, 64), "uint8")
    exact = (integers.astype(np.float32) - 3) @ array.T.astype(np.float32) / 8
    np.testing.assert_array_equal(bench.run(function, integers)[0], exact)


def _centred(builder: FunctionBuilder, value: Value, zero: int | None) -> Value:
    wide = builder.bind("cast", [value], {"dtype": "int32"}).result
    return wide if zero is None else builder.bind("subtract", [wide, builder.const(np.int32(zero))], {}).result


SIZES = ((1, 1, 1), (5, 3, 17), (49, 147, 64), (7, 64, 65), (13, 130, 130), (1, 1030, 10), (3, 5000, 5), (0, 8, 8))
"""Rows, depth, columns."""


EMULATED, NEON, PLAIN = "emulated AVX-VNNI", "shapes of NEON", "without instructions for it"
HIDDEN = ("__SSE2__", "__AVX2__", "__AVXVNNI__", "__AVX512BW__", "__AVX512VNNI__")


@pytest.fixture(params=["native", "x86-64-v3", "generic", PLAIN, NEON, EMULATED, PORTABLE])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the options for compiling for a processor: this machine's, or an emulated processor."""
    name: str = request.param
    hidden = {"extra_flags": (*WARNINGS, *(f"-U{macro}" for macro in HIDDEN))}
    if name == EMULATED:
        monkeypatch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: cls(32, 16)))
        with emulate(BYTE_FLAGS):
            yield {"march": "x86-64-v3", "extra_flags": (*WARNINGS, *BYTE_FLAGS)}
    elif name == NEON:
        monkeypatch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: cls(16, 32)))
        yield {"march": "generic", **hidden}
    elif name == PLAIN:
        yield hidden
    else:
        need_processor(*(("avx2", "fma") if name == "x86-64-v3" else ()))
        yield {"march": name}


def test_integer_products_are_exact(target: dict[str, Any]) -> None:
    bench = Bench(**target)
    cases = []
    for number, (rows, depth, columns) in enumerate(SIZES):
        for dtype, zero in (("uint8", 131), ("int8", -5), ("uint8", None)):
            builder = bench.builder()
            x = builder.param("x", TensorType((rows, depth), dtype))
            weight = builder.const(_draw(number, (depth, columns), "int8"))
            total = builder.emit("matmul", _centred(builder, x, zero), _centred(builder, weight, None))
            cases.append((bench.add(builder, total), _draw(number, (rows, depth), dtype)))
    for function, inputs in cases:
        assert _kernels(bench, function) == [["ccompiler.byte_product"]]
        np.testing.assert_array_equal(bench.run(function, inputs)[0], bench.reference(function, inputs)[0])


@pytest.mark.parametrize("depth", [1 << 15, 1 << 16])
def test_the_largest_sums_have_room(bench: Bench, depth: int) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((2, depth), "uint8"))
    weight = builder.const(np.full((3, depth), -128, np.int8))
    function = bench.add(builder, builder.emit("nn.dense", _centred(builder, x, 0), _centred(builder, weight, None)))
    assert _kernels(bench, function) == [["ccompiler.byte_product"]]
    (actual,) = bench.run(function, np.full((2, depth), 255, np.uint8))
    assert np.all(actual == -128 * 255 * depth)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((2, 9, 7, 16), (24, 16, 3, 3), {"padding": (1, 1)}),
    "few channels": ((1, 13, 11, 3), (20, 3, 7, 7), {"padding": (3, 3), "strides": (2, 2)}),
    "uneven": ((1, 12, 9, 5), (70, 5, 3, 2), {"padding": (0, 2, 1, 0), "strides": (1, 2), "dilation": (2, 3)}),
    "pointwise": ((3, 5, 6, 33), (7, 33, 1, 1), {}),
    "pointwise with strides": ((1, 8, 9, 4), (16, 4, 1, 1), {"strides": (2, 3)}),
    "larger than the image": ((1, 2, 2, 8), (8, 8, 5, 5), {"padding": (2, 2)}),
    "no images": ((0, 5, 5, 8), (8, 8, 3, 3), {}),
}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_integer_convolutions_are_exact(bench: Bench, layout: str) -> None:
    cases = []
    for number, (shape, filter_, attrs) in enumerate(CONVOLUTIONS.values()):
        for dtype, zero in (("uint8", 131), ("int8", -5), ("int8", None)):
            own = shape if layout == "NHWC" else (shape[0], shape[3], *shape[1:3])
            builder = bench.builder()
            x = builder.param("x", TensorType(own, dtype))
            weight = _centred(builder, builder.const(_draw(number, filter_, "int8")), None)
            total = builder.emit("nn.conv2d", _centred(builder, x, zero), weight, data_layout=layout, **attrs)
            cases.append((bench.add(builder, total), _draw(number, own, dtype)))
    for function, inputs in cases:
        assert ["ccompiler.byte_conv2d"] in _kernels(bench, function)
        np.testing.assert_array_equal(bench.run(function, inputs)[0], bench.reference(function, inputs)[0])


@pytest.mark.parametrize("centre", [None, 131, "given"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_filters_less_a_zero_point_may_have_nine_bits(bench: Bench, layout: str, centre: int | str | None) -> None:
    """The sum of each window, borders included, is a convolution with a filter of ones."""
    cases = []
    for number, (shape, filter_, attrs) in enumerate(CONVOLUTIONS.values()):
        own = shape if layout == "NHWC" else (shape[0], shape[3], *shape[1:3])
        for zero in (131, (np.arange(filter_[0]) * 11 % 256).reshape(-1, 1, 1, 1)):
            builder = bench.builder()
            x = builder.param("x", TensorType(own, "uint8"))
            left = builder.emit("cast", x, dtype="int32")
            if centre is not None:
                is_given = centre == "given"
                point = builder.param("zero", TensorType((), "uint8")) if is_given else builder.const(np.uint8(centre))
                left = builder.emit("subtract", left, builder.emit("cast", point, dtype="int32"))
            wide = (_draw(number, filter_, "uint8").astype(np.int32) - zero).astype(np.int32)
            total = builder.emit("nn.conv2d", left, builder.const(wide), data_layout=layout, **attrs)
            cases.append((bench.add(builder, total), _draw(number, own, "uint8"), to_bytes(wide, 0) is not None))
    assert sum(is_taken for *_, is_taken in cases) >= len(CONVOLUTIONS)
    for function, image, is_taken in cases:
        assert any(steps[0] == "ccompiler.byte_conv2d" for steps in _kernels(bench, function)) == is_taken
        inputs = (image, np.asarray(200, np.uint8)) if centre == "given" else (image,)
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


def test_sizes_may_be_symbolic(bench: Bench) -> None:
    builder = bench.builder()
    height = symbol("h")
    x = builder.param("x", TensorType((symbol("n"), height, 6, 8), "uint8"))
    weight = _centred(builder, builder.const(_draw(0, (8, 8, 3, 3), "int8")), None)
    total = builder.emit("nn.conv2d", _centred(builder, x, 3), weight, data_layout="NHWC", padding=(1, 1))
    rows = _centred(builder, builder.const(_draw(1, (8, 20), "int8")), None)
    product = builder.emit("matmul", _centred(builder, x, 3), rows)
    function = bench.add(builder, total, product)
    assert _kernels(bench, function) == [["ccompiler.byte_conv2d"], ["ccompiler.byte_product"]]
    for shape in ((2, 5, 6, 8), (0, 5, 6, 8), (1, 1, 6, 8), (3, 19, 6, 8)):
        array = _draw(2, shape, "uint8")
        for actual, expected in zip(bench.run(function, array), bench.reference(function, array), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_a_zero_point_may_be_an_input_of_a_product(bench: Bench) -> None:
    builder = bench.builder()
    x, zero = builder.param("x", TensorType((9, 30), "uint8")), builder.param("zero", TensorType((), "uint8"))
    centred = builder.emit(
        "subtract", builder.emit("cast", x, dtype="int32"), builder.emit("cast", zero, dtype="int32")
    )
    weight = _centred(builder, builder.const(_draw(0, (30, 20), "int8")), None)
    function = bench.add(builder, builder.emit("matmul", centred, weight))
    assert ["ccompiler.byte_product", "subtract"] in _kernels(bench, function)
    for centre in (0, 77, 255):
        inputs = (_draw(1, (9, 30), "uint8"), np.asarray(centre, np.uint8))
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


WEIGHT_ZEROS: dict[str, Any] = {
    "of all": 131,
    "of each column": (np.arange(20) * 13) % 256,
    "of each row": (np.arange(30) * 8)[:, None],
}


@pytest.mark.parametrize("centre", [None, 77, "given"])
@pytest.mark.parametrize("kind", WEIGHT_ZEROS)
@pytest.mark.parametrize("stack", [(9,), (3, 1, 5), ("n",)])
def test_weights_less_a_zero_point_may_have_nine_bits(
    bench: Bench, stack: tuple[int | str, ...], kind: str, centre: int | str | None
) -> None:
    """Weights without a sign reach from -131 to 124, from -255 to 255 between columns, and as far within a column."""
    builder = bench.builder()
    weight = _draw(0, (30, 20), "uint8")
    wide = (weight.astype(np.int32) - WEIGHT_ZEROS[kind]).astype(np.int32)
    x = builder.param("x", TensorType((*map(_size, stack), 30), "uint8"))
    left = builder.emit("cast", x, dtype="int32")
    if centre is not None:
        zero = builder.param("zero", TensorType((), "uint8")) if centre == "given" else builder.const(np.uint8(centre))
        left = builder.emit("subtract", left, builder.emit("cast", zero, dtype="int32"))
    function = bench.add(builder, builder.emit("matmul", left, builder.const(wide)))
    is_taken = any(steps[0] == "ccompiler.byte_product" for steps in _kernels(bench, function))
    assert is_taken == (to_bytes(wide, 1) is not None)
    assert is_taken or kind == "of each row"
    array = _draw(1, (*(4 if isinstance(size, str) else size for size in stack), 30), "uint8")
    for point in (0, 200) if centre == "given" else (None,):
        inputs = (array,) if point is None else (array, np.asarray(point, np.uint8))
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


def _size(size: int | str) -> Any:
    return symbol(size) if isinstance(size, str) else size


@pytest.mark.parametrize("depth", [1 << 15, 1 << 16])
def test_the_largest_sums_of_nine_bits_have_room(bench: Bench, depth: int) -> None:
    """Beyond 2**15 rows the sums of floats remain: sums of integers may need 33 bits."""
    builder = bench.builder()
    const = builder.const
    x = builder.param("x", TensorType((1, depth), "uint8"))
    left = builder.emit("dequantize", x, const(np.float32(1)), const(np.uint8(0)))
    weight = const(np.full((3, depth), 255, np.uint8))
    right = builder.emit("dequantize", weight, const(np.float32(1)), const(np.uint8(0)))
    function = bench.add(builder, builder.emit("nn.dense", left, right))
    is_taken = any(steps[0] == "ccompiler.byte_product" for steps in _kernels(bench, function))
    assert is_taken == (depth == 1 << 15)
    (actual,) = bench.run(function, np.full((1, depth), 255, np.uint8))
    exact = 255.0 * 255 * depth
    assert np.all(abs(actual - exact) <= (1 if is_taken else depth) * UNIT * exact)


class _Floats:
    """A product of dequantised tensors in the form of quantisation tools, with a bias, ReLU and quantise."""

    def __init__(self, op: str, *, per_channel: bool, signed: bool = False) -> None:
        self.op = op
        self.dtype, self.zero = ("int8", -17) if signed else ("uint8", 120)
        shapes = {
            "nn.conv2d": ((2, 16, 9, 8), (24, 16, 3, 3)),
            "nn.dense": ((5, 30, 40), (24, 40)),
            "matmul": ((5, 30, 40), (40, 24)),
        }
        self.shape, filter_ = shapes[op]
        self.weight = _draw(0, filter_, "int8")
        rng = np.random.default_rng(1)
        self.scale = np.float32(0.037)
        self.weight_scale = rng.uniform(1e-3, 2e-3, (24,) if per_channel else ()).astype(np.float32)
        self.bias = rng.integers(-2000, 2000, 24, "int32")
        self.out_scale, self.out_zero = np.float32(0.05), 100

    def add(self, bench: Bench) -> Function:
        builder = bench.builder()
        const = builder.const
        x = builder.param("x", TensorType(self.shape, self.dtype))
        zero = const(np.asarray(self.zero, self.dtype))
        axis = 1 if self.op == "matmul" else 0
        weight_zero = const(np.zeros(self.weight_scale.shape, np.int8))
        operands = (
            builder.emit("dequantize", x, const(self.scale), zero),
            builder.emit("dequantize", const(self.weight), const(self.weight_scale), weight_zero, axis=axis),
        )
        attrs = {"padding": (1, 1)} if self.op == "nn.conv2d" else {}
        scales = np.broadcast_to(self.scale * self.weight_scale, (24,)).astype(np.float32)
        bias = builder.emit("dequantize", const(self.bias), const(scales), const(np.zeros(24, np.int32)), axis=0)
        channel = 1 if self.op == "nn.conv2d" else -1
        total = builder.emit("nn.bias_add", builder.emit(self.op, *operands, **attrs), bias, axis=channel)
        out = (const(self.out_scale), const(np.uint8(self.out_zero)))
        function: Function = bench.add(builder, builder.emit("quantize", builder.emit("nn.relu", total), *out))
        return function


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("op", ["nn.conv2d", "nn.dense", "matmul"])
def test_products_of_dequantised_tensors_are_those_of_integers(
    bench: Bench, op: str, per_channel: bool, signed: bool
) -> None:
    case = _Floats(op, per_channel=per_channel, signed=signed)
    function = case.add(bench)
    kind = "ccompiler.byte_conv2d" if op == "nn.conv2d" else "ccompiler.byte_product"
    assert [kind, "cast", "multiply", "nn.bias_add", "nn.relu", "quantize"] in _kernels(bench, function)
    array = _draw(3, case.shape, case.dtype)
    (actual,) = bench.run(function, array)
    real, size = _exact(case, array)
    # Roundings: the sum as a float, the factor, their product, the bias (two), the sum with it; then the quotient.
    error = 6 * UNIT * size + UNIT * np.abs(real)
    _assert_quantised(actual, np.maximum(real, 0) / case.out_scale, error * 1.001 / case.out_scale, case.out_zero)


def _exact(case: _Floats, array: NDArray) -> tuple[NDArray, NDArray]:
    """Return the exact result before quantisation, and the sum of the magnitudes of product and bias."""
    steps, weight = array.astype(np.int64) - case.zero, case.weight.astype(np.int64)
    factor = np.float64(case.scale) * np.broadcast_to(case.weight_scale, (24,)).astype(np.float64)
    bias = factor * case.bias
    if case.op == "nn.conv2d":
        padded = np.pad(steps, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        sums = np.einsum("nchwyx,ocyx->nohw", windows, weight)
        factor, bias = factor[:, None, None], bias[:, None, None]
    else:
        sums = steps @ (weight if case.op == "matmul" else weight.T)
    return sums * factor + bias, np.abs(sums * factor) + np.abs(bias)


def test_transposed_weights_and_flattened_images_are_seen_through(bench: Bench) -> None:
    builder = bench.builder()
    const = builder.const
    x = builder.param("x", TensorType((4, 3, 5), "int8"))
    real = builder.emit("dequantize", x, const(np.float32(0.5)), const(np.int8(0)))
    flat = builder.emit("reshape", real, shape=(4, 15))
    scales, zeros = np.full(6, 0.25, np.float32), np.zeros(6, np.int8)
    weight = builder.emit("dequantize", const(_draw(0, (6, 15), "int8")), const(scales), const(zeros), axis=0)
    function = bench.add(builder, builder.emit("matmul", flat, builder.emit("permute_dims", weight, axes=(1, 0))))
    assert ["ccompiler.byte_product", "cast", "multiply"] in _kernels(bench, function)
    array = _draw(1, (4, 3, 5), "int8")
    # Powers of two: floats are exact as well.
    np.testing.assert_array_equal(bench.run(function, array)[0], bench.reference(function, array)[0])


@pytest.mark.parametrize("parameters", [(), (6,)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_of_any_zero_point_are_multiplied_as_integers(
    bench: Bench, dtype: str, parameters: tuple[int, ...]
) -> None:
    zero = _draw(5, parameters, dtype)
    scale = np.full(parameters, 0.25, np.float32)
    function = _with_parameters(bench, weight=_draw(0, (8, 6), dtype), weight_zero=zero, weight_scale=scale)
    assert any(steps[0] == "ccompiler.byte_product" for steps in _kernels(bench, function))
    array = _draw(1, (8, 8), "uint8")
    # Powers of two: floats are exact as well.
    np.testing.assert_array_equal(bench.run(function, array)[0], bench.reference(function, array)[0])


def _with_parameters(bench: Bench, **changes: object) -> Function:
    """A product of dequantised matrices with some other parameters."""
    parameters: dict[str, Any] = {
        "scale": np.float32(0.5),
        "zero": np.uint8(3),
        "weight": _draw(0, (8, 6), "int8"),
        "weight_scale": np.float32(0.25),
        "weight_zero": np.int8(0),
        "axis": 1,
    }
    parameters |= changes
    builder = bench.builder()
    operands = {name: builder.const(value) if name != "axis" else value for name, value in parameters.items()}
    x = builder.param("x", TensorType((8, 8), "uint8"))
    left = builder.emit("dequantize", x, operands["scale"], operands["zero"], axis=1)
    right = builder.emit(
        "dequantize", operands["weight"], operands["weight_scale"], operands["weight_zero"], axis=parameters["axis"]
    )
    function: Function = bench.add(builder, builder.emit("matmul", left, right))
    return function


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": np.full(8, 0.5, np.float32), "zero": np.full(8, 3, np.uint8)},
        {"weight_zero": np.zeros(6, np.int8), "weight_scale": np.full(6, 2.0**-140, np.float32)},
        {"weight_scale": np.full(8, 0.25, np.float32), "weight_zero": np.zeros(8, np.int8), "axis": 0},
        {"weight_scale": np.float32(2.0**-140)},
        {"weight_scale": np.float32(np.inf)},
    ],
    ids=["each column its scale", "no normal factors", "each row its scale", "no normal factor", "infinite"],
)
def test_what_integers_do_not_give_stays_with_floats(bench: Bench, changes: dict[str, Any]) -> None:
    function = _with_parameters(bench, **changes)
    assert all(steps[0] != "ccompiler.byte_product" for steps in _kernels(bench, function))
    array = _draw(1, (8, 8), "uint8")
    with np.errstate(invalid="ignore"):
        (expected,) = bench.reference(function, array)
    np.testing.assert_array_equal(bench.run(function, array)[0], expected)


def test_layers_hand_bytes_to_one_another(bench: Bench) -> None:
    """Between quantised convolutions nothing but bytes reaches memory: a kernel for each."""
    builder = bench.builder()
    const = builder.const
    value: Value = builder.param("x", TensorType((1, 10, 10, 8), "uint8"))
    for seed, (into, out) in enumerate(pairwise((8, 16, 12, 8))):
        real = builder.emit("dequantize", value, const(np.float32(0.5)), const(np.uint8(10)))
        weight = builder.emit(
            "dequantize", const(_draw(seed, (out, into, 3, 3), "int8")), const(np.float32(2**-8)), const(np.int8(0))
        )
        total = builder.emit("nn.conv2d", real, weight, data_layout="NHWC")
        value = builder.bind("quantize", [total, const(np.float32(4)), const(np.uint8(128))], {}).result
    function = bench.add(builder, value)
    assert _kernels(bench, function) == [["ccompiler.byte_conv2d", "cast", "multiply", "quantize"]] * 3
    array = _draw(9, (1, 10, 10, 8), "uint8")
    np.testing.assert_array_equal(bench.run(function, array)[0], bench.reference(function, array)[0])
