"""Images of a few channels written as bytes with channels last, for convolutions."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.native import extension, extension_status
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Quantised, emit, need_products_of_bytes

needs_extension = pytest.mark.skipif(extension() is None, reason=extension_status() or "it is there")
KERNEL = "quantize  byoc"
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-45, *np.arange(-130, 260) + 0.5]


def _from_floats(shape: tuple[int, ...], scale: float, zero: int, dtype: str, num_readers: int = 1) -> Quantised:
    """Return convolutions of a quantised image, each after a ``dequantize`` of its own."""
    region = Quantised()
    bytes_ = region.quantise(region.builder.param("x", tensor(shape)), scale, zero, dtype)
    return _convolve(region, [region.restore(bytes_, scale, zero, dtype) for _ in range(num_readers)], shape)


def _from_bytes(shape: tuple[int, ...], scale: float, zero: int, dtype: str) -> Quantised:
    region = Quantised()
    bytes_ = region.builder.param("x", tensor(shape, dtype))
    return _convolve(region, [region.restore(bytes_, scale, zero, dtype)], shape)


def _convolve(region: Quantised, images: list[Any], shape: tuple[int, ...]) -> Quantised:
    rank = len(shape) - 2
    found = [emit(region, f"nn.conv{rank}d", x, region.weights(16, shape[1], *[1] * rank)) for x in images]
    return region.finish(found[0] if len(found) == 1 else emit(region, "add", *found))


def _quantised(x: NDArray, scale: float, zero: int, dtype: str) -> NDArray:
    return np.asarray(KERNELS["quantize"](x, np.array(scale, np.float32), np.array(zero, dtype), axis=1, block_size=0))


@needs_extension
@settings(max_examples=100)
@given(
    data=st.data(),
    images=st.integers(1, 3),
    channels=st.integers(2, 4),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    dtype=st.sampled_from(["uint8", "int8"]),
    scale=st.sampled_from([1.0, 0.02, 0.7, 2.0**-80]),
)
def test_convolutions_read_the_bytes_of_the_reference_kernel(
    data: st.DataObject, images: int, channels: int, sizes: list[int], dtype: str, scale: float
) -> None:
    need_products_of_bytes()
    zero = data.draw(st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max))
    shape = (images, channels, *sizes)
    floats, bytes_ = (make(shape, scale, zero, dtype) for make in (_from_floats, _from_bytes))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = (generator.standard_normal(shape) * 100 * scale).astype(np.float32)
    edges = np.array(EDGES, np.float32) * np.float32(scale)
    np.put(x, generator.integers(0, x.size, x.size // 2 + 1), generator.permutation(edges))
    assert KERNEL in floats.source
    np.testing.assert_array_equal(floats.run(x)[0], bytes_.run(_quantised(x, scale, zero, dtype))[0])


@needs_extension
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_share_the_pixels_of_all_images(num_threads: int) -> None:
    """Each pixel is written once: chunks of threads begin and end within images."""
    need_products_of_bytes()
    shape = (3, 3, 67, 61)
    floats, bytes_ = (make(shape, 0.02, 77, "uint8") for make in (_from_floats, _from_bytes))
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    (expected,) = bytes_.run(_quantised(x, 0.02, 77, "uint8"))
    executable = byoc_core.build(floats.ir, ["dnnl"], fallback="error")
    found = byoc_core.VirtualMachine(executable, num_threads=num_threads)["f"](x)
    np.testing.assert_array_equal(found, expected)


@needs_extension
def test_no_images_give_no_results() -> None:
    need_products_of_bytes()
    region = Quantised()
    bytes_ = region.quantise(region.builder.param("x", tensor(("n", 3, 9, 8))), 0.02, 77)
    _convolve(region, [region.restore(bytes_, 0.02, 77)], (2, 3, 9, 8))
    for count in (0, 2, 0):
        (found,) = region.run(np.ones((count, 3, 9, 8), np.float32))
        assert found.shape == (count, 16, 9, 8)


@needs_extension
def test_one_image_of_bytes_serves_all_convolutions() -> None:
    need_products_of_bytes()
    region = _from_floats((1, 3, 9, 8), 0.02, 100, "uint8", num_readers=2)
    assert region.source.count(KERNEL) == 1
    assert not [line for line in region.source.splitlines() if line.startswith("reorder") and "uint8" in line]


@needs_extension
@pytest.mark.parametrize("kind", ["5 channels", "channels last", "a result too", "a scale for each channel"])
def test_other_images_are_divided_by_onednn(kind: str) -> None:
    need_products_of_bytes()
    region = Quantised()
    shape = {"5 channels": (1, 5, 9, 8), "channels last": (1, 4, 8, 3)}.get(kind, (1, 3, 9, 8))
    x = region.builder.param("x", tensor(shape))
    if kind == "a scale for each channel":
        parameters = [region.builder.const(np.full(3, 0.02, np.float32)), region.builder.const(np.zeros(3, np.int8))]
    else:
        parameters = [region.builder.const(np.array(0.02, np.float32)), region.builder.const(np.array(0, np.int8))]
    bytes_ = emit(region, "quantize", x, *parameters, axis=1)
    layout = {"data_layout": "NHWC"} if kind == "channels last" else {}
    image = emit(region, "dequantize", bytes_, *parameters, axis=1)
    value = emit(region, "nn.conv2d", image, region.weights(16, 3 if layout else shape[1], 1, 1), **layout)
    region.finish(value, *[bytes_] * (kind == "a result too"))
    given_array = np.random.default_rng(0).standard_normal(shape, np.float32)
    exact, found, (magnitude, *_) = (
        region.oracle(given_array),
        region.run(given_array),
        region.oracle(given_array, magnitudes=True),
    )
    assert (np.abs(found[0] - exact[0]) <= 8 * 2 * UNIT * magnitude).all()
    assert KERNEL not in region.source


def test_images_are_bytes_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    need_products_of_bytes()
    monkeypatch.setattr("byoc_dnnl.lowerings.quantisation.extension", lambda: None)
    shape = (1, 3, 9, 8)
    floats, bytes_ = (make(shape, 0.02, 77, "uint8") for make in (_from_floats, _from_bytes))
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(floats.run(x)[0], bytes_.run(_quantised(x, 0.02, 77, "uint8"))[0])
    assert KERNEL not in floats.source
