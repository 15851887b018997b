"""Images seen as rows before a product: constant weights in the order of the image, without reordering the image."""

from __future__ import annotations

from math import prod

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import float_limits
from byoc_core.ir import Value, Var, tensor
from byoc_dnnl.engine import open_engine
from byoc_dnnl.lowerings import flattening, product
from byoc_dnnl.precision import lacks_instructions
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Region, check_sums, emit, need_avx512
from plugins.dnnl.tests.narrow_oracle import gamma

INPUTS = 3
TERMS = 9 * INPUTS


def _convolution(region: Region, num_images: int, channels: int, sizes: tuple[int, ...]) -> tuple[Var, NDArray]:
    """Return the result of a convolution, in oneDNN's preferred layout, and an image."""
    shape, rank = (num_images, INPUTS, *sizes), len(sizes)
    x = region.builder.param("x", tensor(shape))
    weight = region.builder.const(region.draw(channels, INPUTS, *(3,) * rank))
    return emit(region, f"nn.conv{rank}d", x, weight, padding=(1,) * 2 * rank), region.draw(*shape)


def _product(region: Region, image: Value, inner: int, op: str = "nn.dense", outer: int = 7, rows: int = 2) -> Var:
    flat = emit(region, "reshape", image, shape=(rows, inner))
    weight = region.draw(outer, inner)
    return emit(region, op, flat, region.builder.const(weight if op == "nn.dense" else weight.T.copy()))


def _num_reorders(region: Region) -> int:
    return sum(line.startswith("reorder") for line in region.source.splitlines())


@given(
    num_images=st.integers(1, 3),
    channels=st.sampled_from((1, 5, 8, 16, 24, 32, 40, 64)),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    op=st.sampled_from(("nn.dense", "matmul")),
    outer=st.sampled_from((1, 7, 32)),
    has_relu=st.booleans(),
)
def test_rows_of_any_layout_meet_their_weights(
    num_images: int, channels: int, sizes: tuple[int, ...], op: str, outer: int, has_relu: bool
) -> None:
    region = Region()
    image, array = _convolution(region, num_images, channels, sizes)
    inner = channels * prod(sizes)
    value = _product(region, image, inner, op, outer, num_images)
    value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(outer)), axis=1)
    region.finish(emit(region, "nn.relu", value) if has_relu else value)
    check_sums(region, [array], 2 * (3 ** len(sizes) * INPUTS + inner) + 2)


@pytest.mark.parametrize("op", ["nn.dense", "matmul"])
@pytest.mark.parametrize(("channels", "layout"), [(16, "aBcd16b"), (40, "acdb")])
def test_no_image_is_reordered(channels: int, layout: str, op: str) -> None:
    need_avx512()
    region = Region()
    image, array = _convolution(region, 2, channels, (4, 5))
    if layout == "acdb":
        image = emit(region, "nn.conv2d", image, region.builder.const(region.draw(channels, channels, 1, 1)))
    image = emit(region, "nn.max_pool2d", image, pool_size=(2, 2), strides=(1, 1))
    region.finish(_product(region, image, channels * 12, op))
    (pooling,) = (line for line in region.source.splitlines() if line.startswith("nn.max_pool2d"))
    assert pooling.endswith(f":{layout}")
    assert _num_reorders(region) == (layout == "acdb")  # what the second convolution reads
    region.run(array)


def test_rows_of_a_transposed_product_are_reordered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    need_avx512()
    for name in ("_WITH_TILES", "_WITHOUT_TILES"):
        monkeypatch.setattr(product, name, product._Bounds(range(2, 129), 256))
    region = Region()
    image, array = _convolution(region, 32, 16, (4, 4))
    region.finish(_product(region, image, 256, outer=32, rows=32))
    assert _num_reorders(region) == 2  # the second one of the result
    check_sums(region, [array], 2 * (TERMS + 256))


def test_a_check_reads_the_rows_as_they_lie() -> None:
    need_avx512()
    region = Region()
    image, array = _convolution(region, 2, 16, (4, 4))
    powers, weight = emit(region, "exp", image), region.draw(7, 256)
    value = emit(region, "nn.dense", emit(region, "reshape", powers, shape=(2, 256)), region.builder.const(weight))
    region.finish(powers, emit(region, "nn.relu", value))
    assert "check for finite numbers" in region.source
    assert _num_reorders(region) == 1  # the first result's
    given, found = region.run(array)
    rows, gamma = given.astype(np.float64).reshape(2, 256), 512 * UNIT / (1 - 512 * UNIT)
    bound = gamma * (rows @ np.abs(weight.astype(np.float64)).T)
    assert (np.abs(found - np.maximum(rows @ weight.astype(np.float64).T, 0)) <= bound).all()
    array[1, 2, 3, 3] = np.nan
    given, found = region.run(array)
    assert np.isnan(given[1]).any()
    np.testing.assert_array_equal(np.isnan(found), [[False] * 7, [True] * 7])


def test_others_who_read_the_rows_get_them_in_order() -> None:
    region = Region()
    image, array = _convolution(region, 2, 16, (4, 4))
    flat = emit(region, "reshape", image, shape=(2, 256))
    product = emit(region, "nn.dense", flat, region.builder.const(region.draw(7, 256)))
    region.finish(flat, product)
    check_sums(region, [array], 2 * (TERMS + 256))


@pytest.mark.parametrize("kind", ["stack", "parameter", "computed", "dequantised", "permuted", "left", "large"])
def test_weights_that_cannot_be_reordered_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region()
    image, array = _convolution(region, 2, 16, (4, 4))
    flat, inputs = emit(region, "reshape", image, shape=(2, 256)), [array]
    if kind == "parameter":
        inputs.append(region.draw(7, 256))
        value = emit(region, "nn.dense", flat, region.builder.param("w", tensor((7, 256))))
    elif kind == "computed":
        inputs.append(region.draw(256, 7))
        weight = emit(region, "abs", region.builder.param("w", tensor((256, 7))))
        value = emit(region, "matmul", flat, weight)
    elif kind == "dequantised":
        integers = (np.arange(7 * 256) % 251 - 125).astype(np.int8).reshape(7, 256)
        parameters: list[NDArray] = [integers, np.array(0.1, np.float32), np.array(3, np.int8)]
        weight = emit(region, "dequantize", *map(region.builder.const, parameters))
        value = emit(region, "nn.dense", flat, weight)
    elif kind == "permuted":
        weight = emit(region, "permute_dims", region.builder.const(region.draw(256, 7)), axes=(1, 0))
        value = emit(region, "nn.dense", flat, weight)
    elif kind == "left":
        value = emit(region, "matmul", region.builder.const(region.draw(7, 2)), flat)
    elif kind == "stack":
        value = emit(region, "matmul", flat, region.builder.const(region.draw(3, 256, 7)))
    else:
        monkeypatch.setattr(flattening, "_MAX_NBYTES", 7 * 256 * 4 - 1)
        value = emit(region, "nn.dense", flat, region.builder.const(region.draw(7, 256)))
    region.finish(value)
    check_sums(region, inputs, 2 * (TERMS + 256))


def test_weights_that_two_products_share() -> None:
    region = Region()
    image, array = _convolution(region, 2, 16, (4, 4))
    weight, y = region.builder.const(region.draw(7, 256)), region.builder.param("y", tensor((2, 256)))
    first = emit(region, "nn.dense", emit(region, "reshape", image, shape=(2, 256)), weight)
    region.finish(first, emit(region, "nn.dense", y, weight))
    check_sums(region, [array, region.draw(2, 256)], 2 * (TERMS + 256))


def test_a_sum_over_the_image_waits_for_the_product() -> None:
    region = Region()
    image, array = _convolution(region, 2, 16, (4, 4))
    value = _product(region, image, 256, outer=16)
    weight = region.builder.const(region.draw(16, 16, 1, 1))
    # What is read as rows too must not be written over by the sum that reads the image last.
    other = emit(region, "add", emit(region, "nn.conv2d", image, weight), image)
    region.finish(other, value)
    check_sums(region, [array], 2 * (TERMS + 256))


def test_with_factors_of_bfloat16() -> None:
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region = Region()
    image, array = _convolution(region, 2, 32, (4, 4))
    region.finish(_product(region, image, 512))
    made = byoc_core.build(region.ir, ["dnnl"], fallback="error", options={"dnnl": {"precision": "bfloat16"}})
    found = byoc_core.VirtualMachine(made)["f"](array)
    (exact,), (magnitude,) = region.oracle(array), region.oracle(array, magnitudes=True)
    # In each of two sums both factors are rounded to 8 bits; sums are those of float32.
    bound = (1 + float_limits("bfloat16").unit_roundoff) ** 4 * (1 + gamma(2 * (TERMS + 512))) - 1
    assert (np.abs(np.asarray(found) - exact) <= bound * magnitude).all()


@pytest.mark.parametrize(
    ("num_images", "axes", "rows"),
    [(1, (1, 3, 2, 0), 16), (2, (1, 0, 3, 2), 16), (3, (1, 2, 0, 3), 16), (2, (0, 2, 3, 1), 2)],
)
def test_images_whose_axes_were_permuted(num_images: int, axes: tuple[int, ...], rows: int) -> None:
    region = Region()
    image, array = _convolution(region, num_images, 16, (4, 4))
    inner = num_images * 256 // rows
    value = _product(region, emit(region, "permute_dims", image, axes=axes), inner, rows=rows)
    region.finish(value)
    check_sums(region, [array], 2 * (TERMS + inner))


def test_an_image_is_written_over_when_the_product_has_read_its_rows() -> None:
    need_avx512()
    region = Region()
    x, array = region.builder.param("x", tensor((2, 16, 4, 4))), region.draw(2, 16, 4, 4)
    weights = [region.builder.const(region.draw(16, 16, 3, 3)) for _ in range(2)]
    image = emit(region, "nn.conv2d", x, weights[0], padding=(1, 1, 1, 1))
    value = _product(region, image, 256)
    other = emit(region, "nn.conv2d", x, weights[1], padding=(1, 1, 1, 1))
    total = emit(region, "abs", emit(region, "add", other, image))
    region.finish(value, emit(region, "nn.conv2d", total, region.builder.const(region.draw(16, 16, 1, 1))))
    (written,) = (line for line in region.source.splitlines() if line.startswith("nn.conv2d + add + abs"))
    (first, *_) = (line for line in region.source.splitlines() if line.startswith("nn.conv2d  "))
    assert written.split(", ")[-1] == first.split(", ")[-1]
    check_sums(region, [array], 2 * (2 * 144 + 256))
