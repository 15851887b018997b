"""The external files of a model: weights stored beside the model file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import onnx

from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.loading import load_model

__all__ = ["external_files"]


def external_files(model: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the names of the files with external data of a model file, relative to its folder, sorted.

    Raises:
        FrontendError: the file cannot be read, or is no ONNX model.
    """
    loaded = load_model(model)
    nodes = (node for function in loaded.functions.values() for node in function.node)
    tensors = [*_of_graph(loaded.graph), *_of_nodes(nodes)]
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    return tuple(sorted({entry.value for entry in entries if entry.key == "location"}))


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
        for _, graph in subgraphs(node):
            yield from _of_graph(graph)
