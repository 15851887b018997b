"""The nodes of a region as calls with typed operands and results.

Inputs, constants and results of nodes are numbered in this order, as in graph documents. Values of a call are such
numbers, also in the planner and in :mod:`byoc_dnnl.ranges`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from byoc_core.runtime.graph.document import GraphAttr, GraphFunction, GraphTensor

from byoc_dnnl.capi import MAX_INT, MAX_NDIMS

if TYPE_CHECKING:
    from byoc_dnnl.plan import Location

__all__ = ["Call", "Wiring", "calls_of", "exceeded_limit", "kinds_of", "numbered", "shape_of", "sizes_of"]


@dataclass(slots=True)  # not frozen: a plan creates one for each node, and frozen classes take twice as long
class Call:
    """A node of a region, with the types of operands and results, and the origin of the node. Never changed.

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
        self.output = self.outputs[0]

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


def calls_of(function: GraphFunction, wiring: Wiring | None = None) -> list[Call]:
    """Return the nodes of a function in order; values are numbered from the inputs and constants up.

    Args:
        function: the function, without symbols.
        wiring: the wiring of the function, if known.
    """
    wiring = wiring or Wiring(function, kinds_of(function))
    values, nodes = function.values, function.nodes
    operands = [tuple([values[id_] for id_ in nodes[number].inputs]) for number in wiring.first_of_kind]
    return [
        Call(node.op, node.inputs, outputs, operands[kind], node.outputs, node.attrs, node.origin, kind)
        for node, outputs, kind in zip(nodes, wiring.outputs, wiring.kinds, strict=True)
    ]


def kinds_of(function: GraphFunction) -> list[int]:
    """Return for each node a number: equal for nodes with the same op, types and attributes.

    Types and attributes are compared by identity: equal objects of a form are one object.
    """
    values = function.values
    keys = [
        (node.op, id(node.attrs), tuple([id(values[id_]) for id_ in node.inputs]), tuple(map(id, node.outputs)))
        for node in function.nodes
    ]
    return numbered(keys)


def numbered(keys: Sequence[Hashable]) -> list[int]:
    """Return for each key a number from 0 up, equal for equal keys."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


class Wiring:
    """The nodes and values of a function without types: the same at all sizes.

    Args:
        function: the function; the nodes have no bodies.
        kinds: for each node the number of the node's kind.

    Attributes:
        kinds: for each node the number of the node's kind.
        first_of_kind: for each kind the number of the first node.
        outputs: for each node the values of the results.
        makers: the number of the node producing each first result.
        readers: the numbers of the nodes reading a value.
        result_arguments: the numbers of the arguments for each result, inputs counted first, by value.
        followers: for each node the number of the only reader of the first result, or ``None``.
        constants: locations of constants by type and value, found by earlier plans.
    """

    __slots__ = ("constants", "first_of_kind", "followers", "kinds", "makers", "outputs", "readers", "result_arguments")

    def __init__(self, function: GraphFunction, kinds: Sequence[int]) -> None:
        self.kinds = kinds
        firsts: dict[int, int] = {}
        for number, kind in enumerate(kinds):
            firsts.setdefault(kind, number)
        self.first_of_kind = [firsts[kind] for kind in sorted(firsts)]
        self.outputs: list[tuple[int, ...]] = []
        self.readers: dict[int, list[int]] = {}
        id_ = len(function.inputs) + len(function.constants)
        for number, node in enumerate(function.nodes):
            self.outputs.append(tuple(range(id_, id_ + len(node.outputs))))
            id_ += len(node.outputs)
            for operand in dict.fromkeys(node.inputs):
                self.readers.setdefault(operand, []).append(number)
        self.makers = {outputs[0]: number for number, outputs in enumerate(self.outputs)}
        self.result_arguments: dict[int, list[int]] = {}
        for number, (_, result) in enumerate(function.outputs):
            self.result_arguments.setdefault(result, []).append(len(function.inputs) + number)
        self.followers = [self._follower(function, outputs[0]) for outputs in self.outputs]
        self.constants: dict[int, tuple[GraphTensor, Location]] = {}

    def _follower(self, function: GraphFunction, id_: int) -> int | None:
        readers = self.readers.get(id_, [])
        is_followed = len(readers) == 1 and function.nodes[readers[0]].inputs.count(id_) == 1
        return readers[0] if is_followed and id_ not in self.result_arguments else None
