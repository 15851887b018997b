"""The tensors stored in a model, from their declarations alone: no data is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import onnx

from byoc_core.dtypes import dtype_info
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.inspection.rows import Weight
from byoc_core.frontend.onnx.loading import LoadedModel
from byoc_core.frontend.onnx.weights import DTYPES

__all__ = ["dtype_text", "list_weights"]


def list_weights(model: LoadedModel) -> list[Weight]:
    """Return the initializers of all graphs, and the tensors of nodes ``Constant``, in the order of the file.

    Tensors of functions are listed once. External data may be missing.

    Cost: ``O(nodes + tensors)``.
    """
    found = [*_graph_weights(model.graph)]
    for function in model.functions.values():
        found += _node_weights(function.node)
    return found


def dtype_text(element_type: int) -> str:
    """Return the dtype of an element type; the name in ONNX for a dtype unknown to byoc."""
    if element_type in DTYPES:
        return DTYPES[element_type]
    names: dict[int, str] = {number: name for name, number in onnx.TensorProto.DataType.items()}
    return names.get(element_type, f"number {element_type}").lower()


def _graph_weights(graph: onnx.GraphProto) -> Iterator[Weight]:
    for tensor in graph.initializer:
        yield _weight(tensor, tensor.name)
    for sparse in graph.sparse_initializer:
        yield _weight(sparse.values, sparse.values.name)
    yield from _node_weights(graph.node)


def _node_weights(nodes: Sequence[onnx.NodeProto]) -> Iterator[Weight]:
    for node in nodes:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield _weight(attribute.t, node.output[0] if node.output else "")
        for _, graph in subgraphs(node):
            yield from _graph_weights(graph)


def _weight(tensor: onnx.TensorProto, name: str) -> Weight:
    shape = tuple(max(int(size), 0) for size in tensor.dims)
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        nbytes = sum(map(len, tensor.string_data))
    else:
        bits = 8 if dtype == "bool" else dtype_info(dtype).bits
        nbytes = -(-prod(shape) * bits // 8)
    return Weight(name, dtype_text(tensor.data_type), shape, nbytes)
