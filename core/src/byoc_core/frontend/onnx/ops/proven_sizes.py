"""Sizes of an operand known from the weights of its reader: channels of images, columns of matrices.

A model may compute the number of channels at run time although the filter has a known number. The operand is then
reshaped to the known size. The reshape fails at run time if the number of elements is another, and all later ops have
the known size. The result is named after the value and the node, and the error has this name.
"""

from __future__ import annotations

import re

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.ir.module import Value

__all__ = ["with_columns", "with_size"]


def with_size(node: NodeContext, value: Value, axis: int, size: Dim) -> Value:
    """Return a value with a size along an axis, demanded by the operator; a size known or equal is left alone.

    Sizes known to differ are left to the type rule of the op.

    Args:
        node: the node.
        value: the value.
        axis: the axis, counted from the front; ignored beyond the rank.
        size: the size demanded.
    """
    shape = node.shape_of(value)
    if axis >= len(shape) or isinstance(shape[axis], int) or not isinstance(size, int):
        return value
    if size == 0 or not _is_check(shape, axis):
        return value
    attrs: dict[str, object] = {"shape": (*shape[:axis], size, *shape[axis + 1 :])}
    return node.emit_all("reshape", (value,), attrs, names=(_name(node, value),))[0]


def _name(node: NodeContext, value: Value) -> str:
    """Return the name of a checked operand, such as ``Conv_conv1_input_image``: the error of a call has this name."""
    inputs = [name for index, name in enumerate(node.input_names) if name and node.value(index) is value]
    text = f"{node.op_type} {node.path} input {inputs[0] if inputs else ''}"
    return "_".join(re.findall(r"\w+", text, re.ASCII))


def _is_check(shape: tuple[Dim, ...], axis: int) -> bool:
    """Return whether the number of elements tells the size of an axis: no other axis is known to be empty."""
    return 0 not in (*shape[:axis], *shape[axis + 1 :])


def with_columns(node: NodeContext, left: Value, right: Value) -> tuple[Value, Value]:
    """Return the factors of a matrix product, both with the size of the common axis if either has a known size."""
    shapes = node.shape_of(left), node.shape_of(right)
    if not all(shapes):
        return left, right
    columns, row_axis = len(shapes[0]) - 1, max(len(shapes[1]) - 2, 0)
    factor = with_size(node, left, columns, shapes[1][row_axis])
    return factor, with_size(node, right, row_axis, shapes[0][columns])
