"""Importers of operators with a counterpart in the standard: padding, axes, triangles, ranges and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

from byoc_msops.operands import emit_standard

__all__ = ["IMPORTERS"]


def _flat(node: NodeContext, index: int) -> Imported:
    """Return an input as a vector; known numbers stay known."""
    array, shape = node.array(index), node.shape(index)
    if len(shape) == 1:
        return node.imported(index)
    return array.reshape(-1) if array is not None else node.reshape(node.value(index), (shape[0] * shape[-1],))


def _scalar(node: NodeContext, index: int) -> Imported:
    """Return an input with a single element as scalar; known numbers stay known.

    Raises:
        FrontendError: the input has several elements.
    """
    if node.shape(index) == ():
        return node.imported(index)
    if node.shape(index) != (1,):
        raise node.error(f"input {index} is no scalar", got=node.shape(index))
    array = node.array(index)
    return array.reshape(()) if array is not None else node.reshape(node.value(index), ())


def _import_pad(node: NodeContext) -> Sequence[Imported]:
    """Import padding by the widths in a vector, or in a matrix of a single row."""
    if len(node.shape(1)) not in (1, 2) or (len(node.shape(1)) == 2 and node.shape(1)[0] != 1):
        raise node.error("input 1, the widths, has the wrong shape", got=node.shape(1), expected="(2 * rank,)")
    mode = node.attr_string("mode", "constant")
    value = _scalar(node, 2) if node.has_input(2) else None
    return (emit_standard(node, "Pad", [node.imported(0), _flat(node, 1), value], {"mode": mode}),)


def _import_expand_dims(node: NodeContext) -> Sequence[Imported]:
    axis = node.array(1)
    if axis is None or axis.size != 1:
        raise node.error("input 1, the axis, is no constant number")
    return node.import_operator("Unsqueeze", [node.imported(0), axis.reshape(1).astype(np.int64)], opset=13)


def _import_trilu(node: NodeContext) -> Sequence[Imported]:
    diagonal = node.imported(1) if node.has_input(1) else None
    return (emit_standard(node, "Trilu", [node.imported(0), diagonal], {"upper": node.attr_int("upper", 1)}),)


def _import_unique(node: NodeContext) -> Sequence[Imported]:
    """Import the distinct elements in the order of appearance, the index of each element, and the counts."""
    if len(node.shape(0)) != 1:
        raise node.error("input 0 is no vector", got=node.shape(0))
    found = node.import_operator("Unique", [node.imported(0)], {"sorted": 0}, opset=11, num_outputs=4)
    return found[0], found[2], found[3]


def _import_range(node: NodeContext) -> Sequence[Imported]:
    """Import ``start, limit, step``; the step is 1 if omitted."""
    bounds = [_scalar(node, index) for index in range(2)]
    step = _scalar(node, 2) if node.has_input(2) else node.scalar(1.0, 0)
    return node.import_operator("Range", [*bounds, step], opset=11)


def _import_gather_nd(node: NodeContext) -> Sequence[Imported]:
    indices: Imported = node.imported(1)
    if node.type(1).dtype != "int64":
        indices = node.emit("cast", node.value(1), dtype="int64")
    return (emit_standard(node, "GatherND", [node.imported(0), indices]),)


def _import_grid_sample(node: NodeContext) -> Sequence[Imported]:
    attributes: dict[str, object] = {
        name: node.attr_string(name) for name in ("mode", "padding_mode") if node.has_attr(name)
    }
    attributes["align_corners"] = node.attr_int("align_corners", 0)
    return (emit_standard(node, "GridSample", [node.imported(0), node.imported(1)], attributes, opset=16),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "ExpandDims": _import_expand_dims,
    "GatherND": _import_gather_nd,
    "GridSample": _import_grid_sample,
    "Pad": _import_pad,
    "Range": _import_range,
    "Trilu": _import_trilu,
    "Unique": _import_unique,
}
"""The module's importers, by operator."""
