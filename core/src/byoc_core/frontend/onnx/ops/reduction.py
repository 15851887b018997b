"""Importers of reductions."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]


def _reduction(op: str, *, axes_input_since: int) -> NodeImporter:
    """Gives the importer of a reduction whose axes are an attribute up to an opset, then an input."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        keepdims = node.attr_flag("keepdims", default=True)
        noop = False
        if node.opset >= axes_input_since:
            noop = node.attr_flag("noop_with_empty_axes")
            axes = node.ints(1) if node.has_input(1) else ()
        else:
            axes = node.attr_ints("axes", ())
        if not axes and noop:
            return (node.imported(0),)
        return (node.emit(op, node.value(0), axis=axes or None, keepdims=keepdims),)

    return import_node


def _import_arg(node: NodeContext, op: str) -> Sequence[Imported]:
    if node.attr_flag("select_last_index"):
        raise node.error("attribute `select_last_index` is not imported", got=1, expected="0")
    axis, keepdims = node.attr_int("axis", 0), node.attr_flag("keepdims", default=True)
    return (node.emit(op, node.value(0), axis=axis, keepdims=keepdims),)


def _import_argmax(node: NodeContext) -> Sequence[Imported]:
    return _import_arg(node, "argmax")


def _import_argmin(node: NodeContext) -> Sequence[Imported]:
    return _import_arg(node, "argmin")


IMPORTERS: dict[str, NodeImporter] = {
    "ArgMax": _import_argmax,
    "ArgMin": _import_argmin,
    "ReduceLogSumExp": _reduction("logsumexp", axes_input_since=18),
    "ReduceMax": _reduction("max", axes_input_since=18),
    "ReduceMean": _reduction("mean", axes_input_since=18),
    "ReduceMin": _reduction("min", axes_input_since=18),
    "ReduceProd": _reduction("prod", axes_input_since=18),
    "ReduceSum": _reduction("sum", axes_input_since=13),
}
"""The family's importers, by ONNX name."""
