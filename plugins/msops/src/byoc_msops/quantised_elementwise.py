"""Importers of elementwise ops, joins and softmax of quantised tensors, computed in floats between two conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

from byoc_msops.operands import emit_standard
from byoc_msops.quantised_tensors import dequantised, quantised

__all__ = ["IMPORTERS"]


def _binary(op: str) -> NodeImporter:
    """Build the importer of an op of two tensors."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        result = node.emit(op, dequantised(node, 0), dequantised(node, 3))
        return (quantised(node, result, 6, node.type(0).dtype),)

    return import_node


def _import_sigmoid(node: NodeContext) -> Sequence[Imported]:
    return (quantised(node, node.emit("sigmoid", dequantised(node, 0)), 3, node.type(0).dtype),)


def _import_leaky_relu(node: NodeContext) -> Sequence[Imported]:
    result = node.emit("nn.leaky_relu", dequantised(node, 0), alpha=node.attr_float("alpha", 0.01))
    return (quantised(node, result, 3, node.type(0).dtype),)


def _import_softmax(node: NodeContext) -> Sequence[Imported]:
    """Import softmax with the meaning of the axis in the operator set of the attribute ``opset``."""
    axis, opset = node.attr_int("axis", -1), node.attr_int("opset")
    result = emit_standard(node, "Softmax", [dequantised(node, 0)], {"axis": axis}, opset=opset)
    return (quantised(node, result, 3, node.type(0).dtype),)


def _import_concat(node: NodeContext) -> Sequence[Imported]:
    """Import the join of any number of tensors; scale and zero point of the result come first."""
    count = node.num_inputs - 2
    if count < 3 or count % 3:
        raise node.error("has an incomplete tensor", got=f"{node.num_inputs} inputs", expected="2, and 3 each")
    parts = [dequantised(node, index) for index in range(2, node.num_inputs, 3)]
    axis = node.axis(node.attr_int("axis"), len(node.shape(2)))
    return (quantised(node, node.emit("concat", *parts, axis=axis), 0, node.type(2).dtype),)


def _import_where(node: NodeContext) -> Sequence[Imported]:
    result = node.emit("where", node.value(0), dequantised(node, 1), dequantised(node, 4))
    return (quantised(node, result, 7, node.type(1).dtype),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "QLinearAdd": _binary("add"),
    "QLinearConcat": _import_concat,
    "QLinearLeakyRelu": _import_leaky_relu,
    "QLinearMul": _binary("multiply"),
    "QLinearSigmoid": _import_sigmoid,
    "QLinearSoftmax": _import_softmax,
    "QLinearWhere": _import_where,
}
"""The module's importers, by operator."""
