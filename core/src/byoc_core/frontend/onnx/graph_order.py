"""Checks for well-formed graphs, and topological ordering of their nodes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import onnx

from byoc_core.errors import FrontendError, near_names

__all__ = ["node_label", "node_reads", "order_nodes", "subgraphs"]


def node_label(node: onnx.NodeProto) -> str:
    """Return the label of a node in messages: its name, or the first output of an unnamed node."""
    name = node.name or next((output for output in node.output if output), "")
    return f"node `{name}` ({node.op_type})"


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield the graphs in attributes of a node, each with its label in messages."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield f"attribute `{attribute.name}`", attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"attribute `{attribute.name}[{index}]`", graph


def order_nodes(graph: onnx.GraphProto, source: str, is_outer: Callable[[str], bool]) -> Sequence[onnx.NodeProto]:
    """Return the nodes in topological order; the given order if already topological.

    The reads of a node include reads of outer names in nested graphs.

    Args:
        graph: the graph.
        source: the graph's place, for messages.
        is_outer: returns whether a name is defined around the graph.

    Raises:
        FrontendError: a name is defined twice or not at all, or nodes depend on one another in a cycle.

    Cost: ``O(nodes * log(nodes))``, with nodes of nested graphs counted once for each level.
    """
    producers = _find_producers(graph, source)
    waiting_for: list[int] = []
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        needed = set()
        for name, reader in node_reads(node, source):
            if name in producers:
                needed.add(producers[name])
            elif not is_outer(name):
                raise FrontendError(
                    reader,
                    f"reads undefined value `{name}`: no input, initializer or node output has this name",
                    hint=near_names(name, producers) or None,
                )
        needed.discard(-1)
        waiting_for.append(len(needed))
        for producer in needed:
            readers.setdefault(producer, []).append(index)
    for output in graph.output:
        if output.name not in producers and not is_outer(output.name):
            raise FrontendError(
                f"{source}, output `{output.name}`",
                "has no definition: no input, initializer or node output has this name",
            )
    return _sort(graph, source, waiting_for, readers)


def node_reads(node: onnx.NodeProto, source: str) -> Iterator[tuple[str, str]]:
    """Yield the names read by a node from its graph, directly or in nested graphs, each with the reader's label."""
    where = f"{source}, {node_label(node)}"
    for name in filter(None, node.input):
        yield name, where
    for label, graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own.update(name for inner in graph.node for name in inner.output)
        for inner in graph.node:
            yield from (read for read in node_reads(inner, f"{where}, {label}") if read[0] not in own)
        for output in graph.output:
            if output.name not in own:
                yield output.name, f"{where}, {label}, output `{output.name}`"


def _find_producers(graph: onnx.GraphProto, source: str) -> dict[str, int]:
    """Return the index of the node defining each name; -1 for inputs and initializers."""
    _check_unique(source, "input", (value.name for value in graph.input))
    _check_unique(source, "initializer", (tensor.name for tensor in graph.initializer))
    producers = {value.name: -1 for value in graph.input}
    producers.update((tensor.name, -1) for tensor in graph.initializer)
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in producers:
                raise FrontendError(f"{source}, {node_label(node)}", f"defines `{name}` a second time")
            producers[name] = index
    return producers


def _check_unique(source: str, kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FrontendError(f"{source}, {kind} `{name}`", "is defined twice")
        seen.add(name)


def _sort(
    graph: onnx.GraphProto, source: str, waiting_for: list[int], readers: dict[int, list[int]]
) -> Sequence[onnx.NodeProto]:
    ready = [index for index, count in enumerate(waiting_for) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            waiting_for[reader] -= 1
            if waiting_for[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(graph.node):
        unordered = [node for node, count in zip(graph.node, waiting_for, strict=True) if count]
        names = ", ".join(node_label(node) for node in unordered[:5]) + (", ..." if len(unordered) > 5 else "")
        raise FrontendError(source, "the graph has a cycle", got=f"nodes on or behind the cycle: {names}")
    return [graph.node[index] for index in order]
