"""Dequantised tensors with other sizes or axes: the integers are moved, and dequantised at their readers."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.ir import Value, tensor

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Quantised, emit, need_products_of_bytes

SHAPE = (2, 8, 5, 6)


def _restored(region: Quantised) -> tuple[Value, NDArray]:
    x = region.builder.param("x", tensor(SHAPE, "uint8"))
    return region.restore(x, 0.37, 12), region.integers(*SHAPE, dtype="uint8")


def _floats(array: NDArray) -> NDArray:
    result: NDArray = (array.astype(np.int64) - 12).astype(np.float32) * np.float32(0.37)
    return result


def test_what_is_moved_and_quantised_again_is_never_restored() -> None:
    region = Quantised()
    value, array = _restored(region)
    value = emit(region, "reshape", value, shape=(2, 8, 30))
    value = emit(region, "permute_dims", value, axes=(0, 2, 1))
    value = emit(region, "expand_dims", value, axis=(1,))
    region.finish(region.quantise(value, 0.37, 12))
    (found,) = region.run(array)
    np.testing.assert_array_equal(found, array.reshape(2, 8, 30).transpose(0, 2, 1)[:, None])
    assert "quantize" not in region.source


def test_what_is_moved_and_read_as_floats_is_restored_once() -> None:
    region = Quantised()
    value, array = _restored(region)
    value = emit(region, "permute_dims", emit(region, "reshape", value, shape=(16, 30)), axes=(1, 0))
    region.finish(emit(region, "abs", value), value)
    magnitude, found = region.run(array)
    np.testing.assert_array_equal(found, _floats(array).reshape(16, 30).T)
    np.testing.assert_array_equal(magnitude, np.abs(found))
    assert region.source.count("dequantize") == 1


def test_what_others_read_too_is_restored_once() -> None:
    region = Quantised()
    value, array = _restored(region)
    region.finish(emit(region, "abs", value), emit(region, "negative", emit(region, "reshape", value, shape=(16, 30))))
    magnitude, found = region.run(array)
    np.testing.assert_array_equal(magnitude, np.abs(_floats(array)))
    np.testing.assert_array_equal(found, -_floats(array).reshape(16, 30))
    assert region.source.count("dequantize") == 1


def test_images_of_integers_become_rows() -> None:
    need_products_of_bytes()
    region = Quantised()
    value, array = _restored(region)
    middle = region.quantise(emit(region, "nn.conv2d", value, region.weights(16, 8, 3, 3)), 0.9, 128)
    value = emit(region, "reshape", region.restore(middle, 0.9, 128), shape=(2, 16 * 12))
    integers, scale = region.integers(7, 16 * 12), np.linspace(0.01, 0.02, 7, dtype=np.float32)
    parameters: list[NDArray] = [integers, scale, np.zeros(7, np.int8)]
    weight = emit(region, "dequantize", *map(region.builder.const, parameters), axis=0)
    region.finish(middle, emit(region, "nn.dense", value, weight))
    between, found = region.run(array)
    assert "dequantize" not in region.source
    assert len(np.unique(between)) > 20
    # Sums of bytes are exact; the result is rounded where it is scaled twice, and so is each scale.
    sums = (between.astype(np.int64).reshape(2, -1) - 128) @ integers.astype(np.int64).T
    exact = sums * (scale.astype(np.float64) * float(np.float32(0.9)))
    assert (np.abs(found - exact) <= 4 * UNIT * np.abs(exact)).all()


@pytest.mark.parametrize("axis", [None, 1])
def test_constants_are_restored_when_a_program_is_made(axis: int | None) -> None:
    region = Quantised()
    array = region.integers(6, 4)
    scale: NDArray = np.array(0.3, np.float32) if axis is None else np.linspace(0.1, 0.4, 4, dtype=np.float32)
    parameters = [array, scale, np.zeros(scale.shape, np.int8)]
    constant = emit(region, "dequantize", *map(region.builder.const, parameters), axis=0 if axis is None else axis)
    moved = emit(region, "permute_dims", emit(region, "reshape", constant, shape=(2, 3, 4)), axes=(1, 0, 2))
    x = region.builder.param("x", tensor((3, 2, 4)))
    region.finish(emit(region, "add", x, moved))
    given = region.draw(3, 2, 4)
    (found,) = region.run(given)
    expected = (array.astype(np.float32) * scale).reshape(2, 3, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(found, given + expected)
    assert "dequantize" not in region.source
