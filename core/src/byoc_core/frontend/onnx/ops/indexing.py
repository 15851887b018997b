"""Importers for gathers, scatters, one-hot, and for ops repeating or reversing slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import read_sizes
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _import_gather_elements(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("gather_elements", node.value(0), node.value(1), axis=node.attr_int("axis", 0)),)


def _import_gather_nd(node: NodeContext) -> Sequence[Imported]:
    batch_dims = node.attr_int("batch_dims", 0) if node.opset >= 12 else 0
    return (node.emit("gather_nd", node.value(0), node.value(1), batch_dims=batch_dims),)


def _read_reduction(node: NodeContext) -> str:
    """Return the treatment of updates; before opset 16 updates replace.

    ``min`` and ``max`` came with opset 18, but PyTorch writes both for opset 16 and 17 too, and ONNX Runtime runs both.
    """
    if node.opset < 16:
        return "update"
    reduction = node.attr_string("reduction", "none")
    if reduction not in _REDUCTIONS:
        raise node.error("attribute `reduction` is unknown", got=reduction, expected=" or ".join(_REDUCTIONS))
    return "update" if reduction == "none" else reduction


def _import_scatter(node: NodeContext) -> Sequence[Imported]:
    if node.opset >= 11:
        raise node.error("the op is deprecated since operator set 11", hint="Use ScatterElements.")
    return _import_scatter_elements(node)


def _import_scatter_elements(node: NodeContext) -> Sequence[Imported]:
    axis, reduction = node.attr_int("axis", 0), _read_reduction(node)
    return (node.emit("scatter_elements", *node.values(), axis=axis, reduction=reduction),)


def _import_scatter_nd(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("scatter_nd", *node.values(), reduction=_read_reduction(node)),)


def _import_tensor_scatter(node: NodeContext) -> Sequence[Imported]:
    rank = len(node.shape(0))
    axis, mode = node.axis(node.attr_int("axis", -2), rank), node.attr_string("mode", "linear")
    if axis == 0:
        raise node.error("attribute `axis` is the batch axis", got=axis, expected=f"1 to {rank - 1}")
    starts = node.value(2) if node.has_input(2) else node.constant(np.zeros((), np.int64))
    return (node.emit("scatter_slice", node.value(0), node.value(1), starts, axis=axis, mode=mode),)


def _import_one_hot(node: NodeContext) -> Sequence[Imported]:
    """Import one-hot; float indices are rounded towards zero by the specification (ONNX Runtime rounds differently)."""
    indices = node.value(0)
    if is_float(node.type(0).dtype):
        indices = node.emit("cast", indices, dtype="int64")
    off_value, on_value = _read_one_hot_values(node)
    axis = node.attr_int("axis", -1)
    return (node.emit("one_hot", indices, on_value, off_value, depth=_read_depth(node), axis=axis),)


def _read_depth(node: NodeContext) -> Dim:
    """Return the only element of input 1; the element may be of any dtype of numbers."""
    array = node.array(1)
    if array is None or array.dtype.name in ("int32", "int64"):
        depths = read_sizes(node, 1, 1)
    else:
        numbers = array.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise node.error("the depth is not finite", got=numbers.tolist())
        depths = tuple(map(int, numbers.flat))
    if len(depths) != 1:
        raise node.error("the depth is not a single number", got=f"{len(depths)} numbers")
    return depths[0]


def _read_one_hot_values(node: NodeContext) -> tuple[Value, Value]:
    """Return the values off and on, the two elements of input 2, as 0-d tensors."""
    array = node.array(2)
    if array is not None and array.shape == (2,):
        return node.constant(array[0]), node.constant(array[1])
    values = node.reshape(node.value(2), (2,))
    indices = (node.constant(np.array(index)) for index in range(2))
    off_value, on_value = (node.emit("take", values, index, axis=0) for index in indices)
    return off_value, on_value


def _import_tile(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("tile", node.value(0), repeats=read_sizes(node, 1, len(node.shape(0)))),)


def _import_reverse_sequence(node: NodeContext) -> Sequence[Imported]:
    axes = {"batch_axis": node.attr_int("batch_axis", 1), "seq_axis": node.attr_int("time_axis", 0)}
    return (node.emit("reverse_sequence", node.value(0), node.value(1), **axes),)


IMPORTERS: dict[str, NodeImporter] = {
    "GatherElements": _import_gather_elements,
    "GatherND": _import_gather_nd,
    "OneHot": _import_one_hot,
    "ReverseSequence": _import_reverse_sequence,
    "Scatter": _import_scatter,
    "ScatterElements": _import_scatter_elements,
    "ScatterND": _import_scatter_nd,
    "TensorScatter": _import_tensor_scatter,
    "Tile": _import_tile,
}
"""The family's importers, by ONNX name."""
