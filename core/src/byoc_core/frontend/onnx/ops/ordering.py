"""Importers for ops sorting elements, and for cumulative ops."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_axes import along_axis
from byoc_core.frontend.onnx.ops.data_sizes import count_of, is_computed, read_sizes
from byoc_core.frontend.onnx.shape_value import ShapeValue

__all__ = ["IMPORTERS"]


def _import_topk(node: NodeContext) -> Sequence[Imported]:
    """Import top-k; ``k`` is an attribute before opset 10, then an input; before opset 11 the largest, sorted."""
    k = (node.attr_int("k"),) if node.opset < 10 else read_sizes(node, 1, 1)
    if len(k) != 1:
        raise node.error("`k` is not a single number", got=ShapeValue(k))
    flags = {name: node.attr_flag(name, default=True) for name in ("largest", "sorted") if node.opset >= 11}
    return node.emit_all("topk", (node.value(0),), {"k": k[0], "axis": node.attr_int("axis", -1), **flags})


def _cumulative(op: str) -> NodeImporter:
    """Build the importer of a cumulative op with the axis as input."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        flags = {name: node.attr_flag(name) for name in ("exclusive", "reverse")}
        if is_computed(node, 1) and count_of(node, 1, 1) == 1:
            return (along_axis(node, 1, lambda value: node.emit(op, value, axis=1, **flags)),)
        axes = node.ints(1)
        if len(axes) != 1:
            raise node.error("the axis is not a single number", got=axes)
        return (node.emit(op, node.value(0), axis=axes[0], **flags),)

    return import_node


IMPORTERS: dict[str, NodeImporter] = {
    "CumProd": _cumulative("cumprod"),
    "CumSum": _cumulative("cumsum"),
    "TopK": _import_topk,
}
"""The family's importers, by ONNX name."""
