"""Activations with their additions."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import Array, check_node, check_offload, check_results, refusal, rng, run_node

pytestmark = pytest.mark.asks_for_plugins

X = rng().standard_normal((2, 5, 6)).astype(np.float32) * 3
BIAS = rng(1).standard_normal(6).astype(np.float32)
SIZES = {2: "batch", 5: "steps"}


@pytest.mark.parametrize("x", [X, X[0], X[0, 0], np.array([-100, -6, 0, 1e-3, 6, 100], np.float32)])
def test_activations(x: Array) -> None:
    check_node("Gelu", [x], dynamic=SIZES)
    check_node("QuickGelu", [x], dynamic=SIZES)
    check_node("QuickGelu", [x], dynamic=SIZES, alpha=0.7)
    check_node("FastGelu", [x], dynamic=SIZES)
    check_node("FastGelu", [x, BIAS], dynamic=SIZES)
    check_node("BiasGelu", [x, BIAS], dynamic=SIZES)


@pytest.mark.parametrize("op_type", ["Gelu", "QuickGelu", "FastGelu"])
def test_activations_of_halves(op_type: str) -> None:
    """ONNX Runtime has float32 only."""
    x = X.astype(np.float16)
    (expected,) = run_node(op_type, [x.astype(np.float32)])
    check_results(run_node(op_type, [x]), [expected.astype(np.float16)])


def test_additions() -> None:
    """ONNX Runtime has no kernel for processors: the oracle is the formula, with ``Gelu`` of the halves."""
    x, skip = X, rng(2).standard_normal(X.shape).astype(np.float32)
    check_results(run_node("BiasAdd", [x, BIAS, skip], dynamic=SIZES), [x + BIAS + skip])
    left, right = np.split(x + BIAS, 2, axis=-1)
    (gelu,) = run_node("Gelu", [right])
    check_results(run_node("BiasSplitGelu", [x, BIAS], dynamic=SIZES), [left * gelu])


def test_ccompiler_takes_activations() -> None:
    for op_type in ("Gelu", "QuickGelu", "FastGelu"):
        check_offload(op_type, [X])
    for op_type in ("BiasGelu", "FastGelu", "BiasSplitGelu"):
        check_offload(op_type, [X, BIAS])


def test_malformed_nodes() -> None:
    assert refusal("BiasGelu", [X, X]) == "input 1, the bias, is no vector; got (2, 5, 6)"
    assert refusal("BiasSplitGelu", [X[..., :5], BIAS[:5]]) == "the last size of input 0 is odd; got 5"
