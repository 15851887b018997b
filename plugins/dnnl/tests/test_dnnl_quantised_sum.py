"""Requantised sums of dequantised tensors: the integers are added, with the results of the ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import (
    UNIT,
    NDArray,
    Quantised,
    emit,
    multiplies_integers,
    need_products_of_bytes,
)

SHAPE = (2, 8, 5, 6)
SCALES = st.floats(2.0**-12, 2.0**12, width=32)
BYTES = st.sampled_from(("uint8", "int8"))
Term = tuple[NDArray, float | NDArray, int]
"""Integers, a scale or a scale for each channel, and a zero point."""


def _zero_points(dtype: str) -> st.SearchStrategy[int]:
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


def _check(found: NDArray, terms: Sequence[Term], scale: float, zero: int, *, has_relu: bool) -> None:
    """Check bytes against exact arithmetic, or a neighbour for quotients within the roundings of a tie.

    Rounded are both products, both sums, the zero points' term and the multiplicand of the reciprocal of the scale,
    itself rounded too.
    """
    step = float(np.float32(scale))
    exact, largest = np.zeros(1), np.zeros(1)
    for array, scales, zero_of in terms:
        each = np.asarray(scales, np.float32).astype(np.float64)
        exact = exact + (array.astype(np.float64) - zero_of) * each
        largest = largest + (255 + abs(zero_of)) * each
    exact = np.maximum(exact, 0) if has_relu else exact
    limits, reach = np.iinfo(found.dtype), 8 * UNIT * largest / step
    least, most = (
        np.clip(np.rint(exact / step + side * reach) + zero, limits.min, limits.max).astype(np.int64)
        for side in (-1, 1)
    )
    assert ((least <= found) & (found <= most)).all()


@given(data=st.data(), dtypes=st.tuples(BYTES, BYTES, BYTES), scales=st.tuples(SCALES, SCALES), has_relu=st.booleans())
def test_integers_of_any_parameters(
    data: st.DataObject, dtypes: tuple[str, str, str], scales: tuple[float, float], has_relu: bool
) -> None:
    zeros = [data.draw(_zero_points(dtype)) for dtype in dtypes]
    last = float(np.float32(max(scales) * data.draw(st.floats(0.25, 4))))  # more steps are added as floats
    region = Quantised()
    params = [region.builder.param(name, tensor(SHAPE, dtype)) for name, dtype in zip("xy", dtypes, strict=False)]
    restored = [region.restore(*each) for each in zip(params, scales, zeros, dtypes, strict=False)]
    total = emit(region, "add", *restored)
    total = emit(region, "nn.relu", total) if has_relu else total
    region.finish(region.quantise(total, last, zeros[2], dtypes[2]))
    arrays = [region.integers(*SHAPE, dtype=dtype) for dtype in dtypes[:2]]
    (found,) = region.run(*arrays)
    assert "dequantize" not in region.source
    _check(found, list(zip(arrays, scales, zeros, strict=False)), last, zeros[2], has_relu=has_relu)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_integers_in_two_layouts(order: tuple[int, int]) -> None:
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor((1, 16, 8, 8), "uint8")), 0.03, 12)
    sums = emit(region, "nn.conv2d", x, region.weights(16, 16, 3, 3), padding=(1, 1, 1, 1))
    middle = region.quantise(sums, 0.02, 128)
    y = region.builder.param("y", tensor((1, 16, 8, 8), "uint8"))
    restored = [region.restore(middle, 0.02, 128), region.restore(y, 0.04, 3)]
    region.finish(middle, region.quantise(emit(region, "add", *(restored[place] for place in order)), 0.05, 7))
    arrays = [region.integers(1, 16, 8, 8, dtype="uint8") for _ in range(2)]
    between, found = region.run(*arrays)
    if multiplies_integers():  # else the convolution reads floats, and they are added
        assert "add + quantize" in region.source
        assert "dequantize" not in region.source
    _check(found, [(between, 0.02, 128), (arrays[1], 0.04, 3)], 0.05, 7, has_relu=False)


def test_a_tensor_and_itself() -> None:
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor(SHAPE, "int8")), 0.25, -3, "int8")
    region.finish(region.quantise(emit(region, "add", x, x), 0.5, 1, "int8"))
    given_array = region.integers(*SHAPE, dtype="int8")
    (found,) = region.run(given_array)
    np.testing.assert_array_equal(found, np.clip(given_array.astype(int) + 4, -128, 127))


def test_a_sum_that_is_read_as_floats_is_that_of_floats() -> None:
    region = Quantised()
    params = [region.builder.param(name, tensor(SHAPE, "uint8")) for name in "xy"]
    total = emit(region, "add", region.restore(params[0], 0.3, 128), region.restore(params[1], 0.7, 5))
    region.finish(total, region.quantise(total, 0.9, 0))
    arrays = [region.integers(*SHAPE, dtype="uint8") for _ in range(2)]
    found, _ = region.run(*arrays)
    first, second = (
        (array.astype(np.int64) - zero).astype(np.float32) * np.float32(scale)
        for array, scale, zero in zip(arrays, (0.3, 0.7), (128, 5), strict=True)
    )
    np.testing.assert_array_equal(found, first + second)


SPREAD: list[tuple[tuple[float, ...], tuple[int, ...], tuple[int, int], tuple[str, ...], int]] = [
    # scales of the operands and the result, their zero points, the operands, what is between, the result
    ((0.640592, 0.640592, 0.02), (130, 69, 100), (152, 47), ("sqrt",), 100),
    ((0.815138, 0.815138, 0.02), (166, 233, 100), (144, 255), ("reciprocal",), 255),
    ((0.640592, 0.640592, 1e-6), (130, 69, 100), (152, 47), (), 100),
    ((1e6, 0.01, 0.01), (7, 0, 0), (7, 200), ("nn.relu",), 200),
    ((2.0**100, 2.0**-100, 2.0**-100), (7, 0, 0), (7, 200), (), 200),
    ((0.01, 40.0, 0.01), (0, 7, 0), (200, 7), ("nn.relu",), 200),
]


@pytest.mark.parametrize(("scales", "zeros", "bytes_", "between", "wanted"), SPREAD)
def test_what_is_rounded_is_not_spread(
    scales: tuple[float, ...], zeros: tuple[int, ...], bytes_: tuple[int, int], between: tuple[str, ...], wanted: int
) -> None:
    region = Quantised()
    params = [region.builder.param(name, tensor((1, 16, 4, 4), "uint8")) for name in "xy"]
    value = emit(region, "add", *map(region.restore, params, scales, zeros))
    for op in between:
        value = emit(region, op, value)
    region.finish(region.quantise(value, scales[2], zeros[2]))
    (found,) = region.run(*(np.full((1, 16, 4, 4), byte, np.uint8) for byte in bytes_))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("end", ["floats", "pooling"])
def test_a_sum_of_floats_leaves_no_reorder_of_integers(end: str) -> None:
    region = Quantised()
    x, y = (region.builder.param(name, tensor((1, 16, 8, 8), "uint8")) for name in "xy")
    sums = emit(region, "nn.conv2d", region.restore(x, 0.03, 12), region.weights(16, 16, 3, 3), padding=(1, 1, 1, 1))
    middle = region.restore(region.quantise(sums, 0.02, 128), 0.02, 128)
    value = emit(region, "add", middle, region.restore(y, 0.04, 3))
    if end == "pooling":
        value = emit(region, "nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
        value = region.quantise(value, 0.05, 7)
    region.finish(value)
    *lines, _ = region.source.splitlines()  # the last one brings the result into its order
    copies = [line.split(", ")[-1] for line in lines if line.startswith("reorder") and line.endswith(":uint8")]
    assert all(sum(copy in line for line in lines) > 1 for copy in copies), lines


@pytest.mark.parametrize("kind", ["repeated", "by channels", "parameters"])
def test_what_is_no_sum_of_two_scales(kind: str) -> None:
    region, shape = Quantised(), (1, 8, 1, 1) if kind == "repeated" else SHAPE
    x, y = region.builder.param("x", tensor(SHAPE, "uint8")), region.builder.param("y", tensor(shape, "uint8"))
    inputs: list[NDArray] = [region.integers(*SHAPE, dtype="uint8"), region.integers(*shape, dtype="uint8")]
    scale, zero = np.array(0.4, np.float32), 9
    if kind == "by channels":
        scale, zero = np.linspace(0.1, 0.8, 8, dtype=np.float32), 0
        constants = [region.builder.const(scale), region.builder.const(np.zeros(8, np.uint8))]
        second = emit(region, "dequantize", y, *constants, axis=1)
        scale = scale.reshape(8, 1, 1)
    elif kind == "parameters":
        scalars = [region.builder.param("s", tensor((), "float32")), region.builder.param("z", tensor((), "uint8"))]
        second = emit(region, "dequantize", y, *scalars)
        inputs += [scale, np.array(zero, np.uint8)]
    else:
        second = region.restore(y, 0.4, zero)
    region.finish(region.quantise(emit(region, "add", region.restore(x, 0.31, 7), second), 0.617, 20))
    (found,) = region.run(*inputs)
    assert "dequantize" in region.source
    _check(found, [(inputs[0], 0.31, 7), (inputs[1], scale, zero)], 0.617, 20, has_relu=False)


def _residual(
    scales: Sequence[float], zeros: Sequence[int], dtypes: Sequence[str], *, has_relu: bool, ends: str, swaps: bool
) -> Quantised:
    """Return a convolution of bytes, up to the bytes before a sum with other bytes, or up to the sum."""
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor((1, 16, 8, 9), "uint8")), 0.03, 12)
    sums = emit(region, "nn.conv2d", x, region.weights(32, 16, 3, 3), padding=(1, 1, 1, 1))
    middle = region.quantise(sums, scales[0], zeros[0], dtypes[0])
    if ends == "middle":
        return region.finish(middle)
    y = region.restore(region.builder.param("y", tensor((1, 32, 8, 9), dtypes[1])), scales[1], zeros[1], dtypes[1])
    restored = region.restore(middle, scales[0], zeros[0], dtypes[0])
    total = emit(region, "add", *((y, restored) if swaps else (restored, y)))
    total = emit(region, "nn.relu", total) if has_relu else total
    quantised = region.quantise(total, scales[2], zeros[2], dtypes[2])
    return region.finish(*((quantised, middle) if ends == "both" else (quantised,)))


RESIDUAL_SCALES = st.sampled_from([0.02, 0.03125, 0.05, 0.11])


@given(
    data=st.data(),
    dtypes=st.tuples(BYTES, BYTES, BYTES),
    scales=st.tuples(RESIDUAL_SCALES, RESIDUAL_SCALES, RESIDUAL_SCALES),
    has_relu=st.booleans(),
    swaps=st.booleans(),
)
def test_a_convolution_computes_the_sum_behind_its_bytes(
    data: st.DataObject, dtypes: tuple[str, str, str], scales: tuple[float, float, float], has_relu: bool, swaps: bool
) -> None:
    need_products_of_bytes()
    least = [int(np.iinfo(dtype).min) for dtype in dtypes]
    zeros = [data.draw(st.sampled_from([low, low + 128, low + 100])) for low in least]
    first, second = (
        _residual(scales, zeros, dtypes, has_relu=has_relu, ends=ends, swaps=swaps) for ends in ("middle", "sum")
    )
    x = first.integers(1, 16, 8, 9, dtype="uint8")
    y = first.integers(1, 32, 8, 9, dtype=dtypes[1])
    (between,), (found,) = first.run(x), second.run(x, y)
    assert len(np.unique(between)) > 10
    assert "quantize + dequantize + add" in second.source
    _check(found, [(between, scales[0], zeros[0]), (y, scales[1], zeros[1])], scales[2], zeros[2], has_relu=has_relu)


def test_equal_scales_are_added_exactly() -> None:
    need_products_of_bytes()
    parameters = (0.03125,) * 3, (128, 128, 0), ("uint8",) * 3
    first, second = (_residual(*parameters, has_relu=True, ends=ends, swaps=False) for ends in ("middle", "sum"))
    x, y = first.integers(1, 16, 8, 9, dtype="uint8"), first.integers(1, 32, 8, 9, dtype="uint8")
    (between,), (found,) = first.run(x), second.run(x, y)
    assert "quantize + dequantize + add + nn.relu + quantize" in second.source
    total = between.astype(int) - 128 + y.astype(int) - 128
    np.testing.assert_array_equal(found, np.clip(total, 0, 255))


@pytest.mark.parametrize("kind", ["view", "pooling"])
def test_a_view_of_bytes_is_added_without_floats(kind: str) -> None:
    """Bytes in another order of axes, stored so or computed so, are read in place or reordered as bytes."""
    need_products_of_bytes()
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor((1, 16, 8, 9), "uint8")), 0.03, 12)
    shape = (1, 8, 9, 32) if kind == "view" else (1, 16, 18, 32)
    y = region.restore(region.builder.param("y", tensor(shape, "uint8")), 0.05, 5)
    y = emit(region, "permute_dims", y, axes=(0, 3, 1, 2))
    y = y if kind == "view" else emit(region, "nn.max_pool2d", y, pool_size=(2, 2), strides=(2, 2))
    sums = emit(region, "nn.conv2d", x, region.weights(32, 16, 3, 3), padding=(1, 1, 1, 1))
    restored = region.restore(region.quantise(sums, 0.05, 3), 0.05, 3)
    region.finish(region.quantise(emit(region, "add", restored, y), 0.07, 7))
    arrays = region.integers(1, 16, 8, 9, dtype="uint8"), region.integers(*shape, dtype="uint8")
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    assert "quantize + dequantize + add" in region.source
    assert not any(line.startswith("dequantize") for line in region.source.splitlines())
    assert (np.abs(found.astype(int) - exact.astype(int)) <= 1).all()


def test_a_relu_left_out_needs_no_check() -> None:
    need_products_of_bytes()
    region = Quantised()
    x, y = (region.builder.param(name, tensor((1, 16, 8, 8), "float32")) for name in "xy")
    region.finish(region.quantise(emit(region, "nn.relu", emit(region, "add", x, y)), 0.05, 0))
    arrays = [region.draw(1, 16, 8, 8) for _ in range(2)]
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    assert (np.abs(found.astype(int) - exact.astype(int)) <= 1).all()
    assert "add + nn.relu + quantize" in region.source
    assert "check" not in region.source


def test_a_sum_behind_a_bias_of_nan_is_apart() -> None:
    """NaN is quantised as 0, not as an end of the range."""
    need_products_of_bytes()
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor((1, 16, 8, 9), "uint8")), 0.03, 12)
    sums = emit(region, "nn.conv2d", x, region.weights(32, 16, 3, 3), padding=(1, 1, 1, 1))
    bias = np.zeros(32, np.float32)
    bias[3] = np.nan
    sums = emit(region, "nn.bias_add", sums, region.builder.const(bias), axis=1)
    restored = region.restore(region.quantise(sums, 0.05, 3), 0.05, 3)
    y = region.restore(region.builder.param("y", tensor((1, 32, 8, 9), "uint8")), 0.05, 5)
    region.finish(region.quantise(emit(region, "add", restored, y), 0.07, 7))
    arrays = region.integers(1, 16, 8, 9, dtype="uint8"), region.integers(1, 32, 8, 9, dtype="uint8")
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    assert "quantize + dequantize + add" not in region.source
    assert (np.abs(found[:, 3].astype(int) - exact[:, 3].astype(int)) <= 1).all()


@pytest.mark.parametrize("kind", ["two readers", "unlike steps", "other parameters"])
def test_a_sum_apart_from_its_convolution(kind: str) -> None:
    """Bytes with another reader are written, and steps too small for a rounded sum are added as floats."""
    need_products_of_bytes()
    scales = [0.05, 0.05, 1e-6 if kind == "unlike steps" else 0.07]
    region = _residual(
        scales, (3, 5, 7), ("uint8",) * 3, has_relu=False, ends="both" if kind == "two readers" else "sum", swaps=False
    )
    if kind == "other parameters":
        region = Quantised()
        x = region.restore(region.builder.param("x", tensor((1, 16, 8, 9), "uint8")), 0.03, 12)
        sums = emit(region, "nn.conv2d", x, region.weights(32, 16, 3, 3), padding=(1, 1, 1, 1))
        restored = region.restore(region.quantise(sums, 0.05, 3), 0.06, 3)
        y = region.restore(region.builder.param("y", tensor((1, 32, 8, 9), "uint8")), 0.05, 5)
        region.finish(region.quantise(emit(region, "add", restored, y), 0.07, 7))
    arrays = region.integers(1, 16, 8, 9, dtype="uint8"), region.integers(1, 32, 8, 9, dtype="uint8")
    found, *_ = region.run(*arrays)
    assert "quantize + dequantize + add" not in region.source
    (exact, *_) = region.oracle(*arrays)
    assert (np.abs(found.astype(int) - exact.astype(int)) <= (255 if kind == "unlike steps" else 1)).all()
