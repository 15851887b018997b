"""Small steps shared by the importers: casts, numbers, heads of attention, and operators of the standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import Imported, NodeContext, ShapeValue
from byoc_core.ir import Value

__all__ = [
    "OPSET",
    "cast_to",
    "emit_standard",
    "join_heads",
    "number_like",
    "permute",
    "size_value",
    "split_axis",
    "split_heads",
]

OPSET = 21
"""The version of the standard operator set with the operators of :func:`emit_standard`."""


def emit_standard(
    node: NodeContext,
    op_type: str,
    inputs: Sequence[Imported | None],
    attributes: Mapping[str, object] | None = None,
    *,
    opset: int = OPSET,
) -> Value:
    """Return the single result of an operator of the standard, imported in the place of the node."""
    (result,) = node.import_operator(op_type, inputs, attributes, opset=opset)
    return node.to_value(result, f"the result of {op_type}")


def cast_to(node: NodeContext, value: Value, dtype: str) -> Value:
    """Return a value in a dtype."""
    return value if node.tensor_type(value).dtype == dtype else node.emit("cast", value, dtype=dtype)


def number_like(node: NodeContext, value: Value, number: float) -> Value:
    """Return a scalar constant in the dtype of a value."""
    return node.constant(np.asarray(number).astype(to_numpy(node.tensor_type(value).dtype)))


def size_value(node: NodeContext, size: Dim) -> Value:
    """Return a size as an int64 scalar."""
    return node.to_value(ShapeValue.scalar(size), "a size")


def permute(node: NodeContext, value: Value, axes: Sequence[int]) -> Value:
    """Return a value with its axes in another order; the value itself if the order stays."""
    return value if tuple(axes) == tuple(range(len(axes))) else node.emit("permute_dims", value, axes=tuple(axes))


def split_axis(node: NodeContext, value: Value, sizes: Sequence[Dim], axis: int) -> tuple[Value, ...]:
    """Return consecutive parts of a value along an axis.

    Raises:
        FrontendError: the sizes of the parts do not sum to the size of the axis.
    """
    available = node.shape_of(value)[axis]
    missing = available - sum(sizes)
    if isinstance(missing, int) and missing:
        raise node.error("the parts do not fit the size of the split axis", got=tuple(sizes), expected=available)
    attrs: Mapping[str, object] = {"sections": tuple(sizes), "axis": axis % len(node.shape_of(value))}
    return node.emit_all("split", (value,), dict(attrs))


def split_heads(node: NodeContext, value: Value, heads: int, name: str) -> Value:
    """Reshape ``(B, S, H * D)`` to ``(B, H, S, D)``.

    Raises:
        FrontendError: the value, called ``name``, has another rank, or its last size is no multiple of the heads.
    """
    shape = node.shape_of(value)
    if len(shape) != 3:
        raise node.error(f"{name} has the wrong rank", got=shape, expected="(batch, steps, heads * size)")
    batch, steps, width = shape
    if heads < 1 or (isinstance(width, int) and width % heads):
        raise node.error(f"the width of {name} is no multiple of the number of heads", got=width, expected=heads)
    split = node.reshape(value, (batch, steps, heads, width // heads))
    return node.emit("permute_dims", split, axes=(0, 2, 1, 3))


def join_heads(node: NodeContext, value: Value) -> Value:
    """Reshape ``(B, H, S, D)`` to ``(B, S, H * D)``."""
    turned = node.emit("permute_dims", value, axes=(0, 2, 1, 3))
    batch, steps, heads, size = node.shape_of(turned)
    return node.reshape(turned, (batch, steps, heads * size))
