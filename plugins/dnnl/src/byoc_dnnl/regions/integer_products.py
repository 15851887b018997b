"""Products of integers as products of dequantised tensors, which is how plans know integers.

Tools that quantise while the model runs (``DynamicQuantizeLinear``, ``MatMulInteger``) leave products of int32, which
are converted and scaled behind. Dequantised by a scale of 1 both factors are exact, and a product of bytes takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.runtime.module import NDArray
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module
from byoc_core.transform.tensors import dtype_of, rank_of, shape_of

__all__ = ["spell_integer_products"]

_BYTES = ("int8", "uint8")
_MAX_TERMS = 1 << 15
"""Sums of more products of bytes, of 2**16 at most, may be too much for 32 bits."""

_FEW = 2.0**-126
_MANY = (2.0**75, 2.0**74)
"""Their product makes 1 of the smallest number of float32, and 2**23 of ``_FEW``."""


def spell_integer_products(module: IRModule) -> IRModule:
    """Return the module with products of dequantised tensors for converted products of int32.

    One factor is a constant matrix. Sums of integers below ``2**24`` are the same numbers. Larger ones, which float32
    does not hold, are rounded once where bytes are multiplied, else as sums of float32 are. A scalar that stands in for
    another one which is 0 becomes arithmetic, since oneDNN knows no truth values.
    """
    return rewrite_module(module, _RULES)


class _Integers(NamedTuple):
    """Bytes and their zero point, ``None`` for 0."""

    values: Value
    zero: Value | None


def _spell_product(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    if dtype_of(binding.results[0]) != "float32":
        return None
    product = graph.maker(binding.operands[0], "matmul")
    if product is None or dtype_of(product.results[0]) != "int32":
        return None
    left, right = (_integers(operand, graph) for operand in product.operands)
    if left is None or right is None or rank_of(left.values) in (None, 0):
        return None
    weights = graph.array(right.values)
    zeros = None if right.zero is None else graph.array(right.zero)
    if weights is None or weights.ndim != 2 or weights.shape[0] > _MAX_TERMS or (right.zero and zeros is None):
        return None
    if left.zero is not None and shape_of(left.zero) != ():
        return None
    restored = _restored(left.values, left.zero, graph)
    if zeros is None or not zeros.any():
        matrix = _restored(right.values, None, graph)
    elif zeros.size == 1:
        matrix = _restored(right.values, graph.const(zeros.reshape(())), graph)
    elif zeros.size == weights.shape[1]:
        matrix = _restored(right.values, graph.const(zeros.reshape(-1)), graph, axis=1)
    else:
        return None
    return (graph.emit("matmul", (restored, matrix)),)


def _restored(values: Value, zero: Value | None, graph: RewriteGraph, axis: int = 0) -> Value:
    """Emit integers as floats, minus their zero point: dequantised by a scale of 1."""
    if zero is None:
        zero = graph.const(np.zeros((), dtype_of(values)))
    shape = shape_of(zero)
    ones = np.ones([size for size in shape or () if isinstance(size, int)], np.float32)
    return graph.emit("dequantize", (values, graph.const(ones), zero), {"axis": axis})


def _integers(value: Value, graph: RewriteGraph) -> _Integers | None:
    """Return the bytes of an operand of int32, with the zero point that is subtracted from them."""
    array = graph.array(value)
    if array is not None:
        return _constant_integers(array, graph)
    difference = graph.maker(value, "subtract")
    parts = (value,) if difference is None else difference.operands
    found = [_bytes(part, graph) for part in parts]
    if found[0] is None or found[-1] is None or dtype_of(found[0]) != dtype_of(found[-1]):
        return None
    return _Integers(found[0], found[1] if len(found) > 1 else None)


def _bytes(value: Value, graph: RewriteGraph) -> Value | None:
    """Return the bytes that were converted to int32."""
    cast = graph.maker(value, "cast")
    return cast.operands[0] if cast is not None and dtype_of(cast.operands[0]) in _BYTES else None


def _constant_integers(array: NDArray, graph: RewriteGraph) -> _Integers | None:
    """Return a constant matrix of int32 as bytes with a zero point, or one for each column, where there are such."""
    limits = np.iinfo(np.int8)
    if array.ndim != 2 or not array.size or array.dtype != np.int32:
        return None
    if limits.min <= array.min() and array.max() <= limits.max:
        return _Integers(graph.const(array.astype(np.int8)), None)
    for axis in (None, 0):
        zero = np.asarray(limits.min - array.min(axis=axis).astype(np.int64))
        moved = array + zero
        if moved.max() <= limits.max and limits.min <= zero.min() and zero.max() <= limits.max:
            return _Integers(graph.const(moved.astype(np.int8)), graph.const(zero.astype(np.int8)))
    return None


def _spell_substitute(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Give ``number + substitute`` where a scalar is 0, else the scalar: the substitute times 1 or 0 is added to it."""
    condition, chosen, number = binding.operands
    equal = graph.maker(condition, "equal")
    substitute = graph.scalar(chosen)
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
