"""The typed graph document, passed from the compile half to the run half of a library-style backend.

A document is data: functions made of nodes, every value with a dtype and a shape, constants cited by digest. The JSON
form is in :mod:`byoc_core.runtime.graph.encoding`. Reading checks every law of a document, so an engine may trust
documents:

- value ids count up: a function's inputs, constants, then the results of nodes in order;
- a node reads only ids defined earlier;
- sizes are non-negative integers or expressions (text); the symbols of attributes occur in the shapes of the function's
  inputs, or of outputs allocated by the caller, so a call determines the symbols;
- a node with a body (a composite) passes the inputs to the body and takes the body's outputs, of equal dtype and rank;
- a node with an op of byoc has the op's attributes, in their stored form, and results of the types inferred from
  operands and attributes (:mod:`byoc_core.runtime.graph.types`).
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
"""The value of a node's attribute."""


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """The dtype and shape of one value.

    Attributes:
        dtype: the name, such as ``float32``.
        shape: sizes, each an ``int`` or an expression of symbols, with a ``str`` such as ``2*n``.
    """

    dtype: str
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class GraphConstant:
    """A constant cited by a function.

    Attributes:
        digest: the digest of the array.
        tensor: the type; all sizes are integers.
    """

    digest: str
    tensor: GraphTensor


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operation.

    Attributes:
        op: the name of an op, or of a composite.
        inputs: ids of the operands.
        outputs: types of the results; at least one.
        attrs: by name; sizes may be expressions.
        body: the computation of a composite, in terms of plain ops; else ``None``.
        origin: the op of the offload report computed by the node, as a line of
            :func:`~byoc_core.runtime.parts.ops_text`; empty for a node with a body, and if unknown, as in documents of
            older versions.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[GraphTensor, ...]
    attrs: Mapping[str, GraphAttr] = field(default_factory=lambda: MappingProxyType({}))
    body: GraphFunction | None = None
    origin: str = ""

    @property
    def origins(self) -> tuple[str, ...]:
        """The known origins of the node and of the nodes in a body."""
        nodes = () if self.body is None else self.body.walk()
        return tuple(node.origin for node in (*nodes, self) if node.origin)


@dataclass(frozen=True)
class GraphFunction:
    """A function: inputs, constants, nodes in the order of execution, and results.

    Attributes:
        name: the symbol.
        inputs: parameters, in order; ids ``0, 1, ...``.
        constants: the cited constants; the next ids.
        nodes: in topological order: every value is defined before any use; the results have the next ids.
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
        """The inputs and outputs of the function."""
        return Signature(
            self.inputs,
            tuple(TensorSpec(name, self.values[id_].dtype, self.values[id_].shape) for name, id_ in self.outputs),
        )

    @computed_once
    def given_symbols(self) -> frozenset[str]:
        """The symbols in the shapes passed by a caller: of the inputs, and of outputs allocated by the caller."""
        signature = self.signature
        specs = (*signature.inputs, *(() if signature.new_symbols else signature.outputs))
        return frozenset[str]().union(*(symbols_of(dim) for spec in specs for dim in spec.shape))

    def operand_types(self, node: GraphNode) -> tuple[GraphTensor, ...]:
        """Return the operand types of a node of :attr:`nodes`, in order."""
        return tuple([self.values[id_] for id_ in node.inputs])

    def walk(self) -> Iterator[GraphNode]:
        """Yield every node; the nodes of a body come before the node with the body."""
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.walk()
            yield node

    def all_constants(self) -> Iterator[GraphConstant]:
        """Yield the constants cited by the function and the bodies in it; a constant may come several times."""
        yield from self.constants
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.all_constants()


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """The runtime with the kernel of a plugin's op.

    Attributes:
        runtime: the name of the runtime's entry point in the group ``byoc.runtimes``.
        distribution: the runtime's distribution, according to the document.
    """

    runtime: str
    distribution: str


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """Functions by name, in order.

    Attributes:
        functions: the functions.
        kernels: the origin of the kernel of each plugin's op in the functions, by the op's name.
    """

    functions: Mapping[str, GraphFunction]
    kernels: Mapping[str, KernelOrigin] = field(default_factory=lambda: MappingProxyType({}))

    def ops(self) -> frozenset[str]:
        """Return the names of the ops of all nodes without a body."""
        nodes = (node for function in self.functions.values() for node in function.walk())
        return frozenset(node.op for node in nodes if node.body is None)


def attr_symbols(attr: GraphAttr) -> frozenset[str]:
    """Return the symbols of all sizes in an attribute."""
    if isinstance(attr, DimExpr):
        return symbols_of(attr)
    if isinstance(attr, tuple):
        return frozenset().union(*map(attr_symbols, attr))
    return frozenset()


def print_document(document: GraphDocument) -> str:
    """Return a document as text for people: one line for each value."""
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
