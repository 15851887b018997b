"""The typed graph document: what a library-style backend hands from its compile half to its run half.

A document is data: functions made of nodes, every value with a dtype and a shape, constants cited by digest.
Its JSON form is in :mod:`byoc_core.runtime.graph.encoding`, which checks every law of a document that it reads, so an
engine may trust what it gets:

- value ids count up: a function's inputs, its constants, then the results of its nodes in order;
- a node reads only ids that are defined before it;
- sizes are non-negative integers or expressions (text); the symbols of attributes occur in the shapes of the
  function's inputs, or of outputs that the caller allocates, so a call determines them;
- a node with a body (a composite) hands its inputs to the body and takes its outputs, of equal dtype and rank;
- a node that is an op of byoc has the op's attributes, in their stored form, and results of the types that its
  operands and attributes give (:mod:`byoc_core.runtime.graph.types`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from byoc_core.dims import Dim, DimExpr, symbols_of
from byoc_core.runtime.graph.computed_once import computed_once
from byoc_core.runtime.module import Signature, TensorSpec

__all__ = [
    "GraphAttr",
    "GraphConstant",
    "GraphDocument",
    "GraphFunction",
    "GraphNode",
    "GraphTensor",
    "KernelOrigin",
    "attr_symbols",
    "print_document",
]

GraphAttr = None | bool | int | float | str | DimExpr | tuple["GraphAttr", ...]
"""What an attribute of a node may hold."""


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """The dtype and shape of one value.

    Attributes:
        dtype: its name, such as ``float32``.
        shape: a size is an ``int``, or an expression of symbols, whose ``str`` is such as ``2*n``.
    """

    dtype: str
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class GraphConstant:
    """A constant that a function cites.

    Attributes:
        digest: of its array.
        tensor: its type; all sizes are integers.
    """

    digest: str
    tensor: GraphTensor


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operation.

    Attributes:
        op: what it computes: the name of an op, or of a composite.
        inputs: ids of the values it reads.
        outputs: types of the values it defines; at least one.
        attrs: by name; sizes may be expressions.
        body: what a composite computes, in terms of plain ops; else ``None``.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[GraphTensor, ...]
    attrs: Mapping[str, GraphAttr] = field(default_factory=lambda: MappingProxyType({}))
    body: GraphFunction | None = None


@dataclass(frozen=True)
class GraphFunction:
    """A function: inputs, constants, nodes in the order of execution, and which values are its results.

    Attributes:
        name: its symbol.
        inputs: parameters, in order; ids ``0, 1, ...``.
        constants: what it cites; the ids that follow.
        nodes: in an order where every value is defined before it is read; their results have the ids that follow.
        outputs: name and id of each result, in order.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    constants: tuple[GraphConstant, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[tuple[str, int], ...]

    @computed_once
    def values(self) -> tuple[GraphTensor, ...]:
        """The types of all values, by id."""
        return (
            *(GraphTensor(spec.dtype, spec.shape) for spec in self.inputs),
            *(constant.tensor for constant in self.constants),
            *(tensor for node in self.nodes for tensor in node.outputs),
        )

    @computed_once
    def signature(self) -> Signature:
        """What the function takes and gives."""
        return Signature(
            self.inputs,
            tuple(TensorSpec(name, self.values[id_].dtype, self.values[id_].shape) for name, id_ in self.outputs),
        )

    @computed_once
    def given_symbols(self) -> frozenset[str]:
        """The symbols in the shapes that a caller passes: of the inputs, and of the outputs where it allocates them."""
        signature = self.signature
        specs = (*signature.inputs, *(() if signature.new_symbols else signature.outputs))
        return frozenset[str]().union(*(symbols_of(dim) for spec in specs for dim in spec.shape))

    def operand_types(self, node: GraphNode) -> tuple[GraphTensor, ...]:
        """Return the types of the values that one of :attr:`nodes` reads, in order."""
        return tuple([self.values[id_] for id_ in node.inputs])

    def walk(self) -> Iterator[GraphNode]:
        """Yields every node, those of bodies before the node that holds them."""
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.walk()
            yield node

    def all_constants(self) -> Iterator[GraphConstant]:
        """Yields the constants that the function and the bodies in it cite; a constant may come several times."""
        yield from self.constants
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.all_constants()


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """The runtime that brings the kernel of a plugin's op.

    Attributes:
        runtime: the name of its entry point in the group ``byoc.runtimes``.
        distribution: what brings it, as the document says.
    """

    runtime: str
    distribution: str


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """Functions by name, in order.

    Attributes:
        functions: the functions.
        kernels: who brings the kernel of each plugin's op that the functions use, by the op's name.
    """

    functions: Mapping[str, GraphFunction]
    kernels: Mapping[str, KernelOrigin] = field(default_factory=lambda: MappingProxyType({}))

    def ops(self) -> frozenset[str]:
        """Return the names of the ops of all nodes without a body."""
        nodes = (node for function in self.functions.values() for node in function.walk())
        return frozenset(node.op for node in nodes if node.body is None)


def attr_symbols(attr: GraphAttr) -> frozenset[str]:
    """Gives the symbols of all sizes in an attribute."""
    if isinstance(attr, DimExpr):
        return symbols_of(attr)
    if isinstance(attr, tuple):
        return frozenset().union(*map(attr_symbols, attr))
    return frozenset()


def print_document(document: GraphDocument) -> str:
    """Gives a text of a document for people to read: one line for each value."""
    return "\n".join(line for function in document.functions.values() for line in _print_function(function, "graph "))


def _print_function(function: GraphFunction, head: str) -> Iterator[str]:
    inputs = ", ".join(
        f"%{index} {spec.name}: {GraphTensor(spec.dtype, spec.shape)}" for index, spec in enumerate(function.inputs)
    )
    yield f"{head}{function.name}({inputs})"
    id_ = len(function.inputs)
    for constant in function.constants:
        yield f"  %{id_} = constant {constant.digest[:12]}: {constant.tensor}"
        id_ += 1
    for node in function.nodes:
        names = ", ".join(f"%{id_ + offset}" for offset in range(len(node.outputs)))
        operands = [f"%{value}" for value in node.inputs]
        attrs = [f"{name}={_print_attr(value)}" for name, value in sorted(node.attrs.items())]
        types = ", ".join(map(str, node.outputs))
        yield f"  {names} = {node.op}({', '.join(operands + attrs)}): {types}"
        if node.body is not None:
            yield from (f"    {line}" for line in _print_function(node.body, "body "))
        id_ += len(node.outputs)
    yield f"  return {', '.join(f'%{value} as {name}' for name, value in function.outputs)}"


def _print_attr(value: GraphAttr) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_print_attr, value))}{',' if len(value) == 1 else ''})"
    return str(value) if isinstance(value, DimExpr) else repr(value)
