"""Quantised tensors of a node: inputs as floats, and floats as quantised results.

A tensor is three inputs, the integers, the scale and the zero point. Ops between ``dequantize`` and ``quantize`` are
the form recognised by backends computing on integers.
"""

from __future__ import annotations

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import NodeContext
from byoc_core.ir import Value

__all__ = ["dequantised", "quantised", "read_scalar", "scale_products"]


def read_scalar(node: NodeContext, index: int, name: str) -> Value:
    """Return an input with a single element as scalar.

    Raises:
        FrontendError: the input, called ``name``, has several elements.
    """
    if node.shape(index) not in ((), (1,)):
        raise node.error(f"input {index}, {name}, is no scalar", got=node.shape(index))
    return node.reshape(node.value(index), ())


def _zero_point(node: NodeContext, index: int, dtype: str) -> Value:
    """Return the zero point, a scalar; 0 for an omitted input.

    Raises:
        FrontendError: the dtype is another than the dtype of the integers.
    """
    if not node.has_input(index):
        return node.constant(np.zeros((), to_numpy(dtype)))
    if node.type(index).dtype != dtype:
        raise node.error(f"input {index}, a zero point, has another dtype", got=node.type(index).dtype, expected=dtype)
    return read_scalar(node, index, "a zero point")


def dequantised(node: NodeContext, index: int) -> Value:
    """Return the floats of the tensor in the inputs ``index``, ``index + 1`` (scale) and ``index + 2`` (zero point)."""
    zero = _zero_point(node, index + 2, node.type(index).dtype)
    return node.emit("dequantize", node.value(index), read_scalar(node, index + 1, "a scale"), zero)


def quantised(node: NodeContext, value: Value, scale: int, dtype: str) -> Value:
    """Return floats as integers of a dtype, by the scale in an input and the zero point in the next."""
    return node.emit("quantize", value, read_scalar(node, scale, "a scale"), _zero_point(node, scale + 1, dtype))


def scale_products(node: NodeContext, sums: Value, scales: tuple[int, int], factor: float = 1.0) -> Value:
    """Return sums of products of integers, ``(..., M, N)``, as float32.

    Args:
        node: the node.
        sums: the sums, in int32.
        scales: the inputs with the scales: a scalar, and a scalar or ``(N,)`` or ``(..., 1, N)``.
        factor: a further factor.
    """
    left, right = read_scalar(node, scales[0], "a scale"), node.value(scales[1])
    if node.shape(scales[1]) == (1,):
        right = node.reshape(right, ())
    scale = node.emit("multiply", left, right)
    if factor != 1.0:
        scale = node.emit("multiply", scale, node.constant(np.float32(factor)))
    return node.emit("multiply", node.emit("cast", sums, dtype="float32"), scale)
