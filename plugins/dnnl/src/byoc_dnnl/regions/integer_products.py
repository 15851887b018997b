"""Products and convolutions of integers as products of dequantised tensors, the form known to plans.

Tools with quantisation at run time (``DynamicQuantizeLinear``, ``MatMulInteger``, ``ConvInteger``) emit products of
int32, followed by conversion and scaling. Dequantised by a scale of 1 both factors are exact, and a product of bytes
accepts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform import RewriteGraph, Rules, dtype_of, rank_of, rewrite_module, shape_of
from byoc_core.transform.byte_weights import MAX_TERMS, to_bytes

__all__ = ["spell_integer_products"]

_BYTES = ("int8", "uint8")
_PRODUCTS = ("matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense")

_FEW = 2.0**-126
_MANY = (2.0**75, 2.0**74)
"""The product of these factors makes 1 of the smallest number of float32, and 2**23 of ``_FEW``."""


def spell_integer_products(module: IRModule) -> IRModule:
    """Return the module with products of dequantised tensors for converted products of int32, biases included.

    One factor is constant: a matrix, or filters. The results are equal if no sum of magnitudes, bias included, exceeds
    ``2**24``. Larger sums, not representable in float32, are rounded. Rounding happens once if oneDNN multiplies bytes,
    and once more if a bias of int32 is added. If oneDNN multiplies floats (zero points that differ between columns,
    older processors), rounding is as in sums of float32. The error is the error of a float32 model: relative to the sum
    of magnitudes, not to a result with cancelling large sums. A scalar replacing another scalar equal to 0 becomes
    arithmetic, because oneDNN has no truth values.
    """
    return rewrite_module(module, _RULES)


class _Integers(NamedTuple):
    """Bytes and their zero point, ``None`` for 0."""

    values: Value
    zero: Value | None


def _spell_product(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    if dtype_of(binding.results[0]) != "float32":
        return None
    biased = graph.maker(binding.operands[0], "nn.bias_add")
    product = graph.maker(binding.operands[0] if biased is None else biased.operands[0], *_PRODUCTS)
    if product is None or dtype_of(product.results[0]) != "int32":
        return None
    channel = _channel_axis(product)
    left = _integers(product.operands[0], graph)
    right = None if channel is None else _weights(product.operands[1], channel, graph)
    if left is None or right is None or channel is None or rank_of(left.values) in (None, 0):
        return None
    left_factor = _restored_left(left, graph)
    weights = _restored_weights(right, channel, graph)
    if left_factor is None or weights is None:
        return None
    sums = graph.emit(product.op.name, (left_factor, weights), product.attrs)
    if biased is None:
        return (sums,)
    bias = graph.emit("cast", (biased.operands[1],), {"dtype": "float32"})
    return (graph.emit("nn.bias_add", (sums, bias), biased.attrs),)


def _channel_axis(product: Binding) -> int | None:
    """Return the axis of the weights that numbers the output channels; ``None`` without such an axis."""
    rank = rank_of(product.operands[1])
    if product.op.name in ("matmul", "nn.dense"):
        return (1 if product.op.name == "matmul" else 0) if rank == 2 else None
    return str(product.attrs["kernel_layout"]).index("O")


def _restored_left(left: _Integers, graph: RewriteGraph) -> Value | None:
    """Emit the left factor as floats; ``None`` unless the zero point is a single number."""
    if left.zero is None or shape_of(left.zero) == ():
        return _restored(left.values, left.zero, graph)
    zero, rank = graph.array(left.zero), rank_of(left.values)
    if zero is None or zero.size != 1 or rank is None or zero.ndim > rank:
        return None
    return _restored(left.values, graph.const(zero.reshape(())), graph)


def _restored_weights(right: _Integers, channel: int, graph: RewriteGraph) -> Value | None:
    """Emit constant weights as floats; ``None`` unless the zero point is a single number or has a number per channel.

    A zero point for each row of a square matrix has as many elements; the shape tells the two apart.
    """
    values = graph.array(right.values)
    zeros = None if right.zero is None else graph.array(right.zero)
    if values is None or values.size > MAX_TERMS * values.shape[channel] or (right.zero is not None and zeros is None):
        return None
    if zeros is None or (zeros.size and zeros.ndim <= values.ndim and not zeros.any()):
        return _restored(right.values, None, graph)
    if zeros.ndim > values.ndim:
        return None
    if zeros.size == 1:
        return _restored(right.values, graph.const(zeros.reshape(())), graph)
    aligned_shape = (1,) * (values.ndim - zeros.ndim) + zeros.shape
    if aligned_shape == tuple(size if axis == channel else 1 for axis, size in enumerate(values.shape)):
        return _restored(right.values, graph.const(zeros.reshape(-1)), graph, axis=channel)
    return None


def _restored(values: Value, zero: Value | None, graph: RewriteGraph, axis: int = 0) -> Value:
    """Emit integers as floats, minus the zero point: dequantised by a scale of 1."""
    if zero is None:
        zero = graph.const(np.zeros((), dtype_of(values)))
    shape = shape_of(zero)
    ones = np.ones([size for size in shape or () if isinstance(size, int)], np.float32)
    return graph.emit("dequantize", (values, graph.const(ones), zero), {"axis": axis})


def _weights(value: Value, channel: int, graph: RewriteGraph) -> _Integers | None:
    """Return the bytes of a constant operand of int32, perhaps computed by constant folding before."""
    array = graph.array(value)
    if array is None:
        return _integers(value, graph)
    found = to_bytes(array, channel)
    return None if found is None else _Integers(*map(graph.const, found))


def _integers(value: Value, graph: RewriteGraph) -> _Integers | None:
    """Return the bytes of an operand of int32, with the subtracted zero point."""
    difference = graph.maker(value, "subtract")
    if difference is None:
        plain = _bytes(value, graph)
        return None if plain is None else _Integers(plain, None)
    values = _bytes(difference.operands[0], graph)
    if values is None:
        return None
    zero = _zero_point(difference.operands[1], dtype_of(values), graph)
    return None if zero is None else _Integers(values, zero)


def _zero_point(value: Value, dtype: str, graph: RewriteGraph) -> Value | None:
    """Return the bytes of a zero point of int32, perhaps converted by constant folding before."""
    array = graph.array(value)
    if array is not None:
        converted = array.astype(dtype)
        return graph.const(converted) if np.array_equal(converted, array) else None
    found = _bytes(value, graph)
    return found if found is not None and dtype_of(found) == dtype else None


def _bytes(value: Value, graph: RewriteGraph) -> Value | None:
    """Return the bytes before conversion to int32."""
    cast = graph.maker(value, "cast")
    return cast.operands[0] if cast is not None and dtype_of(cast.operands[0]) in _BYTES else None


def _spell_substitute(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Emit a scalar, plus a substitute if the scalar is 0: the added substitute is multiplied by 1 or 0."""
    condition, if_zero, number = binding.operands
    equal = graph.maker(condition, "equal")
    substitute = graph.scalar(if_zero)
    if equal is None or substitute is None or not np.isfinite(substitute) or number is not equal.operands[0]:
        return None
    is_scalar = shape_of(number) == () and dtype_of(number) == "float32"
    if not is_scalar or graph.scalar(equal.operands[1]) != 0:
        return None
    size = graph.emit("minimum", (graph.emit("abs", (number,)), _number(_FEW, graph)))
    for factor in _MANY:
        size = graph.emit("multiply", (size, _number(factor, graph)))  # 0 of 0, and 1 or more of all others
    missing = graph.emit("nn.relu", (graph.emit("subtract", (_number(1.0, graph), size)),))
    return (graph.emit("add", (number, graph.emit("multiply", (missing, _number(substitute, graph))))),)


def _number(number: float, graph: RewriteGraph) -> Value:
    return graph.const(np.float32(number))


_RULES: Rules = {"cast": (_spell_product,), "where": (_spell_substitute,)}
