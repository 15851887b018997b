"""Importers of operators on maps: values by a vocabulary of keys, and values in the order of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy

from byoc_mlops.scores import cast_to

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, MapValue, NodeContext, NodeImporter, StringTensor
    from byoc_core.ir import Value

__all__ = ["IMPORTERS"]

_DTYPES = {"TO_FLOAT": "float32", "TO_INT64": "int64", "TO_STRING": "string"}
_ONNX_TYPES = {"float32": 1, "int64": 7, "string": 8}


def _import_dict_vectorizer(node: NodeContext) -> Sequence[Imported]:
    """Import the values of a map in the order of a vocabulary of keys, with zeros or empty strings for absent keys.

    Shapes: a map becomes ``(1, C)``.
    """
    from byoc_core.frontend.onnx import StringTensor, emit_key_index

    form = _read_map(node)
    names = [name for name in ("int64_vocabulary", "string_vocabulary") if node.has_attr(name)]
    if len(names) != 1:
        raise node.error("has not exactly one vocabulary", got=len(names))
    has_text_keys = isinstance(form.keys, StringTensor)
    if (names == ["string_vocabulary"]) != has_text_keys:
        kind = "strings" if has_text_keys else "integers"
        raise node.error(f"has a map of another kind of keys than `{names[0]}`", got=kind)
    if isinstance(form.keys, StringTensor):
        vocabulary = node.strings(node.attr_strings(names[0]))
        index = emit_key_index(node, vocabulary, form.keys)
    else:
        words = node.constant(np.array(node.attr_ints(names[0]), np.int64))
        index = node.emit("mlops.key_index", words, cast_to(node, form.keys, "int64"))
    return (_select_row(node, form.values, index),)


def _import_cast_map(node: NodeContext) -> Sequence[Imported]:
    """Import the values of a map, cast, in the order of keys, or each at the place of its key among ``max_map``.

    Shapes: a map becomes ``(1, n)``, or ``(1, max_map)``.
    """
    from byoc_core.frontend.onnx import StringTensor

    form = _read_map(node)
    if isinstance(form.keys, StringTensor):
        raise node.error("has a map of another kind of keys than integers", got="strings")
    target, packing = node.attr_string("cast_to", "TO_FLOAT"), node.attr_string("map_form", "DENSE")
    for name, value, choices in (("cast_to", target, [*_DTYPES]), ("map_form", packing, ["DENSE", "SPARSE"])):
        if value not in choices:
            raise node.error(f"attribute `{name}` is unknown", got=value, expected=" or ".join(choices))
    size, keys = node.attr_int("max_map", 1), cast_to(node, form.keys, "int64")
    values = _cast(node, form.values, _DTYPES[target])
    if packing == "DENSE":
        return (_select_row(node, values, node.emit("argsort", keys, axis=0)),)
    if size < 1:
        raise node.error("attribute `max_map` is not positive", got=size)
    (count,) = node.shape_of(keys)
    # A negative key is no place counted from the end, but outside.
    is_negative = node.emit("less", keys, node.constant(np.int64(0)))
    slots = node.emit("where", is_negative, node.constant(np.int64(size)), keys)
    absent = node.emit("broadcast_to", _size(node, count), shape=(size,))
    index = node.emit("scatter_elements", absent, slots, node.emit("arange", stop=count), axis=0)
    return (_select_row(node, values, index),)


def _read_map(node: NodeContext) -> MapValue:
    from byoc_core.frontend.onnx import MapValue

    form = node.imported(0)
    if not isinstance(form, MapValue):
        raise node.error(f"needs `{node.input_names[0]}` as a map")
    return form


def _size(node: NodeContext, size: Dim) -> Value:
    from byoc_core.frontend.onnx import ShapeValue

    return node.to_value(ShapeValue.scalar(size), "a size")


def _select_row(node: NodeContext, values: Value | StringTensor, index: Value) -> Imported:
    """Return the values at positions ``(C,)`` as a row; a position behind the values is zero or an empty string."""
    from byoc_core.frontend.onnx import StringTensor

    row = node.reshape(index, (1, *node.shape_of(index)))
    if isinstance(values, StringTensor):
        lengths = node.emit("concat", values.lengths, node.constant(np.zeros(1, np.int64)), axis=0)
        return StringTensor(values.data, lengths, row)
    zero: npt.NDArray[Any] = np.zeros(1, to_numpy(node.tensor_type(values).dtype))
    return node.emit("take", node.emit("concat", values, node.constant(zero), axis=0), row, axis=0)


def _cast(node: NodeContext, values: Value | StringTensor, dtype: str) -> Value | StringTensor:
    """Return values in another dtype; the package ``onnx`` converts strings."""
    from byoc_core.frontend.onnx import StringTensor

    if not isinstance(values, StringTensor) and dtype != "string":
        return cast_to(node, values, dtype)
    if isinstance(values, StringTensor) and dtype == "string":
        return values
    (converted,) = node.import_operator("Cast", [values], {"to": _ONNX_TYPES[dtype]}, opset=13)
    return converted if isinstance(converted, StringTensor) else node.to_value(converted, "values")


IMPORTERS: Mapping[str, NodeImporter] = {
    "CastMap": _import_cast_map,
    "DictVectorizer": _import_dict_vectorizer,
}
"""The module's importers, by ONNX name."""
