"""Importers for triangles and diagonals of matrices, and for blocks of pixels as channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import as_number, count_of, elements, int_vector, is_computed
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.weights import dtype_of

__all__ = ["IMPORTERS"]


def _import_trilu(node: NodeContext) -> Sequence[Imported]:
    if node.has_input(1) and is_computed(node, 1) and count_of(node, 1, 1) == 1:
        (scalar,) = elements(node, int_vector(node, 1, 1), 1)
        diagonal: tuple[Dim, ...] = (as_number(node, scalar),)
    else:
        diagonal = node.dims(1) if node.has_input(1) else (0,)
    if len(diagonal) != 1:
        raise node.error("input `k` is not a single element", got=ShapeValue(diagonal))
    return (node.emit("trilu", node.value(0), k=diagonal[0], upper=node.attr_flag("upper", default=True)),)


def _import_eye_like(node: NodeContext) -> Sequence[Imported]:
    """Import the diagonal as the intersection of both triangles of a matrix of ones."""
    shape, k, dtype = node.shape(0), node.attr_int("k", 0), node.type(0).dtype
    if len(shape) != 2:
        raise node.error("the input is not a matrix", got=ShapeValue(shape), expected="rank 2")
    if node.has_attr("dtype"):
        dtype = dtype_of(node.attr_int("dtype"), f"{node.label}, attribute `dtype`")
    ones = node.emit("broadcast_to", node.constant(np.ones((), to_numpy(dtype))), shape=shape)
    return (node.emit("trilu", node.emit("trilu", ones, k=k, upper=True), k=k, upper=False),)


def _blocks(op: str, *, mode_since: int) -> NodeImporter:
    """Build the importer of an op moving blocks of pixels; attribute ``mode`` exists since opset ``mode_since``."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        mode = node.attr_string("mode", "DCR") if node.opset >= mode_since else "DCR"
        return (node.emit(op, node.value(0), block_size=node.attr_int("blocksize"), mode=mode),)

    return import_node


IMPORTERS: dict[str, NodeImporter] = {
    "DepthToSpace": _blocks("depth_to_space", mode_since=11),
    "EyeLike": _import_eye_like,
    "SpaceToDepth": _blocks("space_to_depth", mode_since=28),
    "Trilu": _import_trilu,
}
"""The family's importers, by ONNX name."""
