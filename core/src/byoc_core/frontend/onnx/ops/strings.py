"""Tensors of strings: constants, movement of elements, and the strings in order."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.data_sizes import size_value
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx_names import OnnxName
from byoc_core.ir.module import Value

__all__ = ["MOVING", "STRUCTURES", "Pool", "in_order", "read_strings"]

_MOVING = (
    *("Compress", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape"),
    *("ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
    *("Unsqueeze", "Where"),
)

MOVING: frozenset[OnnxName] = frozenset({*(("", name) for name in _MOVING), ("ai.onnx.ml", "ArrayFeatureExtractor")})
"""The operators that only move elements, or read the shape, by domain and name."""

STRUCTURES = frozenset(
    {"If", "Loop", "Scan", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceConstruct"}
)
"""The operators that take values of any kind."""


class Pool:
    """The common pool of several tensors of strings, to be moved together.

    Args:
        node: the node that moves the elements.
        tensors: the tensors.
    """

    def __init__(self, node: NodeContext, tensors: Sequence[StringTensor]) -> None:
        self._node = node
        rows = [node.reshape(tensor.lengths, (product(node.shape_of(tensor.lengths)),)) for tensor in tensors]
        self.indices: list[Value] = []
        first: Dim = 0
        for tensor, lengths in zip(tensors, rows, strict=True):
            self.indices.append(self._shifted(tensor, first))
            first = first + node.shape_of(lengths)[0]
        self._data = _joined(node, [tensor.data for tensor in tensors])
        self._lengths = _joined(node, rows)

    def _shifted(self, tensor: StringTensor, first: Dim) -> Value:
        node = self._node
        if tensor.index is None:
            shape = node.shape_of(tensor.lengths)
            return node.reshape(node.emit("arange", start=first, stop=first + product(shape)), shape)
        if first == 0:
            return tensor.index
        return node.emit("add", tensor.index, size_value(node, first))

    def tensor(self, index: Imported) -> StringTensor:
        """Return the tensor with these numbers of strings in the pool."""
        return StringTensor(self._data, self._lengths, self._node.to_value(index, "the numbers of strings"))


def in_order(node: NodeContext, tensor: StringTensor) -> StringTensor:
    """Return the tensor with its strings in order, without numbers."""
    if tensor.index is None:
        return tensor
    shape = node.shape_of(tensor.index)
    flat = node.reshape(tensor.index, (product(shape),))
    (data,) = emit_sized(node, "ragged_take", tensor.data, tensor.lengths, flat)
    return StringTensor(data, node.reshape(node.emit("take", tensor.lengths, flat, axis=0), shape))


def read_strings(node: NodeContext, index: int) -> StringTensor:
    """Return an input of strings with the strings in order, without numbers.

    Raises:
        FrontendError: the input is no tensor of strings.
    """
    form = node.imported(index)
    if not isinstance(form, StringTensor):
        raise node.error(f"needs `{node.input_names[index]}` as a tensor of strings")
    return in_order(node, form)


def _joined(node: NodeContext, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else node.emit("concat", *values, axis=0)
