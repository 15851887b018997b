"""The ExampleJSON format: graphs of elementwise ops on float32 tensors, as text for people to read and write.

::

    subgraph_0
      input 0 10 10
      input 1 10 10
      add 2 inputs: 0 1 shape: 10 10
      mul 3 inputs: 2 2 shape: 10 10
      output 3 2

A line without indentation names a subgraph. Every other line defines a value, under a number new to the subgraph. An
``output`` line ends a subgraph; without an ``output`` line the last op is the only output.

Payloads of artifacts hold the same text as files, so a change of the format affects saved artifacts too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from byoc_core.errors import ArtifactError

__all__ = ["Graph", "Node", "parse", "to_text"]

_OPS = ("add", "sub", "mul")


@dataclass(frozen=True)
class Node:
    """A value with op and inputs; the op of an input is ``input``."""

    op: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class Graph:
    """A subgraph: nodes by id in topological order, and the ids of the outputs."""

    nodes: dict[int, Node] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """The ids of all inputs, in order."""
        return tuple(node_id for node_id, node in self.nodes.items() if node.op == "input")

    @property
    def last_op(self) -> tuple[int, ...]:
        """The id of the last node; empty if the last node is an input."""
        return tuple(node_id for node_id in [*self.nodes][-1:] if self.nodes[node_id].op != "input")


def to_text(graphs: Mapping[str, Graph]) -> str:
    """Return the text of subgraphs in order; :func:`parse` is the inverse."""
    return "".join(line + "\n" for name, graph in graphs.items() for line in _to_lines(name, graph))


def _to_lines(name: str, graph: Graph) -> Iterator[str]:
    yield name
    for node_id, node in graph.nodes.items():
        if node.op == "input":
            yield _join("  input", node_id, *node.shape)
        else:
            yield _join(f"  {node.op}", node_id, "inputs:", *node.inputs, "shape:", *node.shape)
    if graph.outputs != graph.last_op:
        yield _join("  output", *graph.outputs)


def _join(*words: object) -> str:
    return " ".join(map(str, words))


def parse(data: bytes, source: str) -> dict[str, Graph]:
    """Parse a text into subgraphs by name.

    Args:
        data: the text in UTF-8.
        source: the origin of the text, for messages.

    Raises:
        ArtifactError: the text has a mistake; names the line.
    """
    graphs: dict[str, Graph] = {}
    graph = None
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            words = line.decode().split()
            if words and not line[:1].isspace():
                graph = graphs[_parse_name(words, graphs)] = Graph()
            elif words and graph is not None:
                _parse_line(words, graph)
            elif words:
                raise ValueError("an indented line stands before the first subgraph's name")
        except ValueError as error:
            raise ArtifactError(f"{source}, line {number}", str(error)) from error
    for name, graph in graphs.items():
        graph.outputs = graph.outputs or graph.last_op
        if not graph.outputs:
            raise ArtifactError(
                f"{source}, subgraph `{name}`", "has no output", hint="End the subgraph with `output ID`."
            )
    if not graphs:
        raise ArtifactError(source, "holds no subgraph")
    return graphs


def _parse_name(words: list[str], graphs: Mapping[str, Graph]) -> str:
    if len(words) > 1:
        raise ValueError(
            f"the name of a subgraph is a single word, and all other lines are indented; got `{_join(*words)}`"
        )
    if words[0] in graphs:
        raise ValueError(f"subgraph `{words[0]}` is already defined")
    return words[0]


def _parse_line(words: list[str], graph: Graph) -> None:
    if graph.outputs:
        raise ValueError("a line follows the `output` line of the subgraph")
    match words:
        case ["input", node_id, *sizes]:
            _define(graph, node_id, Node("input", (), _numbers(sizes)))
        case [op, node_id, "inputs:", left, right, "shape:", *sizes] if op in _OPS:
            _define(graph, node_id, Node(op, _numbers([left, right]), _numbers(sizes)))
        case ["output", _, *_]:
            graph.outputs = _numbers(words[1:])
            _check_defined(graph, graph.outputs)
        case [op, *_] if op not in (*_OPS, "input", "output"):
            raise ValueError(f"unknown op `{op}`; the ops are {', '.join(_OPS)}")
        case _:
            raise ValueError(f"malformed line `{_join(*words)}`")


def _define(graph: Graph, word: str, node: Node) -> None:
    (node_id,) = _numbers([word])
    if node_id in graph.nodes:
        raise ValueError(f"id {node_id} is already defined")
    _check_defined(graph, node.inputs)
    for input_id in node.inputs:
        shape = graph.nodes[input_id].shape
        if shape != node.shape:
            raise ValueError(f"value {input_id} has the shape {list(shape)}, and the result {list(node.shape)}")
    graph.nodes[node_id] = node


def _check_defined(graph: Graph, node_ids: tuple[int, ...]) -> None:
    for node_id in node_ids:
        if node_id not in graph.nodes:
            raise ValueError(f"value {node_id} is not defined")


def _numbers(words: list[str]) -> tuple[int, ...]:
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 16):
            raise ValueError(f"`{word}` is not a whole number")
    return tuple(map(int, words))
