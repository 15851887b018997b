"""Importer of the unique slices of a tensor of strings."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.strings import read_strings
from byoc_core.frontend.onnx.string_tensor import StringTensor

__all__ = ["import_unique_slices"]


def import_unique_slices(node: NodeContext) -> Sequence[Imported]:
    """Import ``Unique`` of strings along an axis: of the numbers of the strings in their order."""
    strings = read_strings(node, 0)
    shape = node.shape_of(strings)
    flat = StringTensor(strings.data, node.reshape(strings.lengths, (product(shape),)))
    words, _, indices, _ = node.import_operator("Unique", [flat], opset=node.opset, num_outputs=4)
    assert isinstance(words, StringTensor)
    numbers = node.reshape(node.to_value(indices, "the numbers of strings"), shape)
    attributes = {"axis": node.attr_int("axis"), "sorted": node.attr_int("sorted", 1)}
    slices, *index_outputs = node.import_operator("Unique", [numbers], attributes, opset=node.opset, num_outputs=4)
    return [StringTensor(words.data, words.lengths, node.to_value(slices, "unique slices")), *index_outputs]
