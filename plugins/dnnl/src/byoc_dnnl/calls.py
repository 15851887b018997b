"""The nodes of a region as calls: what they read and give, with types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from byoc_core.runtime.graph.document import GraphAttr, GraphFunction, GraphTensor

from byoc_dnnl.capi import MAX_INT, MAX_NDIMS

__all__ = ["Call", "calls_of", "exceeds", "shape_of", "sizes_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """One node of a region, with the types of what it reads and gives."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operands: tuple[GraphTensor, ...]
    results: tuple[GraphTensor, ...]
    attrs: Mapping[str, GraphAttr]

    @property
    def output(self) -> int:
        """The first value that it gives; most ops give no other."""
        return self.outputs[0]

    @property
    def result(self) -> GraphTensor:
        """The type of the first value that it gives."""
        return self.results[0]


def shape_of(tensor: GraphTensor) -> tuple[int, ...]:
    """Return the shape of a static tensor; that of a scalar is empty."""
    return tuple(dim for dim in tensor.shape if isinstance(dim, int))


def sizes_of(tensor: GraphTensor) -> tuple[int, ...]:
    """Gives the sizes of a static tensor; a scalar has one element on one axis, since oneDNN knows no rank 0."""
    return shape_of(tensor) or (1,)


def exceeds(tensor: GraphTensor) -> str | None:
    """Gives how many axes or elements oneDNN counts at most, where a static tensor has more; else ``None``."""
    if len(tensor.shape) > MAX_NDIMS:
        return f"{MAX_NDIMS} axes"
    return f"{MAX_INT} elements" if prod(sizes_of(tensor)) > MAX_INT else None


def calls_of(function: GraphFunction) -> list[Call]:
    """Gives the nodes of a function in their order; values count up from its inputs and constants."""
    calls = []
    id_ = len(function.inputs) + len(function.constants)
    for node in function.nodes:
        operands = tuple(function.values[value] for value in node.inputs)
        outputs = tuple(range(id_, id_ + len(node.outputs)))
        calls.append(Call(node.op, node.inputs, outputs, operands, node.outputs, node.attrs))
        id_ += len(node.outputs)
    return calls
