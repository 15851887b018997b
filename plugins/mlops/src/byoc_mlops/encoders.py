"""Importers of encoders of categories and labels, and of maps by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byoc_mlops.scores import cast_to, read_labels

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
    from byoc_core.ir import Value

__all__ = ["IMPORTERS"]

NDArray = npt.NDArray[Any]

_KINDS = {"int64s": np.int64, "floats": np.float32}
_STRING_TENSOR = 8
"""The element type of tensors of strings in ONNX."""
_UNKNOWN = "_Unused"
"""The string of unknown keys by default."""
_DEFAULTS = {"int64s": ("default_int64", -1), "floats": ("default_float", -0.0)}


def _import_one_hot_encoder(node: NodeContext) -> Sequence[Imported]:
    """Import an encoder of integers or strings; of equal categories the last counts. Floats are truncated.

    Without ``zeros``, an unknown category is an error of the run.
    """
    from byoc_core.frontend.onnx import StringTensor, emit_key_index

    strings = node.imported(0)
    if isinstance(strings, StringTensor):
        node.ignore_attrs("cats_int64s")
        words = node.attr_strings("cats_strings")
        index = emit_key_index(node, strings, node.strings(words[::-1]))
        return (_one_hot(node, index, len(words)),)
    if node.has_attr("cats_strings") and node.attr_strings("cats_strings"):
        raise node.error("has categories of text for numbers", expected="`cats_int64s`")
    categories = np.array(node.attr_ints("cats_int64s"), np.int64)
    shape, x = node.shape(0), cast_to(node, node.value(0), "int64")
    if not node.attr_flag("zeros", default=True):
        return (
            _one_hot(node, node.emit("mlops.key_index", x, node.constant(categories[::-1].copy())), len(categories)),
        )
    latest = {int(category): index for index, category in enumerate(categories)}
    is_latest = np.array([latest[int(category)] == index for index, category in enumerate(categories)])
    pairs = node.emit("equal", node.reshape(x, (*shape, 1)), node.constant(categories))
    if not is_latest.all():
        pairs = node.emit("logical_and", pairs, node.constant(is_latest))
    return (node.emit("cast", pairs, dtype="float32"),)


def _one_hot(node: NodeContext, index: Value, count: int) -> Value:
    """Return a row of zeros with a one for each index, counted from the last category.

    The index of an unknown category is ``count``: a row of zeros, or, without ``zeros``, outside the table.
    """
    table = np.eye(count, dtype=np.float32)[::-1]
    if node.attr_flag("zeros", default=True):
        table = np.concatenate([table, np.zeros((1, count), np.float32)])
    return node.emit("take", node.constant(table.copy()), index, axis=0)


def _import_label_encoder(node: NodeContext) -> Sequence[Imported]:
    """Import a mapping of numbers or strings to numbers or strings; of equal keys the first counts.

    NaN is a key like others since version 4 of the domain. In earlier versions, no element equals a key of NaN, as in
    ONNX Runtime.
    """
    if node.has_attr("classes_strings"):
        return (_import_classes(node, node.attr_strings("classes_strings")),)
    keys, _ = _read_list(node, "keys")
    values, kind = _read_list(node, "values")
    if len(keys) != len(values):
        raise node.error("has different numbers of keys and values", got=f"{len(keys)} and {len(values)}")
    default: float | str
    default = _read_string_default(node) if values.dtype == object else _read_default(node, kind, values.dtype)
    if keys.dtype.kind == "f" and node.domain_version < 4:
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    return (_look_up(node, keys, values, default),)


def _import_classes(node: NodeContext, classes: Sequence[str]) -> Imported:
    """Import the first version of the operator: classes to their numbers, or numbers to their classes."""
    from byoc_core.frontend.onnx import StringTensor

    words, numbers = np.array(classes, object), np.arange(len(classes))
    if not isinstance(node.imported(0), StringTensor):
        return _look_up(node, numbers, words, _read_string_default(node))
    default = node.attr_int("default_int64", -1)
    node.ignore_attrs("default_string")
    return _look_up(node, words, numbers, default)


def _import_category_mapper(node: NodeContext) -> Sequence[Imported]:
    """Import a mapping of strings to integers, or of integers to strings; of equal keys the last counts."""
    from byoc_core.frontend.onnx import StringTensor, emit_key_index

    names = node.attr_strings("cats_strings")[::-1]
    numbers = np.array(node.attr_ints("cats_int64s"), np.int64)[::-1].copy()
    if len(names) != len(numbers):
        raise node.error("has different numbers of strings and integers", got=f"{len(names)} and {len(numbers)}")
    default = node.attr_int("default_int64", -1)
    unknown = _read_string_default(node)
    strings = node.imported(0)
    if not isinstance(strings, StringTensor):
        index: Value = node.emit("mlops.key_index", node.value(0), node.constant(numbers))
        return (node.strings([*names, unknown], index),)
    index = emit_key_index(node, strings, node.strings(names))
    return (node.emit("take", node.constant(np.append(numbers, np.int64(default))), index, axis=0),)


def _look_up(node: NodeContext, keys: NDArray, values: NDArray, default: float | str) -> Imported:
    """Return for each element of the input the value of its key, or the default."""
    index = _key_index(node, keys)
    if values.dtype == object:
        return node.strings([*values.tolist(), str(default)], index)
    table = node.constant(np.append(values, np.asarray(default, values.dtype)).astype(values.dtype))
    return node.emit("take", table, index, axis=0)


def _key_index(node: NodeContext, keys: NDArray) -> Value:
    """Return for each element of the input the index of the first equal key, or the number of keys."""
    from byoc_core.frontend.onnx import StringTensor, emit_key_index

    x = node.imported(0)
    dtype = "strings" if isinstance(x, StringTensor) else node.type(0).dtype
    if ("strings" if keys.dtype == object else str(keys.dtype)) != dtype:
        got = "strings" if keys.dtype == object else keys.dtype
        raise node.error("has keys of another dtype than the input", got=got, expected=dtype)
    if isinstance(x, StringTensor):
        return emit_key_index(node, x, node.strings(keys.tolist()))
    return node.emit("mlops.key_index", node.value(0), node.constant(keys))


def _read_list(node: NodeContext, role: str) -> tuple[NDArray, str]:
    """Return keys or values, and the kind of the attribute; strings are an array of objects.

    Raises:
        FrontendError: there is not exactly one such attribute, or a tensor has other elements than numbers.
    """
    kinds = (*_KINDS, "strings", "tensor")
    found = [kind for kind in kinds if node.has_attr(f"{role}_{kind}")]
    if len(found) != 1:
        names = ", ".join(f"`{role}_{kind}`" for kind in kinds)
        raise node.error(f"has not exactly one list of {role}", got=len(found), expected=f"one of {names}")
    (kind,) = found
    name = f"{role}_{kind}"
    if kind == "strings":
        return np.array(node.attr_strings(name), object), kind
    if kind == "tensor":
        if (strings := _read_string_tensor(node, name)) is not None:
            return strings, kind
        array = node.attr_array(name).reshape(-1)
        if array.dtype.kind not in "if":
            raise node.error(f"attribute `{name}` is not of numbers", got=array.dtype)
        return array, kind
    numbers: Sequence[float] = node.attr_ints(name) if kind == "int64s" else node.attr_floats(name)
    return np.array(numbers, _KINDS[kind]), kind


def _read_string_tensor(node: NodeContext, name: str) -> NDArray | None:
    """Return a tensor attribute of strings as a vector; ``None`` for a tensor of numbers."""
    tensor = node.attr_proto(name)
    if tensor.data_type != _STRING_TENSOR:
        return None
    return np.array([item.decode() for item in tensor.string_data], object)


def _read_string_default(node: NodeContext) -> str:
    """Return the string of unknown keys; defaults of other kinds have no effect."""
    node.ignore_attrs("default_int64", "default_float")
    if node.has_attr("default_tensor"):
        found = _read_string_tensor(node, "default_tensor")
        if found is None or len(found) != 1:
            raise node.error("attribute `default_tensor` is not a single string")
        node.ignore_attrs("default_string")
        return str(found[0])
    return node.attr_string("default_string", _UNKNOWN)


def _read_default(node: NodeContext, kind: str, dtype: np.dtype[Any]) -> float:
    """Return the value of unknown keys; defaults of other kinds have no effect."""
    node.ignore_attrs("default_int64", "default_float", "default_string")
    if node.has_attr("default_tensor"):
        array = node.attr_array("default_tensor")
        if array.size != 1 or (kind == "tensor" and array.dtype != dtype):
            raise node.error("attribute `default_tensor` is not a number of the values' dtype", got=array.dtype)
        if kind == "tensor":
            return float(array.item()) if dtype.kind == "f" else int(array.item())
    kind = kind if kind != "tensor" else ("floats" if dtype.kind == "f" else "int64s")
    name, default = _DEFAULTS[kind]
    if kind == "floats":
        return node.attr_float(name, default)
    return node.attr_int(name, int(default))


def _import_zip_map(node: NodeContext) -> Sequence[Imported]:
    """Import a map of labels to the columns of each row; a vector is a single row.

    Raises:
        FrontendError: the number of labels differs from the number of columns.
    """
    labels = read_labels(node, "classlabels_int64s")
    shape = node.shape(0)
    if len(shape) not in (1, 2) or (isinstance(shape[-1], int) and shape[-1] != len(labels)):
        raise node.error("has another number of labels than columns", got=len(labels), expected=shape[-1:])
    return (node.map_sequence(labels, node.reshape(node.value(0), (1, *shape)[-2:])),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "CategoryMapper": _import_category_mapper,
    "LabelEncoder": _import_label_encoder,
    "OneHotEncoder": _import_one_hot_encoder,
    "ZipMap": _import_zip_map,
}
"""The module's importers, by ONNX name."""
