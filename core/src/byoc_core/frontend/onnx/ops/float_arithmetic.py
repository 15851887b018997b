"""Helpers shared by importers for computing in floats for nodes of another dtype."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dtypes import dtype_info, is_float
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.ir.module import Value

__all__ = ["compute_in_wide_floats", "float_function"]


def compute_in_wide_floats(node: NodeContext, value: Value, compute: Callable[[Value], Value]) -> Value:
    """Return the result of a computation on a value; floats below 32 bits compute in float32, with a single rounding.

    Args:
        node: the node, whose input 0 has the dtype of the value.
        value: the operand of the computation.
        compute: emits the ops; the result has the dtype of the operand.
    """
    dtype = node.type(0).dtype
    if not is_float(dtype) or dtype_info(dtype).bits >= 32:
        return compute(value)
    return node.emit("cast", compute(node.emit("cast", value, dtype="float32")), dtype=dtype)


def float_function(node: NodeContext, op: str, value: Value, **attrs: object) -> Value:
    """Emit an op of floats on a value of the dtype of input 0; for integers in float64, with the result truncated."""
    dtype = node.type(0).dtype
    if is_float(dtype):
        return node.emit(op, value, **attrs)
    return node.emit("cast", node.emit(op, node.emit("cast", value, dtype="float64"), **attrs), dtype=dtype)
