"""A graph of a single operator of the ONNX standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

__all__ = ["operator_graph"]


def operator_graph(
    op_type: str, presence: Sequence[bool], attributes: Mapping[str, object], num_outputs: int
) -> onnx.GraphProto:
    """Return a graph of a single node. The inputs of the graph are the present inputs of the node, in order.

    Args:
        op_type: the operator.
        presence: whether each input of the operator is present.
        attributes: the attributes of the node.
        num_outputs: the number of outputs of the node and of the graph.
    """
    inputs = [f"input_{index}" if is_present else "" for index, is_present in enumerate(presence)]
    outputs = [f"output_{index}" for index in range(num_outputs)]
    graph = onnx.GraphProto(name=op_type)
    node = onnx.helper.make_node(op_type, inputs, outputs, name=op_type)
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
    graph.node.append(node)
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return graph
