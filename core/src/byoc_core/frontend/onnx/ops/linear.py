"""Importers for linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.proven_sizes import with_columns, with_size
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _import_matmul(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("matmul", *with_columns(node, node.value(0), node.value(1))),)


def _import_gemm(node: NodeContext) -> Sequence[Imported]:
    """Import ``alpha * A' @ B' + beta * C``; with ``transB`` the product is ``nn.dense``."""
    alpha, beta = node.attr_float("alpha", 1.0), node.attr_float("beta", 1.0)
    left, right = node.value(0), node.value(1)
    for index in (0, 1):
        if len(node.shape(index)) != 2:
            raise node.error(f"input {index} is not a matrix", got=f"rank {len(node.shape(index))}")
    if node.attr_flag("transA"):
        left = node.emit("permute_dims", left, axes=(1, 0))
    if node.attr_flag("transB"):
        result: Value = node.emit("nn.dense", with_size(node, left, 1, node.shape(1)[1]), right)
    else:
        result = node.emit("matmul", *with_columns(node, left, right))
    if alpha != 1.0:
        result = node.emit("multiply", result, node.scalar(alpha, 0))
    if not node.has_input(2) or beta == 0.0:
        return (result,)
    bias, bias_shape = node.value(2), node.shape(2)
    if beta != 1.0:
        bias = node.emit("multiply", bias, node.scalar(beta, 0))
    columns = node.shape(1)[0 if node.attr_flag("transB") else 1]
    op = "nn.bias_add" if bias_shape == (columns,) else "add"
    return (node.emit(op, result, bias),)


def _import_einsum(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("einsum", *node.values(), equation=node.attr_string("equation")),)


IMPORTERS: dict[str, NodeImporter] = {"Einsum": _import_einsum, "Gemm": _import_gemm, "MatMul": _import_matmul}
"""The family's importers, by ONNX name."""
