"""Selection of integers, in place of selection of dequantised elements to be quantised again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.ir import Binding, IRModule, Trait, Value
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, rewrite_module
from byoc_core.transform.tensors import dtype_of

__all__ = ["SelectIntegers"]

_FLOATS = ("float32", "float64")
_INTEGERS = ("int8", "int16", "uint8", "uint16")
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100
"""With scales between these limits, an integer of these types is the same after ``dequantize`` and ``quantize``."""


@dataclass(frozen=True)
class SelectIntegers(Pass):
    """Computation on integers of ops that only select elements, between ``dequantize`` and ``quantize``.

    Quantisation tools emit ``quantize(op(dequantize(x)))`` for all ops, also for ops such as ``nn.max_pool2d``,
    ``reshape`` or ``concat``. With equal scales and zero points this is ``op(x)``, bit for bit: a scale of float32 or
    float64 restores each integer of at most 16 bits, and positive scales keep the order. The least float, of a window
    over padding alone, becomes the least integer. Values with other readers stay floats.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with elements selected among integers. Cost: linear."""
        return rewrite_module(module, {"quantize": (_select,)})


def _select(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    scale, zero = (graph.scalar(operand) for operand in binding.operands[1:])
    is_exact = dtype_of(binding.operands[1]) in _FLOATS and dtype_of(binding.results[0]) in _INTEGERS
    if scale is None or zero is None or not is_exact or not _SMALLEST <= scale <= _LARGEST:
        return None
    found = _chain(binding.operands[0], binding, graph)
    if found is None:
        return None
    integers, makers = found
    for maker in makers:
        operands = [integers[id(operand)] for operand in maker.operands]
        integers[id(maker.results[0])] = graph.emit(maker.op, operands, maker.attrs)
    return (integers[id(binding.operands[0])],)


def _chain(value: Value, quantize: Binding, graph: RewriteGraph) -> tuple[dict[int, Value], list[Binding]] | None:
    """Return the integers behind dequantised tensors, by ``id``, and the ops from there to a value, in order.

    ``None`` if there are other ops.
    """
    integers: dict[int, Value] = {}
    makers: list[Binding] = []
    pending = [(value, False)]
    while pending:
        current, is_visited = pending.pop()
        dequantize = graph.maker(current, "dequantize")
        maker = dequantize or graph.maker(current, Trait.SELECTING)
        if maker is None:
            return None
        if dequantize is not None:
            if not _agrees(dequantize, quantize, graph):
                return None
            integers[id(current)] = dequantize.operands[0]
        elif is_visited:
            makers.append(maker)
        elif graph.num_uses(current) > 1 or len(maker.results) > 1:
            return None
        else:
            pending.append((current, True))
            pending.extend((operand, False) for operand in reversed(maker.operands))
    return integers, makers


def _agrees(dequantize: Binding, quantize: Binding, graph: RewriteGraph) -> bool:
    """Return whether ``dequantize`` has the parameters of ``quantize``, and the dtype of the integers."""
    if dtype_of(dequantize.operands[0]) != dtype_of(quantize.results[0]):
        return False
    pairs = zip(dequantize.operands[1:], quantize.operands[1:], strict=True)
    arrays = [(graph.array(left), graph.array(right)) for left, right in pairs]
    return all(
        left is not None and right is not None and left.dtype == right.dtype and np.array_equal(left, right)
        for left, right in arrays
    )
