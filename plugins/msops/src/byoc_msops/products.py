"""Importers of matrix products with transposes, factors and activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.activations import add_bias
from byoc_msops.fused_activations import apply_activation, read_parameters
from byoc_msops.operands import emit_standard, number_like, permute

__all__ = ["IMPORTERS"]


def _turned(node: NodeContext, index: int, letter: str, *, keep_matrix: bool = False) -> Value:
    """Return an input with the transposes requested for it.

    The axes of ``(M, B..., K)`` become ``(B..., M, K)`` by ``transBatch``, and then ``(B..., K, M)`` by ``trans``.

    Args:
        node: the node.
        index: the input.
        letter: the input's letter in attributes.
        keep_matrix: whether to leave the exchange of the last two axes to the caller.
    """
    rank = len(node.shape(index))
    axes = list(range(rank))
    if node.attr_flag(f"transBatch{letter}") and rank > 2:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if node.attr_flag(f"trans{letter}") and rank > 1 and not keep_matrix:
        axes[-2:] = axes[:-3:-1]
    return permute(node, node.value(index), axes)


def _import_matmul(node: NodeContext) -> Sequence[Imported]:
    """Import ``alpha * A' @ B'``; a transposed matrix as right operand gives ``nn.dense``."""
    is_dense = node.attr_flag("transB") and len(node.shape(1)) == 2 and len(node.shape(0)) > 1
    left, right = _turned(node, 0, "A"), _turned(node, 1, "B", keep_matrix=is_dense)
    result: Value = node.emit("nn.dense" if is_dense else "matmul", left, right)
    alpha = node.attr_float("alpha", 1.0)
    return (result if alpha == 1.0 else node.emit("multiply", result, number_like(node, result, alpha)),)


def _import_gemm(node: NodeContext) -> Sequence[Imported]:
    numbers: Mapping[str, object] = {
        **{name: node.attr_float(name, 1.0) for name in ("alpha", "beta")},
        **{name: node.attr_int(name, 0) for name in ("transA", "transB")},
    }
    bias = node.imported(2) if node.has_input(2) else None
    result = emit_standard(node, "Gemm", [node.imported(0), node.imported(1), bias], numbers)
    return (apply_activation(node, result, read_parameters(node)),)


def _import_gelu(node: NodeContext) -> Sequence[Imported]:
    product = add_bias(node, node.emit("matmul", node.value(0), node.value(1)), 2)
    return (node.emit("nn.gelu", product, approximate="tanh"),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "FusedGemm": _import_gemm,
    "FusedMatMul": _import_matmul,
    "GemmFastGelu": _import_gelu,
    "TransposeMatMul": _import_matmul,
}
"""The module's importers, by operator."""
