"""Layouts over a region: layouts of convolutions survive concatenation, normalisation and channel shuffles."""

from __future__ import annotations

from math import prod
from typing import Any

import byoc_dnnl.backend as dnnl
import numpy as np
import pytest
from byoc_core.ir import TensorType, Var, tensor

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit

SIZE = 12


def _convolve(region: Region, value: Var, inputs: int, outputs: int, side: int, **attrs: object) -> Var:
    weight = region.builder.const(region.draw(outputs, inputs, side, side))
    return emit(region, "nn.conv2d", value, weight, padding=(side // 2,) * 4, **attrs)


def _steps(region: Region) -> list[list[str]]:
    """Return the title, the implementation and the operands of each step."""
    lines = region.source.splitlines()[1:]
    return [line.split("  ") for line in lines if not line.startswith("pack ")]


def test_an_image_in_blocks_is_joined_channels_last_with_what_lies_so() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 3, 2 * SIZE, 2 * SIZE)))
    first = _convolve(region, x, 3, 48, 3, strides=(2, 2))
    second = _convolve(region, first, 48, 32, 3)
    joined = emit(region, "concat", first, second, axis=1)
    region.finish(_convolve(region, joined, 80, 16, 1))
    check_sums(region, [region.draw(1, 3, 2 * SIZE, 2 * SIZE)], 2 * (27 + 432 + 80))
    steps = _steps(region)
    assert [step[0] for step in steps].count("concat") == 1
    (concat,) = (step for step in steps if step[0] == "concat")
    assert {operand.partition(":")[2] for operand in concat[2].split(", ")} == {"acdb"}
    assert [step[0] for step in steps].count("reorder") == 2  # what the second convolution reads, and the result


def test_relu_is_computed_by_the_batch_norm_before_it() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 32, SIZE, SIZE)))
    value = _convolve(region, x, 32, 32, 3)
    constants = [region.builder.const(region.draw(32)) for _ in range(3)]
    variance = region.builder.const(abs(region.draw(32)) + 1)
    value = emit(region, "nn.batch_norm", value, *constants, variance, axis=1)
    region.finish(_convolve(region, emit(region, "nn.relu", value), 32, 32, 1))
    titles = [step[0] for step in _steps(region)]
    assert "nn.batch_norm + nn.relu" in titles
    x_array = region.draw(1, 32, SIZE, SIZE)
    (found,), (exact,) = region.run(x_array), region.oracle(x_array)
    (magnitude,) = region.oracle(x_array, magnitudes=True)
    # Two sums of 2 * 288 and 2 * 32 operations with batch norm's seven between; subtracted means count as added.
    assert abs(found - exact).max() <= 2 * (2 * 288 + 64 + 8) * 2.0**-24 * (magnitude + abs(exact)).max()


def test_a_channel_shuffle_is_one_reorder() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 96, SIZE, SIZE)))
    value = _convolve(region, x, 24, 96, 1, groups=4)
    value = emit(region, "reshape", value, shape=(1, 4, 24, SIZE, SIZE))
    value = emit(region, "permute_dims", value, axes=(0, 2, 1, 3, 4))
    value = emit(region, "reshape", value, shape=(1, 96, SIZE, SIZE))
    region.finish(_convolve(region, value, 96, 64, 3))
    check_sums(region, [region.draw(1, 96, SIZE, SIZE)], 2 * (24 + 864))
    titles = [step[0] for step in _steps(region)]
    assert titles == ["reorder", "nn.conv2d", "reorder", "nn.conv2d", "reorder"]


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (1, 2, 3, 0), (3, 2, 1, 0), (0, 3, 1, 2)])
@pytest.mark.parametrize("small", [(1, 4, 1, 1), (3, 1, 1, 1), (1, 1, 5, 1), (1, 1, 1, 6), (3, 4, 1, 1)])
def test_a_repeated_operand_meets_its_elements_in_any_layout(order: tuple[int, ...], small: tuple[int, ...]) -> None:
    region, sizes = Region(), (3, 4, 5, 6)
    given = tuple(sizes[order.index(axis)] for axis in range(4))
    x = emit(region, "permute_dims", region.builder.param("x", tensor(given)), axes=order)
    total = emit(region, "add", x, x)
    region.finish(emit(region, "multiply", total, region.builder.const(region.draw(*small))))
    check_sums(region, [region.draw(*given)], 3)


@pytest.mark.parametrize(
    ("op", "image", "weights", "attrs"),
    [
        ("nn.conv2d", (1, 24, 9, 10), (16, 24, 3, 3), {}),
        ("nn.conv2d", (1, 24, 9, 10), (112, 6, 3, 3), {"groups": 4}),
        ("nn.conv2d_transpose", (1, 24, 9, 10), (24, 28, 3, 3), {"groups": 4}),
        ("nn.conv1d", (1, 32, 20), (32, 1, 3), {"groups": 32}),
        ("nn.conv1d_transpose", (1, 32, 20), (32, 1, 3), {"groups": 32}),
        ("nn.conv1d_transpose", (1, 10, 5), (10, 4, 4), {}),
    ],
)
@pytest.mark.parametrize("added", ["add", "multiply"])
def test_an_operand_without_the_axis_of_images_lies_as_the_result_does(
    op: str, image: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, int], added: str
) -> None:
    region = Region()
    x = region.builder.param("x", tensor(image))
    value = emit(region, op, x, region.builder.const(region.draw(*weights)), **attrs)
    assert isinstance(value.type, TensorType)
    _, *sizes = value.type.shape or ()
    other = region.builder.param("y", tensor(sizes))
    region.finish(emit(region, added, value, other))
    inputs = [region.draw(*image), region.draw(*(size for size in sizes if isinstance(size, int)))]
    check_sums(region, inputs, 2 * prod(weights) // min(weights[:2]) + 4)
    assert f"{op} + {added}" in region.source or "gemm" in region.source  # without AVX-512 some groups are products


@pytest.mark.parametrize("ending", ["convolution", "sum", "pooling"])
def test_images_cross_borders_channels_last_without_a_copy(ending: str) -> None:
    """An image read and returned with channels last: no step but the computation, writing the result in place."""
    region = Region()
    given = region.builder.param("x", tensor((1, SIZE, SIZE, 64)))
    x = emit(region, "permute_dims", given, axes=(0, 3, 1, 2))
    value = _convolve(region, x, 64, 64, 3)
    if ending == "sum":
        value = emit(region, "nn.relu", emit(region, "add", value, x))
    elif ending == "pooling":
        value = emit(region, "nn.max_pool2d", value, pool_size=(3, 3), padding=(1, 1, 1, 1))
    region.finish(emit(region, "permute_dims", value, axes=(0, 2, 3, 1)))
    check_sums(region, [region.draw(1, SIZE, SIZE, 64)], 2 * 577)
    assert not [step for step in _steps(region) if step[0] == "reorder"]


def test_an_image_is_returned_in_both_orders() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 64, SIZE, SIZE)))
    value = _convolve(region, x, 64, 64, 3)
    region.finish(value, emit(region, "permute_dims", value, axes=(0, 2, 3, 1)))
    image = region.draw(1, 64, SIZE, SIZE)
    check_sums(region, [image], 2 * 576)
    first, second = region.run(image)
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), second)


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("nn.conv2d", {}, [(0, 2, 3, 1)]),
        ("nn.conv2d", {"data_layout": "NHWC"}, []),
        ("nn.max_pool2d", {"pool_size": (2, 2)}, [(0, 2, 3, 1), None]),
        ("nn.relu", {}, []),
    ],
)
def test_orders_of_ops(op: str, attrs: dict[str, Any], expected: list[Any]) -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 8, 8, 8)))
    operands = [x, region.builder.const(region.draw(8, 8, 1, 1))] if op == "nn.conv2d" else [x]
    region.finish(emit(region, op, *operands, **attrs))
    stated = dnnl.byoc_layouts(region.function) or []
    assert [orders.operands[0] for orders in stated] == expected
    assert [orders.results for orders in stated] == [(order,) for order in expected]


def test_axes_of_size_one_have_any_stride() -> None:
    """The stored value is row-major, but for strides along axes of one element: oneDNN lacks primitives there."""
    region = Region()
    x = emit(region, "permute_dims", region.builder.param("x", tensor((1, 1, 17))), axes=(0, 2, 1))
    other = region.builder.const(region.draw(4, 17, 1))
    region.finish(emit(region, "concat", x, other, axis=0))
    check_sums(region, [region.draw(1, 1, 17)], 0)
    assert [step[0] for step in _steps(region)] == ["concat"]
