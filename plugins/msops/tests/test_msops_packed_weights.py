"""Weights of 2, 4 and 8 bits in blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import (
    Array,
    check_node,
    check_offload,
    check_results,
    refusal,
    rng,
    run_node,
    run_onnxruntime,
)

pytestmark = pytest.mark.asks_for_plugins

ROWS = 6
EITHER = pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])


def pack(integers: Array, bits: int) -> Array:
    """Return bytes of the integers along the last axis, padded with zeros; the first integer has the low bits."""
    per_byte = 8 // bits
    missing = -integers.shape[-1] % per_byte
    padded = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    parts = padded.reshape(*padded.shape[:-1], -1, per_byte).astype(np.uint32)
    return np.asarray((parts << (bits * np.arange(per_byte))).sum(-1).astype(np.uint8))


def blocks(
    bits: int, width: int, block_size: int, dtype: str = "float32"
) -> tuple[Array, Array, Array, dict[str, Any]]:
    """Return bytes ``(rows, blocks, size)``, scales, integer zero points, and the attributes."""
    count = -(-width // block_size)
    integers = rng(1).integers(0, 1 << bits, (ROWS, count, block_size))
    scales = rng(2).uniform(0.01, 0.1, (ROWS, count)).astype(dtype)
    zeros = rng(3).integers(0, 1 << bits, (ROWS, count))
    attrs = {"N": ROWS, "K": width, "bits": bits, "block_size": block_size}
    return pack(integers, bits), scales, zeros, attrs


@EITHER
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("width", "block_size"), [(64, 32), (48, 32), (70, 16), (17, 16), (96, 16)])
@pytest.mark.parametrize("zero_points", ["none", "bytes", "flat"])
def test_products(bits: int, width: int, block_size: int, zero_points: str, constants: Any) -> None:
    weight, scales, zeros, attrs = blocks(bits, width, block_size)
    packed = None if zero_points == "none" else pack(zeros, bits)
    if zero_points == "flat" and packed is not None:
        scales, packed = scales.reshape(-1), packed.reshape(-1)
    x = rng().standard_normal((7, width)).astype(np.float32)
    check_node("MatMulNBits", [x, weight, scales, packed], constants=constants, dynamic={7: "rows"}, **attrs)


@EITHER
def test_variants_of_products(constants: Any) -> None:
    weight, scales, zeros, attrs = blocks(4, 64, 32)
    keywords: dict[str, Any] = {**attrs, "constants": constants, "dynamic": {3: "rows"}}
    x, bias = rng().standard_normal((3, 5, 64)).astype(np.float32), rng(4).standard_normal(ROWS).astype(np.float32)
    check_node("MatMulNBits", [x, weight, scales, pack(zeros, 4), None, bias], **keywords)
    between = rng(5).uniform(0, 15, scales.shape).astype(np.float32)
    check_node("MatMulNBits", [x, weight, scales, between], **keywords)
    check_node("MatMulNBits", [x, weight, scales], accuracy_level=1, **keywords)


def test_other_accuracy() -> None:
    """ONNX Runtime may round the operand to bytes: 127 steps of the largest element of a block."""
    weight, scales, _, attrs = blocks(4, 64, 32)
    x = rng().standard_normal((3, 64)).astype(np.float32)
    (exact,) = run_onnxruntime("MatMulNBits", [x, weight, scales], **attrs)
    check_results(run_node("MatMulNBits", [x, weight, scales], accuracy_level=4, **attrs), [exact])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_of_halves(bits: int) -> None:
    weight, scales, zeros, attrs = blocks(bits, 64, 32, "float16")
    x = rng().standard_normal((3, 64)).astype(np.float16)
    check_node("MatMulNBits", [x, weight, scales, pack(zeros, bits)], error=2.0**-8, **attrs)


def test_consecutive_groups() -> None:
    """The order of weights without effect: the oracle is the node without order."""
    weight, scales, zeros, attrs = blocks(4, 70, 16)
    x = rng().standard_normal((3, 70)).astype(np.float32)
    groups = (np.arange(70) // 16).astype(np.int32)
    expected = run_onnxruntime("MatMulNBits", [x, weight, scales, pack(zeros, 4)], **attrs)
    given = [x, weight, scales, pack(zeros, 4), groups]
    check_results(run_node("MatMulNBits", given, constants={4}, **attrs), expected)


TABLE: dict[str, Any] = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("indices", [[[1, 0, 4], [4, 2, 2]], [3, 3, 0], 2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [96, 80])
@EITHER
def test_gathering(bits: int, has_zeros: bool, indices: Any, dtype: str, width: int, constants: Any) -> None:
    count = -(-width // 32)
    data, zeros = (pack(rng(seed).integers(0, 1 << bits, (5, size)), bits) for seed, size in ((1, width), (2, count)))
    scales = rng(3).uniform(0.01, 0.1, (5, count)).astype(dtype)
    given = [data, np.array(indices, np.int64), scales, zeros if has_zeros else None]
    stored = set(constants) - {1} | ({0} if constants else set())
    check_node("GatherBlockQuantized", given, constants=stored, dynamic={3: "count"}, bits=bits, **TABLE)


@pytest.mark.parametrize("dtype", ["uint4", "int4"])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("gather_axis", "quantise_axis"), [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_gathering_of_single_integers(dtype: str, has_zeros: bool, gather_axis: int, quantise_axis: int) -> None:
    low = 0 if dtype == "uint4" else -8
    shape = (32, 48, 32)
    parts = list(shape)
    parts[quantise_axis] = -(-shape[quantise_axis] // 16)
    kind = getattr(ml_dtypes, dtype)
    data, zeros = (rng(seed).integers(low, low + 16, size).astype(kind) for seed, size in ((1, shape), (2, parts)))
    scales = rng(3).uniform(0.01, 0.1, parts).astype(np.float32)
    given: list[Array | None] = [data, np.array([1, 0, 7], np.int32), scales, zeros if has_zeros else None]
    attrs: dict[str, Any] = {"gather_axis": gather_axis, "quantize_axis": quantise_axis, "block_size": 16}
    check_node("GatherBlockQuantized", given, opset=21, constants={0, 2, 3}, **attrs)


def test_ccompiler_takes_packed_weights() -> None:
    weight, scales, zeros, attrs = blocks(4, 64, 32)
    x = rng().standard_normal((3, 64)).astype(np.float32)
    for constants in ((), (1, 2, 3)):
        check_offload("MatMulNBits", [x, weight, scales, pack(zeros, 4)], constants=constants, **attrs)
    given = [pack(rng(1).integers(0, 16, (5, 64)), 4), np.array([3, 1]), scales[:5], pack(zeros[:5], 4)]
    check_offload("GatherBlockQuantized", given, constants={0, 2, 3}, bits=4, **TABLE)


def test_malformed_nodes() -> None:
    weight, scales, _, attrs = blocks(4, 64, 32)
    x = rng().standard_normal((3, 64)).astype(np.float32)
    given = [x, weight, scales]

    def found(inputs: list[Array], **changed: int) -> str:
        return refusal("MatMulNBits", inputs, **{**attrs, **changed})

    assert found(given, bits=3) == "attribute `bits` has an unsupported value; got 3, expected 2, 4 or 8"
    assert found(given, block_size=0) == "attribute `block_size` is not positive; got 0"
    assert found(given, weight_prepacked=1) == "attribute `weight_prepacked` has an unsupported value; expected 0"
    assert found(given, K=96).startswith("input 1 has another size; ")
    groups = np.arange(64).astype(np.int32)
    assert refusal("MatMulNBits", [*given, None, groups], **attrs) == (
        "has an order of weights (input `g_idx`), an unsupported feature"
    )
    data, indices = np.zeros((5, 32), np.uint8), np.array([1])

    def gathered(array: Array, **changed: int) -> str:
        return refusal("GatherBlockQuantized", [array, indices, scales[:5]], **{**TABLE, **changed})

    assert gathered(data.astype(np.int16)) == (
        "has data of an unsupported dtype; got int16, expected uint8, uint4 or int4"
    )
    assert gathered(data, gather_axis=1, quantize_axis=0) == "gathers along the axis of blocks or of bytes; got 1"
    assert gathered(np.zeros((5, 5, 5), np.uint8), quantize_axis=1) == (
        "has blocks along another axis than bytes; got 1, expected 2"
    )
