"""The nodes of a region as calls with typed operands and results.

Inputs, constants and results of nodes are numbered in this order, as in graph documents. Values of a call are such
numbers, also in the planner and in :mod:`byoc_dnnl.ranges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from byoc_core.runtime.graph.document import GraphAttr, GraphFunction, GraphTensor

from byoc_dnnl.capi import MAX_INT, MAX_NDIMS

__all__ = ["Call", "calls_of", "exceeded_limit", "shape_of", "sizes_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """A node of a region, with the types of operands and results, and the origin of the node.

    Attributes:
        kind: a number within the function, equal for calls known to have the same op, types and attributes, as in the
            equal layers of a network.
        output: the first result; most ops have no other.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operands: tuple[GraphTensor, ...]
    results: tuple[GraphTensor, ...]
    attrs: Mapping[str, GraphAttr]
    origin: str = ""
    kind: int = -1
    output: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", self.outputs[0])

    @property
    def result(self) -> GraphTensor:
        """The type of the first result."""
        return self.results[0]

    @property
    def result_name(self) -> str:
        """The name of the result in the model, from the origin."""
        return self.origin.partition(" ")[2]


def shape_of(tensor: GraphTensor) -> tuple[int, ...]:
    """Return the shape of a static tensor; the shape of a scalar is empty."""
    shape = tensor.shape
    for dim in shape:
        if not isinstance(dim, int):
            return tuple([dim for dim in shape if isinstance(dim, int)])
    return shape  # type: ignore[return-value]  # all are integers


def sizes_of(tensor: GraphTensor) -> tuple[int, ...]:
    """Return the sizes of a static tensor; a scalar has one axis of size 1, because oneDNN has no rank 0."""
    return shape_of(tensor) or (1,)


def exceeded_limit(tensor: GraphTensor) -> str | None:
    """Return oneDNN's limit of axes or elements if a static tensor exceeds the limit, else ``None``."""
    if len(tensor.shape) > MAX_NDIMS:
        return f"{MAX_NDIMS} axes"
    return f"{MAX_INT} elements" if prod(sizes_of(tensor)) > MAX_INT else None


def calls_of(function: GraphFunction) -> list[Call]:
    """Return the nodes of a function in order; values are numbered from the inputs and constants up."""
    calls, values = [], function.values
    kinds: dict[tuple[object, ...], int] = {}
    id_ = len(function.inputs) + len(function.constants)
    for node in function.nodes:
        operands = tuple([values[value] for value in node.inputs])
        outputs = tuple(range(id_, id_ + len(node.outputs)))
        # By identity: the function holds the objects, and equal objects of a form are one object.
        key = (node.op, id(node.attrs), tuple(map(id, operands)), tuple(map(id, node.outputs)))
        kind = kinds.setdefault(key, len(kinds))
        calls.append(Call(node.op, node.inputs, outputs, operands, node.outputs, node.attrs, node.origin, kind))
        id_ += len(node.outputs)
    return calls
