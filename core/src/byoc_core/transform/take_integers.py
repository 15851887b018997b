"""Selection of rows of quantised tables, in place of selection of rows of dequantised tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.ir import Binding, Constant, IRModule, Value
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, rewrite_module
from byoc_core.transform.tensors import shape_of

__all__ = ["TakeIntegers"]


@dataclass(frozen=True)
class TakeIntegers(Pass):
    """Computation of ``take(dequantize(x))`` as ``dequantize(take(x))``, bit for bit.

    A table of embeddings stored as integers becomes floats row by row, only for the read rows. A scale for each row, or
    each block of a row, is selected with the rows. Tables other than constants need a single reader.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with rows selected among integers. Cost: linear."""
        return rewrite_module(module, {"take": (_take,)})


def _take(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    table, indices = binding.operands
    dequantize = graph.maker(table, "dequantize")
    if dequantize is None or not (isinstance(dequantize.operands[0], Constant) or graph.num_uses(table) == 1):
        return None
    shape, of_indices = shape_of(table), shape_of(indices)
    if shape is None or of_indices is None:
        return None
    rank = len(of_indices)
    attrs: dict[str, Any] = dict(dequantize.attrs)
    selected_axis: Any = binding.attrs["axis"]
    selected_axis %= len(shape)
    axis = attrs["axis"] % len(shape)
    attrs["axis"] = axis if axis <= selected_axis else axis + rank - 1

    def select(value: Value, along: int = selected_axis) -> Value:
        return graph.emit("take", (value, indices), {**binding.attrs, "axis": along})

    integers, *parameters = dequantize.operands
    if attrs["block_size"]:
        if axis == selected_axis:
            return None
        parameters = list(map(select, parameters))
    elif shape_of(parameters[0]) and axis == selected_axis:
        # The parameters get the shape of the indices. Only parameters in blocks have more than one axis.
        other = 1 - selected_axis
        if len(shape) != 2 or not isinstance(shape[other], int) or not shape[other]:
            return None
        end = rank if selected_axis == 0 else 0
        parameters = [graph.emit("expand_dims", (select(value, 0),), {"axis": (end,)}) for value in parameters]
        attrs.update(axis=end, block_size=shape[other])
    return (graph.emit("dequantize", (select(integers), *parameters), attrs),)
