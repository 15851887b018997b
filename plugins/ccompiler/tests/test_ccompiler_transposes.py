"""``permute_dims``: every order of axes, dtypes of every width, sizes divisible by tiles and others."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import tensor

from plugins.ccompiler.tests.bench import Bench, assert_sum

MATRICES = [(16, 16), (17, 33), (5, 64), (64, 5), (1, 40), (40, 1), (0, 20), (20, 0), (31, 47), (100, 130)]


def _numbers(shape: Sequence[int], dtype: str) -> Any:
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
def test_matrices(march: str) -> None:
    bench = Bench(march=march)
    cases = [
        (bench.op("permute_dims", [tensor(shape, dtype)]), shape, dtype)
        for shape in MATRICES
        for dtype in ("float32", "float64", "int8", "int16", "bool", "int64")
    ]
    for function, shape, dtype in cases:
        x = _numbers(shape, dtype)
        np.testing.assert_array_equal(bench.run(function, x)[0], x.T, err_msg=f"{shape} {dtype}")


def test_every_order_of_four_axes(bench: Bench) -> None:
    shape = (3, 18, 2, 20)
    functions = {
        order: bench.op("permute_dims", [tensor(shape)], axes=order) for order in itertools.permutations(range(4))
    }
    x = _numbers(shape, "float32")
    for order, function in functions.items():
        np.testing.assert_array_equal(bench.run(function, x)[0], x.transpose(order), err_msg=str(order))


def test_sizes_that_a_call_shows(bench: Bench) -> None:
    functions = {
        order: bench.op("permute_dims", [tensor(("n", "h", "w"))], axes=order)
        for order in ((0, 2, 1), (2, 1, 0), (1, 2, 0), (1, 0, 2))
    }
    for order, function in functions.items():
        for shape in ((2, 3, 4), (2, 40, 19), (0, 5, 5), (17, 1, 16), (33, 7, 21)):
            x = _numbers(shape, "float32")
            np.testing.assert_array_equal(bench.run(function, x)[0], x.transpose(order), err_msg=f"{order} {shape}")


def test_bits_of_nan_are_moved_as_they_are(bench: Bench) -> None:
    function = bench.op("permute_dims", [tensor((16, 32))])
    x = np.random.default_rng(0).integers(0, 2**32, (16, 32), "uint32")
    (actual,) = bench.run(function, x.view("float32"))
    np.testing.assert_array_equal(actual.view("uint32"), x.T)


def test_tiles_are_turned_in_registers(bench: Bench) -> None:
    bench.op("permute_dims", [tensor((2, 64, 64))], axes=(0, 2, 1))
    assert "_turn_f32(from" in bench.module.get_source()


def test_a_result_written_in_another_order_is_turned_in_registers(bench: Bench) -> None:
    """A convolution of volumes writes its result with the channels first, a view of the images."""
    builder = bench.builder()
    x = builder.param("x0", tensor((1, 32, 2, 8, 9)))
    filter_ = np.random.default_rng(0).standard_normal((32, 32, 1, 1, 1)).astype("float32")
    function = bench.add(builder, builder.emit("nn.conv3d", x, filter_))
    assert bench.module.get_source().count("_turn_f32(from") == 2
    image = np.random.default_rng(1).standard_normal((1, 32, 2, 8, 9)).astype("float32")
    (actual,) = bench.run(function, image)
    (oracle,) = bench.reference(function, image, wide=True)
    magnitude = np.einsum("oi,nidhw->nodhw", np.abs(filter_[..., 0, 0, 0]), np.abs(image))
    assert_sum(actual, oracle, magnitude, 32)


def test_results_of_large_powers_of_two_are_written_in_memory_order(bench: Bench) -> None:
    """Planes of 4,096 bytes share the sets of a cache: the innermost loop goes along a row, not across planes."""
    builder = bench.builder()
    x = builder.param("x0", tensor((1, 4, 16, 16)))
    filter_ = np.random.default_rng(0).standard_normal((4, 10, 2, 2)).astype("float32")
    function = bench.add(builder, builder.emit("nn.conv2d_transpose", x, filter_, strides=(2, 2)))
    assert re.search(r"i\d < 2; \+\+i\d\) (\{\s*)?out\[", bench.module.get_source())
    image = np.random.default_rng(1).standard_normal((1, 4, 16, 16)).astype("float32")
    (actual,) = bench.run(function, image)
    oracle = np.einsum("iouv,niyx->noyuxv", filter_.astype("float64"), image).reshape(1, 10, 32, 32)
    magnitude = np.einsum("iouv,niyx->noyuxv", np.abs(filter_), np.abs(image)).reshape(1, 10, 32, 32)
    assert_sum(actual, oracle, magnitude, 4)
