"""Products of bytes and of bfloat16 numbers as data: laws, and results of the ops in the interpreter."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import numpy as np
import pytest
from byoc_ccompiler.kernels import bfloat16_products, byte_products, matrix_tiles
from byoc_core.authoring import c
from byoc_core.dtypes import to_numpy
from byoc_core.ir import TensorType
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import Bench

SIZES = [(35, 70, 40), (3, 33, 20)]
"""Rows, depth, columns."""

Image = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
IMAGES: list[Image] = [
    ((1, 5, 6, 3), (18, 3, 3, 3), {"padding": (1, 1)}),
    ((2, 4, 5, 32), (19, 32, 2, 2), {"padding": (1, 0), "strides": (2, 1), "dilation": (1, 2)}),
    ((1, 3, 4, 5), (20, 5, 1, 1), {}),
]
"""Images, channels last, filters and attributes."""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[c.Function]:
    """Every declared kernel."""
    found: list[c.Function] = []

    def recorded(function: c.Function, **options: Any) -> c.Function:
        found.append(function)
        return c.outline(function, **options)

    monkeypatch.setattr(kernel_module, "outline", recorded)
    return found


def _interpreted(bench: Bench, kernels: list[c.Function], inputs: Sequence[NDArray], expected: NDArray) -> NDArray:
    """Return the result of the last kernel in the interpreter, with rounds in a random order."""
    source = bench.module.get_source()
    assert source
    assert "immintrin" not in source, "parsing intrinsics takes longer than compiling most kernels"
    kernel = kernels.pop()
    assert not kernels
    called = [callee.function for callee in c.uses_of(kernel).callees if callee.function is not None]
    assert [problem for function in (kernel, *called) for problem in c.problems_of(function)] == []
    out = np.zeros(expected.size, expected.dtype)
    arrays = {"out": out, "scratch": np.full(1 << 14, 77, np.uint32)}
    arrays |= {f"x{number}": array.reshape(-1) for number, array in enumerate(inputs)}
    for constant in bench.module.constants.values():
        arrays["starts" if constant.ndim == 1 else "weights"] = np.asarray(constant).reshape(-1)
    # A view has a name of its own.
    arguments = {item: arrays.get(item.name, arrays["x0"]) for item in kernel.parameters}
    c.interpret(kernel, arguments, order=random.Random(0))
    return out.reshape(expected.shape)


def _draw(shape: Sequence[int], dtype: str = "float32") -> NDArray:
    rng = np.random.default_rng(len(shape))
    if dtype == "float32":
        return rng.integers(-8, 8, shape).astype(to_numpy("bfloat16")).astype(np.float32)
    limits = np.iinfo(dtype)
    drawn: NDArray = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return drawn


@pytest.mark.parametrize("tiles", [0, 1])
@pytest.mark.parametrize("near_nbytes", [1 << 19, 0])
@pytest.mark.parametrize("right", ["constant", "matrix", "transposed"])
def test_rounded_products(
    kernels: list[c.Function], monkeypatch: pytest.MonkeyPatch, right: str, near_nbytes: int, tiles: int
) -> None:
    """Small integers are exact in bfloat16, and so are their sums."""
    monkeypatch.setattr(bfloat16_products, "_NEAR_NBYTES", near_nbytes)
    monkeypatch.setattr(bfloat16_products, "PERMIT", replace(matrix_tiles.PERMIT, evaluate=lambda: tiles))
    for rows, depth, columns in SIZES if right == "constant" else SIZES[:1]:
        bench = Bench(precision="bfloat16")
        builder = bench.builder()
        x, y = _draw((rows, depth)), _draw((columns, depth) if right == "transposed" else (depth, columns))
        inputs = [x] if right == "constant" else [x, y]
        operands: list[Any] = [
            builder.param(f"x{k}", TensorType(array.shape, "float32")) for k, array in enumerate(inputs)
        ]
        operands += [builder.const(y)] * (2 - len(operands))
        bench.add(builder, builder.emit("nn.dense" if right == "transposed" else "matmul", *operands))
        expected = x @ (y.T if right == "transposed" else y)
        np.testing.assert_array_equal(_interpreted(bench, kernels, inputs, expected), expected)


@pytest.mark.parametrize(("image", "is_planar"), [*((image, False) for image in IMAGES), (IMAGES[0], True)])
def test_rounded_convolutions(kernels: list[c.Function], image: Image, is_planar: bool) -> None:
    """Images of few channels may lie channel by channel."""
    shape, filter_, attrs = image
    bench = Bench(precision="bfloat16")
    builder, x = bench.builder(), _draw((shape[0], shape[3], *shape[1:3]) if is_planar else shape)
    value = builder.param("x0", TensorType(x.shape, "float32"))
    if is_planar:
        value = builder.emit("permute_dims", value, axes=(0, 2, 3, 1))
    result = builder.emit("nn.conv2d", value, builder.const(_draw(filter_)), data_layout="NHWC", **attrs)
    function = bench.add(builder, result)
    (expected,) = bench.reference(function, x)
    np.testing.assert_array_equal(_interpreted(bench, kernels, [x], expected), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("near_nbytes", [3 << 13, 1 << 9])
def test_products_of_bytes(
    kernels: list[c.Function], monkeypatch: pytest.MonkeyPatch, near_nbytes: int, dtype: str
) -> None:
    monkeypatch.setattr(byte_products, "_NEAR_NBYTES", near_nbytes)
    for rows, depth, columns in SIZES:
        bench = Bench()
        builder, x = bench.builder(), _draw((rows, depth), dtype)
        left = builder.emit("cast", builder.param("x0", TensorType(x.shape, dtype)), dtype="int32")
        right = builder.const(_draw((depth, columns), "int8").astype(np.int32))
        function = bench.add(
            builder, builder.emit("matmul", builder.emit("subtract", left, builder.const(np.int32(3))), right)
        )
        (expected,) = bench.reference(function, x)
        np.testing.assert_array_equal(_interpreted(bench, kernels, [x], expected), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("image", IMAGES)
def test_convolutions_of_bytes(kernels: list[c.Function], image: Image, dtype: str) -> None:
    shape, filter_, attrs = image
    bench = Bench()
    builder, x = bench.builder(), _draw(shape, dtype)
    left = builder.emit("cast", builder.param("x0", TensorType(x.shape, dtype)), dtype="int32")
    right = builder.const(_draw(filter_, "int8").astype(np.int32))
    result = builder.emit(
        "nn.conv2d", builder.emit("subtract", left, builder.const(np.int32(3))), right, data_layout="NHWC", **attrs
    )
    function = bench.add(builder, result)
    (expected,) = bench.reference(function, x)
    np.testing.assert_array_equal(_interpreted(bench, kernels, [x], expected), expected)
