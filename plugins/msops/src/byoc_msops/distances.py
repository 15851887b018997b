"""The importer of the distances of all pairs of rows (CDist)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

from byoc_msops.operands import number_like

__all__ = ["IMPORTERS"]


def _import_distances(node: NodeContext) -> Sequence[Imported]:
    """Import distances by a product: ``|a|**2 + |b|**2 - 2 * a @ b.T``, at least 0."""
    metric = node.attr_string("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise node.error("attribute `metric` is unsupported", got=metric, expected="euclidean or sqeuclidean")
    for index in (0, 1):
        if len(node.shape(index)) != 2:
            raise node.error(f"input {index} is no matrix", got=node.shape(index))
    left, right = node.value(0), node.value(1)
    squares = [node.emit("sum", node.emit("multiply", x, x), axis=(1,), keepdims=True) for x in (left, right)]
    lengths = node.emit("add", squares[0], node.reshape(squares[1], (1, node.shape(1)[0])))
    product = node.emit("multiply", node.emit("nn.dense", left, right), number_like(node, left, 2.0))
    result = node.emit("maximum", node.emit("subtract", lengths, product), number_like(node, left, 0.0))
    return (result if metric == "sqeuclidean" else node.emit("sqrt", result),)


IMPORTERS: Mapping[str, NodeImporter] = {"CDist": _import_distances}
"""The module's importers, by operator."""
