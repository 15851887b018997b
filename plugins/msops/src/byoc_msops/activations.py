"""Importers of activations with their additions: Gelu, FastGelu, BiasGelu, QuickGelu, BiasAdd and BiasSplitGelu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.operands import split_axis

__all__ = ["IMPORTERS", "add_bias"]


def add_bias(node: NodeContext, value: Value, index: int) -> Value:
    """Return a value plus an input of the node, a number for each index of the last axis; unchanged without the input.

    Raises:
        FrontendError: the input is no vector.
    """
    if not node.has_input(index):
        return value
    if len(node.shape(index)) != 1:
        raise node.error(f"input {index}, the bias, is no vector", got=node.shape(index))
    return node.emit("nn.bias_add", value, node.value(index), axis=len(node.shape_of(value)) - 1)


def _import_gelu(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.gelu", node.value(0)),)


def _import_bias_gelu(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.gelu", add_bias(node, node.value(0), 1)),)


def _import_fast_gelu(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.gelu", add_bias(node, node.value(0), 1), approximate="tanh"),)


def _import_quick_gelu(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.swish", node.value(0), alpha=node.attr_float("alpha", 1.702)),)


def _import_bias_add(node: NodeContext) -> Sequence[Imported]:
    """Import ``X + bias + skip``."""
    return (node.emit("add", add_bias(node, node.value(0), 1), node.value(2)),)


def _import_bias_split_gelu(node: NodeContext) -> Sequence[Imported]:
    """Import ``left * gelu(right)`` of the halves of ``X + bias``."""
    x = add_bias(node, node.value(0), 1)
    width = node.shape_of(x)[-1]
    if isinstance(width, int) and width % 2:
        raise node.error("the last size of input 0 is odd", got=width)
    left, right = split_axis(node, x, (width // 2, width // 2), -1)
    return (node.emit("multiply", left, node.emit("nn.gelu", right)),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "BiasAdd": _import_bias_add,
    "BiasGelu": _import_bias_gelu,
    "BiasSplitGelu": _import_bias_split_gelu,
    "FastGelu": _import_fast_gelu,
    "Gelu": _import_gelu,
    "QuickGelu": _import_quick_gelu,
}
"""The module's importers, by operator."""
