"""Importers for optional values: known during import, or with a flag at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.strings import in_order
from byoc_core.frontend.onnx.sequence_value import MapSequence, OptionalValue, RunTimeSequence, SequenceValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS", "present_value"]


def present_value(node: NodeContext, optional: OptionalValue) -> Imported:
    """Return the value of an optional value; an absent value is an error: of the call, if only running tells.

    Raises:
        FrontendError: the value is absent for certain.
    """
    if optional.value is None or optional.is_present is False:
        raise node.error("reads an optional value that is absent")
    if optional.is_present is True:
        return optional.value
    value = optional.value
    if isinstance(value, SequenceValue):
        return value
    if isinstance(value, RunTimeSequence):
        return replace(value, shapes=_checked(node, value.shapes, optional.is_present))
    if isinstance(value, StringTensor):
        strings = in_order(node, value)
        return StringTensor(strings.data, _checked(node, strings.lengths, optional.is_present))
    if isinstance(value, MapSequence):
        return replace(value, values=_checked(node, value.values, optional.is_present))
    return _checked(node, node.to_value(value, "an optional value"), optional.is_present)


def _checked(node: NodeContext, value: Value, is_present: Value) -> Value:
    """Return the value; if absent, its position among the only value is out of range."""
    row = node.emit("expand_dims", value, axis=(0,))
    return node.emit("take", row, node.emit("cast", node.emit("logical_not", is_present), dtype="int64"), axis=0)


def _import_optional(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("type")
    return (OptionalValue(True, node.imported(0)) if node.has_input(0) else OptionalValue(False, None),)


def _import_has_element(node: NodeContext) -> Sequence[Imported]:
    if not node.has_input(0):
        return (np.array(False),)
    value = node.imported(0)
    is_present = value.is_present if isinstance(value, OptionalValue) else True
    return (np.array(is_present) if isinstance(is_present, bool) else is_present,)


def _import_get_element(node: NodeContext) -> Sequence[Imported]:
    value = node.imported(0)
    return (present_value(node, value) if isinstance(value, OptionalValue) else value,)


IMPORTERS: dict[str, NodeImporter] = {
    "Optional": _import_optional,
    "OptionalGetElement": _import_get_element,
    "OptionalHasElement": _import_has_element,
}
"""The family's importers, by ONNX name."""
