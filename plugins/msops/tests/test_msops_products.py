"""Matrix products with transposes, factors and activations."""

from __future__ import annotations

from typing import Any

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

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {}),
    ((3, 4), (4, 5), {"alpha": 0.125}),
    ((3, 4), (5, 4), {"transB": 1}),
    ((2, 6, 3, 4), (2, 6, 5, 4), {"transB": 1, "alpha": 0.5}),
    ((2, 3, 4), (5, 4), {"transB": 1}),
    ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((6, 4, 3), (2, 6, 4, 5), {"transA": 1}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ((4, 2, 3), (5, 2, 4), {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
    ((3, 2, 6, 4), (2, 6, 4, 5), {"transBatchA": 1}),
    ((4,), (5, 4), {"transB": 1}),
    ((4,), (4, 5), {"transA": 1}),
]


def _operands(left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float32") -> list[Array]:
    return [rng(index).standard_normal(shape).astype(dtype) for index, shape in enumerate((left, right))]


@pytest.mark.parametrize(("left", "right", "attrs"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fused_matmul(left: tuple[int, ...], right: tuple[int, ...], attrs: dict[str, Any], dtype: str) -> None:
    check_node("FusedMatMul", _operands(left, right, dtype), dynamic={3: "rows", 6: "heads"}, **attrs)


@pytest.mark.parametrize(("left", "right", "attrs"), CASES[:5])
def test_fused_matmul_of_halves(left: tuple[int, ...], right: tuple[int, ...], attrs: dict[str, Any]) -> None:
    """ONNX Runtime has float32 and float64 only."""
    operands = _operands(left, right, "float16")
    (expected,) = run_node("FusedMatMul", [operand.astype(np.float32) for operand in operands], **attrs)
    check_results(run_node("FusedMatMul", operands, **attrs), [expected.astype(np.float16)])


def test_a_vector_on_the_right_of_a_transposed_matrix() -> None:
    """ONNX Runtime reads the matrix without transposing."""
    left, right = _operands((4, 3), (4,))
    check_results(run_node("FusedMatMul", [left, right], transA=1), [left.T @ right])


def test_transpose_matmul() -> None:
    check_node("TransposeMatMul", _operands((2, 3, 4), (2, 5, 4)), transB=1, alpha=2.0)


ACTIVATIONS: list[tuple[str, tuple[float, ...]]] = [
    ("Relu", ()),
    ("Tanh", ()),
    ("Sigmoid", ()),
    ("Softplus", ()),
    ("Softsign", ()),
    ("LeakyRelu", (0.3,)),
    ("Elu", (0.3,)),
    ("ThresholdedRelu", (0.3,)),
    ("HardSigmoid", (0.3, 0.6)),
    ("ScaledTanh", (0.3, 0.6)),
    ("ParametricSoftplus", (0.3, 0.6)),
    ("Selu", (0.3, 0.0, 1.5)),
]


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
def test_fused_gemm(activation: str, parameters: tuple[float, ...]) -> None:
    named = {f"activation_{name}": value for name, value in zip(("alpha", "beta", "gamma"), parameters, strict=False)}
    inputs = [*_operands((4, 3), (5, 4)), rng(2).standard_normal(5).astype(np.float32)]
    attrs: dict[str, Any] = {"activation": activation, "alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1, **named}
    check_node("FusedGemm", inputs, dynamic={3: "rows"}, **attrs)


def test_fused_gemm_without_addend() -> None:
    check_node("FusedGemm", _operands((3, 4), (4, 5)), activation="Relu")


def test_product_with_gelu() -> None:
    """ONNX Runtime has no kernel for processors: the oracle are two nodes."""
    inputs = [*_operands((2, 3, 4), (4, 5)), rng(2).standard_normal(5).astype(np.float32)]
    (product,) = run_onnxruntime("FusedMatMul", inputs[:2])
    expected = run_onnxruntime("FastGelu", [product, inputs[2]])
    check_results(run_node("GemmFastGelu", inputs, dynamic={3: "rows"}), expected)


def test_ccompiler_takes_products() -> None:
    check_offload("FusedMatMul", _operands((2, 6, 8, 16), (2, 6, 8, 16)), transB=1, alpha=0.25)
    inputs = [*_operands((8, 16), (32, 16)), np.ones(32, np.float32)]
    check_offload("FusedGemm", inputs, transB=1, activation="LeakyRelu", activation_alpha=0.1)


def test_malformed_nodes() -> None:
    operands = _operands((3, 4), (4, 5))
    assert refusal("FusedGemm", operands, activation="Cube").startswith(
        "attribute `activation` is unknown; got Cube, expected Clip, Elu, "
    )
    assert refusal("FusedGemm", operands, activation="HardSigmoid", activation_alpha=0.5) == (
        "lacks parameters of the activation HardSigmoid; got ['alpha'], expected ['alpha', 'beta']"
    )
    assert refusal("FusedMatMul", operands, alpha=1.0, beta=1.0) == "has unsupported attributes; got beta"
    assert "op `matmul`" in refusal("FusedMatMul", operands, transA=1)
