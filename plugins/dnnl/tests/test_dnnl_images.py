"""Convolutions with better implementations than oneDNN's choice when offered all layouts."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.ir import tensor

from plugins.dnnl.tests.dnnl_region import NDArray, Quantised, Region, check_sums, emit, need_avx512

GROUPS = 4


def _grouped(op: str, inputs: int, outputs: int, window: tuple[int, ...], *, size: int = 9) -> tuple[Region, NDArray]:
    """Return a size-preserving convolution in groups of the given number of channels, and an image."""
    region, rank = Region(), len(window)
    shape = (1, GROUPS * inputs, *(size,) * rank)
    kernel = (GROUPS * inputs, outputs) if op.endswith("transpose") else (GROUPS * outputs, inputs)
    weight = region.builder.const(region.draw(*kernel, *window))
    x = region.builder.param("x", tensor(shape))
    region.finish(emit(region, op, x, weight, groups=GROUPS, padding=tuple(side // 2 for side in window) * 2))
    return region, region.draw(*shape)


CASES = [
    ("nn.conv1d", 6, 28, (3,)),
    ("nn.conv1d", 3, 16, (1,)),
    ("nn.conv2d", 6, 28, (1, 1)),
    ("nn.conv2d", 6, 28, (3, 3)),
    ("nn.conv2d", 5, 1, (7, 7)),
    ("nn.conv2d", 1, 2, (3, 3)),
    ("nn.conv3d", 3, 5, (3, 3, 3)),
    ("nn.conv2d_transpose", 6, 28, (3, 3)),
    ("nn.conv3d_transpose", 3, 5, (3, 3, 3)),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "window"), CASES)
def test_groups_of_few_channels_are_no_general_product(
    op: str, inputs: int, outputs: int, window: tuple[int, ...]
) -> None:
    need_avx512()
    region, image = _grouped(op, inputs, outputs, window)
    assert "gemm" not in region.source
    check_sums(region, [image], 2 * inputs * int(np.prod(window)) + 2)


@pytest.mark.parametrize(("op", "inputs", "outputs", "window"), CASES)
def test_what_is_not_finite_stays_within_its_group(op: str, inputs: int, outputs: int, window: tuple[int, ...]) -> None:
    region, image = _grouped(op, inputs, outputs, window)
    assert "check" not in region.source
    middle = (4,) * len(window)
    image[(0, inputs, *middle)], image[(0, 3 * inputs - 1, *middle)] = np.nan, np.inf
    (found,) = region.run(image)
    by_group = np.isfinite(found).reshape(GROUPS, -1).all(axis=1)
    np.testing.assert_array_equal(by_group, [True, False, False, True])


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "window"), [("nn.conv2d", 6, 8, (1, 1)), ("nn.conv2d_transpose", 5, 1, (3, 3))]
)
def test_groups_that_compute_little_are_products(op: str, inputs: int, outputs: int, window: tuple[int, ...]) -> None:
    need_avx512()
    region, image = _grouped(op, inputs, outputs, window)
    assert "gemm" in region.source
    check_sums(region, [image], 2 * inputs * int(np.prod(window)) + 2)


ALONG = [
    ({"padding": (1, 1)}, 3, "brdgmm_dw"),
    ({"padding": (0, 3), "strides": (2,)}, 5, "brdgmm_dw"),
    ({"padding": (4, 2), "dilation": (3,)}, 3, "jit_dw"),
]


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
@pytest.mark.parametrize(("attrs", "taps", "name"), ALONG)
def test_depthwise_along_one_axis(attrs: dict[str, tuple[int, ...]], taps: int, name: str, layout: str) -> None:
    need_avx512()
    region, channels = Region(), 40
    shape = (2, channels, 33) if layout == "NCW" else (2, 33, channels)
    builder = region.builder
    x = builder.param("x", tensor(shape))
    weight = builder.const(region.draw(channels, 1, taps))
    value = emit(region, "nn.conv1d", x, weight, groups=channels, data_layout=layout, **attrs)
    value = emit(region, "nn.bias_add", value, builder.const(region.draw(channels)), axis=layout.index("C"))
    region.finish(emit(region, "nn.relu", value))
    assert f"nn.conv1d + nn.bias_add + nn.relu  {name}" in region.source
    check_sums(region, [region.draw(*shape)], 2 * taps + 4)


def test_a_sum_after_depthwise_along_one_axis_is_a_post_op() -> None:
    need_avx512()
    region, channels = Region(), 32
    x = region.builder.param("x", tensor((1, channels, 50)))
    pointwise = emit(region, "nn.conv1d", x, region.builder.const(region.draw(channels, channels, 1)))
    weight = region.builder.const(region.draw(channels, 1, 3))
    value = emit(region, "nn.conv1d", pointwise, weight, groups=channels, padding=(1, 1))
    region.finish(emit(region, "add", value, pointwise))
    assert "nn.conv1d + add  brdgmm_dw" in region.source
    check_sums(region, [region.draw(1, channels, 50)], 2 * (channels + 3) + 4)


@pytest.mark.parametrize("strides", [1, 2])
def test_transposed_depthwise_along_one_axis(strides: int) -> None:
    need_avx512()
    region, channels = Region(), 24
    x = region.builder.param("x", tensor((2, channels, 21)))
    weight = region.builder.const(region.draw(channels, 1, 4))
    attrs = {"groups": channels, "strides": (strides,), "padding": (2, 1)}
    region.finish(emit(region, "nn.conv1d_transpose", x, weight, **attrs))
    assert "nn.conv1d_transpose  conv:any+jit_dw" in region.source
    check_sums(region, [region.draw(2, channels, 21)], 10)


def test_depthwise_of_bytes_along_one_axis() -> None:
    need_avx512()
    region, channels = Quantised(), 32
    x = region.builder.param("x", tensor((1, channels, 40), "uint8"))
    value = emit(region, "nn.conv1d", region.restore(x, 1 / 64, 128), region.weights(channels, 1, 5), groups=channels)
    region.finish(region.quantise(value, 1 / 16, 128))
    image = region.integers(1, channels, 40, dtype="uint8")
    (found,), (exact,) = region.run(image), region.oracle(image)
    assert "nn.conv1d + quantize" in region.source
    assert np.abs(found.astype(int) - exact.astype(int)).max() <= 1
    assert (found != exact).mean() < 0.01


@pytest.mark.parametrize(
    ("num_images", "channels", "outputs", "size", "stays"),
    [
        (1, 16, 16, 40, True),
        (4, 32, 40, 40, True),
        (4, 16, 16, 12, True),
        (4, 16, 16, 40, False),
        (1, 48, 16, 12, False),
    ],
)
def test_images_of_few_channels_stay_in_their_blocks(
    num_images: int, channels: int, outputs: int, size: int, stays: bool
) -> None:
    need_avx512()
    region, shape, attrs = Region(), (num_images, 3, size, size), {"padding": (1, 1, 1, 1)}
    x = region.builder.param("x", tensor(shape))
    value = emit(region, "nn.conv2d", x, region.builder.const(region.draw(channels, 3, 3, 3)), **attrs)
    weight = region.builder.const(region.draw(outputs, channels, 3, 3))
    region.finish(emit(region, "nn.relu", emit(region, "nn.conv2d", value, weight, **attrs)))
    (second,) = (line for line in region.source.splitlines() if line.startswith("nn.conv2d + nn.relu"))
    assert second.startswith("nn.conv2d + nn.relu  jit:avx512_core") is stays
    assert (":aBcd16b, " in second) is stays
    check_sums(region, [region.draw(*shape)], 2 * 9 * (3 + channels) + 2)
