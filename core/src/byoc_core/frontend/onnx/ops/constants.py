"""Importers for constants, and for ops turning shapes into values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from byoc_core.dims import product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import read_sizes
from byoc_core.frontend.onnx.shape_value import ShapeValue

__all__ = ["IMPORTERS"]


def _import_constant(node: NodeContext) -> Sequence[Imported]:
    if node.has_attr("value"):
        return (node.attr_tensor("value"),)
    if node.has_attr("value_string"):
        return (node.strings([node.attr_string("value_string")], node.constant(np.int64(0))),)
    if node.has_attr("value_strings"):
        return (node.strings(node.attr_strings("value_strings")),)
    if node.has_attr("value_int"):
        return (np.array(node.attr_int("value_int"), np.int64),)
    if node.has_attr("value_ints"):
        return (np.array(node.attr_ints("value_ints"), np.int64),)
    if node.has_attr("value_float"):
        return (np.array(node.attr_float("value_float"), np.float32),)
    if node.has_attr("value_floats"):
        return (np.array(node.attr_floats("value_floats"), np.float32),)
    raise node.error("has no value of a supported kind", expected="a tensor, ints, floats or strings")


def _import_constant_of_shape(node: NodeContext) -> Sequence[Imported]:
    value = node.attr_array("value") if node.has_attr("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise node.error("attribute `value` is not a single element", got=f"{value.size} elements")
    dims = read_sizes(node, 0)
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    if any(size < 0 for size in sizes):
        raise node.error("the shape has a negative size", got=ShapeValue(dims))
    if len(sizes) == len(dims) and node.may_generate(prod(sizes) * value.itemsize):
        return (np.full(sizes, value.reshape(())),)
    return (node.emit("full", node.constant(value.reshape(())), shape=dims),)


def _import_shape(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    start, end = node.attr_int("start", 0), node.attr_int("end", len(shape))
    return (ShapeValue(shape[start:end]),)


def _import_size(node: NodeContext) -> Sequence[Imported]:
    size = ShapeValue.scalar(product(node.shape(0)))
    if not size.is_representable:
        raise node.error("the number of elements exceeds int64", got=f"a tensor of shape {node.type(0).shape}")
    return (size,)


IMPORTERS: dict[str, NodeImporter] = {
    "Constant": _import_constant,
    "ConstantOfShape": _import_constant_of_shape,
    "Shape": _import_shape,
    "Size": _import_size,
}
"""The family's importers, by ONNX name."""
