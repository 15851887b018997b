"""Importers of encoders of categories and labels, and of maps by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byoc_mlops.scores import cast_to, read_labels

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]

NDArray = npt.NDArray[Any]

_KINDS = {"int64s": np.int64, "floats": np.float32}
_UNKNOWN = "_Unused"
"""The string of unknown keys by default."""
_DEFAULTS = {"int64s": ("default_int64", -1), "floats": ("default_float", -0.0)}


def _import_one_hot_encoder(node: NodeContext) -> Sequence[Imported]:
    """Import an encoder of integers; of equal categories the last counts. Floats are truncated.

    Without ``zeros``, an unknown category is an error of the run.
    """
    if node.has_attr("cats_strings") and node.attr_strings("cats_strings"):
        raise node.error("has categories of text, an unsupported type of elements", expected="`cats_int64s`")
    categories = np.array(node.attr_ints("cats_int64s"), np.int64)
    shape, x = node.shape(0), cast_to(node, node.value(0), "int64")
    if node.attr_flag("zeros", default=True):
        latest = {int(category): index for index, category in enumerate(categories)}
        is_latest = np.array([latest[int(category)] == index for index, category in enumerate(categories)])
        pairs = node.emit("equal", node.reshape(x, (*shape, 1)), node.constant(categories))
        if not is_latest.all():
            pairs = node.emit("logical_and", pairs, node.constant(is_latest))
        return (node.emit("cast", pairs, dtype="float32"),)
    # The number of categories, for an unknown category, lies outside the table.
    index = node.emit("mlops.key_index", x, node.constant(categories[::-1].copy()))
    table = np.eye(len(categories), dtype=np.float32)[::-1].copy()
    return (node.emit("take", node.constant(table), index, axis=0),)


def _import_label_encoder(node: NodeContext) -> Sequence[Imported]:
    """Import a mapping of numbers to numbers or strings; of equal keys the first counts.

    NaN is a key like others since version 4 of the domain. In earlier versions, no element equals a key of NaN, as in
    ONNX Runtime.
    """
    if node.has_attr("classes_strings"):
        classes = node.attr_strings("classes_strings")
        keys: NDArray = np.arange(len(classes))
        return (_look_up(node, keys, np.array(classes, object), _read_string_default(node)),)
    keys, _ = _read_list(node, "keys")
    values, kind = _read_list(node, "values")
    if len(keys) != len(values):
        raise node.error("has different numbers of keys and values", got=f"{len(keys)} and {len(values)}")
    default: float | str
    default = _read_string_default(node) if values.dtype == object else _read_default(node, kind, values.dtype)
    if keys.dtype.kind == "f" and node.domain_version < 4:
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    return (_look_up(node, keys, values, default),)


def _import_category_mapper(node: NodeContext) -> Sequence[Imported]:
    """Import a mapping of strings to integers, or of integers to strings; of equal keys the last counts."""
    from byoc_core.frontend.onnx import StringTensor, read_strings

    names = node.attr_strings("cats_strings")[::-1]
    numbers = np.array(node.attr_ints("cats_int64s"), np.int64)[::-1].copy()
    if len(names) != len(numbers):
        raise node.error("has different numbers of strings and integers", got=f"{len(names)} and {len(numbers)}")
    default = node.attr_int("default_int64", -1)
    unknown = _read_string_default(node)
    if not isinstance(node.imported(0), StringTensor):
        index = node.emit("mlops.key_index", node.value(0), node.constant(numbers))
        return (node.strings([*names, unknown], index),)
    strings, keys = read_strings(node, 0), node.strings(names)
    index = node.emit("mlops.string_index", strings.data, strings.lengths, keys.data, keys.lengths)
    return (node.emit("take", node.constant(np.append(numbers, np.int64(default))), index, axis=0),)


def _look_up(node: NodeContext, keys: NDArray, values: NDArray, default: float | str) -> Imported:
    """Return for each element of the input the value of its key, or the default."""
    dtype = node.type(0).dtype
    if str(keys.dtype) != dtype:
        raise node.error("has keys of another dtype than the input", got=keys.dtype, expected=dtype)
    index = node.emit("mlops.key_index", node.value(0), node.constant(keys))
    if values.dtype == object:
        return node.strings([*values.tolist(), str(default)], index)
    table = node.constant(np.append(values, np.asarray(default, values.dtype)).astype(values.dtype))
    return node.emit("take", table, index, axis=0)


def _read_list(node: NodeContext, role: str) -> tuple[NDArray, str]:
    """Return keys or values, and the kind of the attribute; strings are an array of objects.

    Raises:
        FrontendError: there is not exactly one such attribute, or the keys are strings.
    """
    kinds = (*_KINDS, "strings", "tensor")
    found = [kind for kind in kinds if node.has_attr(f"{role}_{kind}")]
    if len(found) != 1:
        names = ", ".join(f"`{role}_{kind}`" for kind in kinds)
        raise node.error(f"has not exactly one list of {role}", got=len(found), expected=f"one of {names}")
    (kind,) = found
    name = f"{role}_{kind}"
    if kind == "strings" and role == "values":
        return np.array(node.attr_strings(name), object), kind
    if kind == "strings":
        raise node.error("has keys of another dtype than the input", got="strings", expected=node.type(0).dtype)
    if kind == "tensor":
        array = node.attr_array(name).reshape(-1)
        if array.dtype.kind not in "if":
            raise node.error(f"attribute `{name}` is not of numbers", got=array.dtype)
        return array, kind
    numbers: Sequence[float] = node.attr_ints(name) if kind == "int64s" else node.attr_floats(name)
    return np.array(numbers, _KINDS[kind]), kind


def _read_string_default(node: NodeContext) -> str:
    """Return the string of unknown keys; defaults of other kinds have no effect."""
    node.ignore_attrs("default_int64", "default_float")
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
