"""Importers of quantisation with integers of 16 bits, and of a recurrent layer with quantised weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.operands import emit_standard

__all__ = ["IMPORTERS"]


def _standard(op_type: str) -> NodeImporter:
    """Build the importer of an operator equal to the standard's; scales of an axis need the attribute."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        attributes = {"axis": node.attr_int("axis")} if node.has_attr("axis") else {}
        if node.shape(1) not in ((), (1,)) and not attributes:
            raise node.error("has a scale for each index of an unknown axis", got=node.shape(1))
        inputs = [node.imported(index) if node.has_input(index) else None for index in range(node.num_inputs)]
        return (emit_standard(node, op_type, inputs, attributes),)

    return import_node


def _weights(node: NodeContext, index: int, scale: int) -> Value:
    """Return quantised weights ``(D, I, 4H)`` as float32 ``(D, 4H, I)``.

    Scale and zero point, in the inputs from ``scale`` on, are ``(D,)`` or ``(D, 4H)``.
    """
    shape = node.shape(index)
    if len(shape) != 3:
        raise node.error(f"input {index}, weights, has the wrong rank", got=shape, expected="(D, I, 4H)")
    parameters: list[Value] = []
    for position in (scale, scale + 1):
        sizes = node.shape(position)
        if len(sizes) not in (1, 2):
            raise node.error(f"input {position} has the wrong rank", got=sizes, expected="(D,) or (D, 4H)")
        parameters.append(node.reshape(node.value(position), (sizes[0], 1, sizes[1] if len(sizes) == 2 else 1)))
    integers, zeros = (node.emit("cast", value, dtype="int32") for value in (node.value(index), parameters[1]))
    centred = node.emit("cast", node.emit("subtract", integers, zeros), dtype="float32")
    return node.emit("permute_dims", node.emit("multiply", centred, parameters[0]), axes=(0, 2, 1))


def _import_lstm(node: NodeContext) -> Sequence[Imported]:
    """Import an LSTM of float32 with dequantised weights.

    ONNX Runtime also quantises the inputs and the hidden states of each step, so its results are less accurate.
    """
    attributes: dict[str, object] = {"hidden_size": node.attr_int("hidden_size")}
    if node.has_attr("direction"):
        attributes["direction"] = node.attr_string("direction")
    if node.has_attr("activations"):
        attributes["activations"] = node.attr_strings("activations")
    for name in ("activation_alpha", "activation_beta"):
        if node.has_attr(name):
            attributes[name] = node.attr_floats(name)
    if node.has_attr("clip"):
        attributes["clip"] = node.attr_float("clip")
    attributes["input_forget"] = node.attr_int("input_forget", 0)
    optional = [node.imported(index) if node.has_input(index) else None for index in range(3, 8)]
    inputs = [node.imported(0), _weights(node, 1, 8), _weights(node, 2, 10), *optional]
    return node.import_operator("LSTM", inputs, attributes, opset=14, num_outputs=max(node.num_outputs, 1))


IMPORTERS: Mapping[str, NodeImporter] = {
    "DequantizeLinear": _standard("DequantizeLinear"),
    "DynamicQuantizeLSTM": _import_lstm,
    "QuantizeLinear": _standard("QuantizeLinear"),
}
"""The module's importers, by operator."""
