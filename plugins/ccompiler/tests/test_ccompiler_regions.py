"""The rewrites of regions: halves through float32, channels last, recognised ops."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_core.ir import Function, FunctionBuilder, TensorType, Value

from plugins.ccompiler.tests.bench import Bench

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def _emit(builder: FunctionBuilder, op: str, *operands: Value, **attrs: object) -> Value:
    (result,) = builder.bind(op, operands, attrs).results
    return result


def _count(bench: Bench, function: Function) -> Counter[str]:
    module = prepare_regions([function], bench.constants, FAMILIES)
    return Counter(binding.op.name for binding in module.functions[function.name].bindings)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_each_op_on_halves_rounds_its_result_once(bench: Bench, dtype: str) -> None:
    """The chain of ops in a single loop gives the bits of the reference op by op."""
    builder = bench.builder()
    x, y = (builder.param(name, TensorType((5, 33), dtype)) for name in "xy")
    total = _emit(builder, "add", _emit(builder, "multiply", x, y), x)
    parts = builder.bind("split", [total], {"sections": (30, 3), "axis": 1}).results
    largest = _emit(builder, "max", total, axis=(1,))
    function = bench.add(builder, *parts, _emit(builder, "less", x, y), _emit(builder, "nn.relu", total), largest)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((5, 33)).astype(DTYPES[dtype]) for _ in range(2)]
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert _count(bench, function)["cast"] > 0


def test_an_op_of_halves_with_a_dtype_of_its_own_is_widened_too(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((7,), "int32"))
    function = bench.add(
        builder, _emit(builder, "multiply", _emit(builder, "cast", x, dtype="float16"), builder.const(np.float16(0.1)))
    )
    array = np.arange(7, dtype=np.int32)
    (actual,) = bench.run(function, array)
    np.testing.assert_array_equal(actual, (array.astype(np.float16) * np.float16(0.1)))


def _image(builder: FunctionBuilder) -> Value:
    return builder.param("x", TensorType((1, 8, 9, 9), "float32"))


def _convolve(builder: FunctionBuilder, x: Value, seed: int) -> Value:
    weight = np.random.default_rng(seed).standard_normal((8, 8, 3, 3)).astype("float32")
    return _emit(builder, "nn.conv2d", x, builder.const(weight), padding=(1, 1, 1, 1))


def test_transposes_remain_at_the_borders_of_a_network(bench: Bench) -> None:
    builder = bench.builder()
    x = _image(builder)
    bias = builder.const(np.ones(8, np.float32))
    first = _emit(builder, "nn.relu", _emit(builder, "nn.bias_add", _convolve(builder, x, 0), bias, axis=1))
    pooled = _emit(builder, "nn.max_pool2d", first, pool_size=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1))
    second = _emit(builder, "add", _convolve(builder, pooled, 1), first)
    both = _emit(builder, "concat", second, first, axis=1)
    mean = _emit(builder, "mean", both, axis=(2, 3), keepdims=True)
    function = bench.add(builder, _emit(builder, "reshape", mean, shape=(1, 16)))
    counts = _count(bench, function)
    # One for the image; that of the mean moves axes of one element only, and is none.
    assert counts["permute_dims"] <= 2
    inputs = np.random.default_rng(2).standard_normal((1, 8, 9, 9)).astype("float32")
    (actual,) = bench.run(function, inputs)
    (oracle,) = bench.reference(function, inputs, wide=True)
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=1e-4)


def test_a_shuffle_of_channels_moves_along_the_last_axis(bench: Bench) -> None:
    builder = bench.builder()
    x = _convolve(builder, _image(builder), 0)
    split = _emit(builder, "reshape", x, shape=(1, 2, 4, 9, 9))
    turned = _emit(builder, "permute_dims", split, axes=(0, 2, 1, 3, 4))
    shuffled = _emit(builder, "reshape", turned, shape=(1, 8, 9, 9))
    function = bench.add(builder, _convolve(builder, shuffled, 1))
    assert _count(bench, function)["permute_dims"] == 3
    inputs = np.random.default_rng(2).standard_normal((1, 8, 9, 9)).astype("float32")
    (actual,) = bench.run(function, inputs)
    (oracle,) = bench.reference(function, inputs, wide=True)
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=1e-3)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("axes", "sizes"), [((2, 3), (18, 14)), ((3, 2), (5, 9))])
def test_resizing_between_convolutions_has_channels_last(
    bench: Bench, method: str, axes: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    builder = bench.builder()
    image = _convolve(builder, _image(builder), 0)
    resized = _emit(builder, "nn.resize", image, sizes=sizes, axes=axes, scales=None, method=method)
    function = bench.add(builder, _convolve(builder, resized, 1))
    assert _count(bench, function)["permute_dims"] == 2
    x = np.random.default_rng(3).standard_normal((1, 8, 9, 9)).astype("float32")
    (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=1e-3)


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 2), (1, 2, 3)])
def test_resizing_of_other_axes_stays_as_it_is(bench: Bench, axes: tuple[int, ...]) -> None:
    builder = bench.builder()
    image = _convolve(builder, _image(builder), 0)
    function = bench.add(builder, _emit(builder, "nn.resize", image, sizes=(16,) * len(axes), axes=axes, scales=None))
    resize = prepare_regions([function], bench.constants, FAMILIES).functions[function.name].bindings[-1]
    assert (resize.op.name, resize.attrs["axes"]) == ("nn.resize", axes)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("axes", "channels", "has_rows"),
    [((1, 2), 5, True), ((1, 3), 5, True), ((2,), 5, True), ((1,), 5, False), ((1, 2), 1, False)],
)
def test_resizing_writes_rows_of_a_concatenation(
    bench: Bench, axes: tuple[int, ...], channels: int, has_rows: bool, axis: int
) -> None:
    """The last pass goes along one of the last two axes: rows of the result lie at any distance."""
    shape = (2, 3, 4, channels)
    larger = [size * 2 if number in axes else size for number, size in enumerate(shape)]
    other = [3 if number == axis else size for number, size in enumerate(larger)]
    builder = bench.builder()
    x, y = (builder.param(name, TensorType(tuple(sizes), "float32")) for name, sizes in (("x", shape), ("y", other)))
    sizes = tuple(larger[number] for number in axes)
    resized = _emit(builder, "nn.resize", x, sizes=sizes, axes=axes, scales=None, method="linear")
    function = bench.add(builder, _emit(builder, "concat", _emit(builder, "exp", y), resized, axis=axis))
    inputs = [np.random.default_rng(0).integers(-8, 9, sizes).astype("float32") for sizes in (shape, other)]
    (actual,), (wide,) = bench.run(function, *inputs), bench.reference(function, *inputs, wide=True)
    part = (slice(None),) * axis + (slice(3, None),)
    np.testing.assert_array_equal(actual[part], wide[part])  # Quarters of small integers are exact.
    np.testing.assert_allclose(actual, wide, rtol=1e-6)
    # The first elements of a part, or rows anywhere.
    is_in_place = axis == 0 or has_rows
    assert len(bench.calls(function)) == (2 if is_in_place else 3)


def test_nearest_neighbours_of_volumes_are_written_into_a_concatenation(bench: Bench) -> None:
    """The last axis comes first, and the last pass goes along the axis before: the result has no copy."""
    shape, skip = (1, 3, 2, 3, 5), (1, 2, 4, 6, 10)
    builder = bench.builder()
    x, y = (builder.param(name, TensorType(sizes, "float32")) for name, sizes in (("x", shape), ("y", skip)))
    attrs = {"sizes": skip[2:], "axes": (2, 3, 4), "scales": None, "method": "nearest"}
    resized = _emit(builder, "nn.resize", x, **attrs)
    function = bench.add(builder, _emit(builder, "concat", _emit(builder, "exp", y), resized, axis=1))
    inputs = [np.random.default_rng(0).integers(-8, 9, sizes).astype("float32") for sizes in (shape, skip)]
    (actual,), (wide,) = bench.run(function, *inputs), bench.reference(function, *inputs, wide=True)
    np.testing.assert_allclose(actual, wide, rtol=1e-6)
    assert len(bench.calls(function)) == 2


def test_elements_behind_a_convolution_are_computed_in_its_kernel(bench: Bench) -> None:
    """The results of a network have channels first: bias and activation stand before the transpose."""
    builder = bench.builder()
    image, bias = _convolve_integers(builder, _image(builder)), builder.const(np.arange(8, dtype=np.float32))
    shifted = _emit(builder, "nn.bias_add", image, bias, axis=1)
    scaled = _emit(builder, "multiply", shifted, builder.const(np.float32(0.5)))
    function = bench.add(builder, _emit(builder, "nn.relu", scaled))
    assert len(bench.calls(function)) == 2
    x = np.random.default_rng(3).integers(-3, 4, (1, 8, 9, 9)).astype("float32")
    (actual,), (exact,) = bench.run(function, x), bench.reference(function, x, wide=True)
    np.testing.assert_array_equal(actual, exact)


def test_elements_needed_by_others_too_stay_behind_the_transpose(bench: Bench) -> None:
    builder = bench.builder()
    image, bias = _convolve_integers(builder, _image(builder)), builder.const(np.arange(8, dtype=np.float32))
    function = bench.add(builder, image, _emit(builder, "nn.bias_add", image, bias, axis=1))
    assert _count(bench, function)["permute_dims"] == 2
    x = np.random.default_rng(3).integers(-3, 4, (1, 8, 9, 9)).astype("float32")
    for actual, exact in zip(bench.run(function, x), bench.reference(function, x, wide=True), strict=True):
        np.testing.assert_array_equal(actual, exact)


def _convolve_integers(builder: FunctionBuilder, x: Value) -> Value:
    """Return a convolution with exact results for small integers."""
    weight = np.random.default_rng(0).integers(-2, 3, (8, 8, 3, 3)).astype("float32")
    return _emit(builder, "nn.conv2d", x, builder.const(weight), padding=(1, 1, 1, 1))


def test_responses_are_normalised_with_channels_last(bench: Bench) -> None:
    builder = bench.builder()
    image = _emit(builder, "nn.lrn", _convolve_integers(builder, _image(builder)), size=5, alpha=0.5)
    function = bench.add(builder, _emit(builder, "nn.max_pool2d", image, pool_size=(3, 3)))
    assert _count(bench, function)["permute_dims"] == 2
    x = np.random.default_rng(3).integers(-3, 4, (1, 8, 9, 9)).astype("float32")
    (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
    # The convolution is exact. Five squares are summed; two roots, two products and a quotient follow.
    np.testing.assert_allclose(actual, oracle, rtol=16 * float(np.finfo(np.float32).eps), atol=0)


def test_images_of_tokens_are_views(bench: Bench) -> None:
    """Tokens become an image and tokens again without a copy: channels are last in both."""
    builder = bench.builder()
    tokens = builder.param("x", TensorType((1, 81, 8), "float32"))
    turned = _emit(builder, "permute_dims", tokens, axes=(0, 2, 1))
    image = _convolve_integers(builder, _emit(builder, "reshape", turned, shape=(1, 8, 9, 9)))
    shifted = _emit(builder, "nn.bias_add", image, builder.const(np.arange(8, dtype=np.float32)), axis=1)
    flat = _emit(builder, "reshape", shifted, shape=(1, 8, 81))
    function = bench.add(builder, _emit(builder, "permute_dims", flat, axes=(0, 2, 1)))
    assert _count(bench, function)["permute_dims"] == 0
    x = np.random.default_rng(3).integers(-3, 4, (1, 81, 8)).astype("float32")
    (actual,), (exact,) = bench.run(function, x), bench.reference(function, x, wide=True)
    np.testing.assert_array_equal(actual, exact)


def test_pooling_alone_stays_as_it_is(bench: Bench) -> None:
    builder = bench.builder()
    function = bench.add(builder, _emit(builder, "nn.max_pool2d", _image(builder), pool_size=(2, 2)))
    assert _count(bench, function) == {"nn.max_pool2d": 1}


def test_spelled_out_attention_is_one_kernel(bench: Bench) -> None:
    builder = bench.builder()
    query, key, value = (builder.param(name, TensorType((1, 2, 5, 8), "float32")) for name in ("q", "k", "v"))
    scores = _emit(builder, "matmul", query, _emit(builder, "permute_dims", key, axes=(0, 1, 3, 2)))
    scaled = _emit(builder, "multiply", scores, builder.const(np.float32(0.25)))
    function = bench.add(builder, _emit(builder, "matmul", _emit(builder, "nn.softmax", scaled, axis=-1), value))
    assert _count(bench, function) == {"nn.attention": 1}
