"""Pooling of integers in the place of floats."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, Quantised, emit, need_products_of_bytes

WINDOWS = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("op", "attrs"), [("nn.max_pool2d", WINDOWS), ("nn.adaptive_max_pool2d", {"output_size": (2, 1)})]
)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 200), ("int8", -5)])
def test_the_largest_is_found_among_the_integers(op: str, attrs: dict[str, Any], dtype: str, zero: int) -> None:
    need_products_of_bytes()
    image = Quantised(seed=1).integers(2, 16, 8, 7, dtype="uint8")

    def convolved(end: str) -> Quantised:
        region = Quantised()
        x = region.restore(region.builder.param("x", tensor(image.shape, "uint8")), 0.03, 99)
        value = emit(region, "nn.conv2d", x, region.weights(32, 16, 3, 3), padding=(1, 1, 1, 1))
        value = region.quantise(value, 0.02, zero, dtype)
        if end == "convolution":
            return region.finish(value)
        value = emit(region, op, region.restore(value, 0.02, zero, dtype), **attrs)
        if end == "product":
            value = emit(region, "nn.conv2d", value, region.weights(16, 32, 1, 1))
        return region.finish(region.quantise(value, 0.02, zero, dtype) if end == "bytes" else value)

    (integers,) = convolved("convolution").run(image)
    assert len(np.unique(integers)) > 20
    floats, bytes_, product = (convolved(end) for end in ("floats", "bytes", "product"))
    for region in (floats, bytes_, product):
        assert f"{op}  byoc" in region.source
        assert region.source.count("dequantize") == (region is floats)
    (pooling,) = (binding for binding in floats.function.bindings if binding.op.name == op)
    largest = KERNELS[op](integers.astype(np.float32), **dict(pooling.attrs))
    np.testing.assert_array_equal(bytes_.run(image)[0], largest)
    np.testing.assert_array_equal(floats.run(image)[0], (largest - np.float32(zero)) * np.float32(0.02))
    # The product of the same integers, given by the caller.
    alone = Quantised()
    alone.weights(32, 16, 3, 3)  # draws what the others have drawn
    x = alone.restore(alone.builder.param("x", tensor(largest.shape, dtype)), 0.02, zero, dtype)
    alone.finish(emit(alone, "nn.conv2d", x, alone.weights(16, 32, 1, 1)))
    (exact,), (found,) = alone.oracle(largest.astype(dtype)), product.run(image)
    (magnitude,) = alone.oracle(largest.astype(dtype), magnitudes=True)
    assert (np.abs(found - exact) <= 8 * 2 * UNIT * magnitude).all()


@pytest.mark.parametrize("scale", [[-0.02], [0.02] * 32])
def test_where_integers_are_not_ordered_as_their_numbers_floats_are_pooled(scale: list[float]) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((1, 32, 8, 7), "int8"))
    numbers = np.array(scale[0] if len(scale) == 1 else scale, np.float32)
    parameters = [region.builder.const(array) for array in (numbers, np.zeros(numbers.shape, np.int8))]
    region.finish(emit(region, "nn.max_pool2d", emit(region, "dequantize", x, *parameters, axis=1), **WINDOWS))
    given = region.integers(1, 32, 8, 7)
    np.testing.assert_array_equal(region.run(given)[0], region.oracle(given)[0].astype(np.float32))
    assert "nn.max_pool2d  byoc" not in region.source


@pytest.mark.parametrize("shape", [(1, 8, 7, 16), (2, 7, 7, 16), (2, 8, 7, 1)])
def test_integers_of_other_sizes_than_is_said_are_refused(shape: tuple[int, ...]) -> None:
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor((2, 8, 7, 16), "uint8")), 0.03, 99)
    region.finish(emit(region, "nn.max_pool2d", x, layout="NHWC", **WINDOWS))
    assert "nn.max_pool2d  byoc" in region.source
    document = json.loads(byoc_save_module(region.module))
    document["functions"][0]["nodes"][0]["outputs"][0]["shape"] = list(shape)
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(json.dumps(document).encode(), LoadContext(constants=region.builder.constants))
    assert "(`dequantize`): breaks the type rule of the op: result 0 has another type" in str(caught.value)


AXES = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 6))


@st.composite
def windows(draw: st.DrawFn, rank: int) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Draw sizes of an image and windows, each with a tap in the image."""
    axes: list[tuple[int, ...]] = []
    for _ in range(rank):
        size, taps, stride, dilation, pad = draw(AXES)
        reach = (taps - 1) * dilation + 1
        before, after = min(pad, reach - 1), draw(st.integers(0, reach - 1))
        taps, dilation = (taps, dilation) if dilation <= size else (1, 1)
        before, after = (before, after) if taps > 1 and size + before + after >= reach else (0, 0)
        taps = taps if size + before + after >= (taps - 1) * dilation + 1 else 1
        axes.append((size, taps, stride, dilation, before, after))
    sizes, pool_size, strides, dilations, begin, end = zip(*axes, strict=True)
    return sizes, {"pool_size": pool_size, "strides": strides, "dilation": dilations, "padding": (*begin, *end)}


@settings(max_examples=200)
@given(
    rank=st.integers(1, 2),
    data=st.data(),
    channels=st.sampled_from([1, 3, 16, 31, 32, 33, 63, 64, 65, 96, 97, 130]),
    images=st.integers(1, 3),
    dtype=st.sampled_from(["uint8", "int8"]),
    is_last=st.booleans(),
)
def test_the_largest_of_any_bytes_is_numpys(
    rank: int, data: st.DataObject, channels: int, images: int, dtype: str, is_last: bool
) -> None:
    sizes, attrs = data.draw(windows(rank))
    shape = (images, *sizes, channels) if is_last else (images, channels, *sizes)
    layout = "N" + "HW"[2 - rank :] + "C" if is_last else "NC" + "HW"[2 - rank :]
    op, region = f"nn.max_pool{rank}d", Quantised()
    x = region.builder.param("x", tensor(shape, dtype))
    region.finish(emit(region, op, x, layout=layout, **attrs))
    given_array = region.integers(*shape, dtype=dtype)
    (found,) = region.run(given_array)
    expected = KERNELS[op](given_array, layout=layout, ceil_mode=False, **attrs)
    np.testing.assert_array_equal(found, expected)
    assert f"{op}  byoc" in region.source or f"{op}  jit_int" in region.source


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("op", ["nn.max_pool2d", "nn.adaptive_max_pool2d"])
def test_bytes_are_pooled_without_the_extension(op: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_products_of_bytes()
    monkeypatch.setattr("byoc_dnnl.lowerings.pooling.extension", lambda: None)
    region = Quantised()
    attrs = WINDOWS if op == "nn.max_pool2d" else {"output_size": (4, 2)}
    shape = (2, 8, 6, 32) if layout == "NHWC" else (2, 32, 8, 6)
    region.finish(emit(region, op, region.builder.param("x", tensor(shape, "int8")), layout=layout, **attrs))
    given_array = region.integers(*shape)
    (binding,) = region.function.bindings
    np.testing.assert_array_equal(region.run(given_array)[0], KERNELS[op](given_array, **dict(binding.attrs)))
    assert f"{op}  jit_int" in region.source
