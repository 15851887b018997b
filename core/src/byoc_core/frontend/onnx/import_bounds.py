"""Bounds of an import relative to the model's declarations: nodes, and bytes of constants described by nodes.

Calls of functions, unrolled rounds and sequences expand to more nodes than declared in the file; functions calling each
other three times, twenty levels deep, expand to billions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import onnx

from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.graph_order import subgraphs

__all__ = ["MAX_NESTING", "ImportBounds", "check_nesting", "nesting_error"]

MAX_NESTING = 64
"""The most levels of graphs in nodes and calls of functions, nested in each other."""

_BASE_NODES = 100_000
_NODES_PER_NODE = 16
_NBYTES_PER_NODE = 4096  # copying this many bytes of a function takes as long as importing a node
_GENERATED_NBYTES = 3 << 28
_MAX_ORDER = 16
_READ_NODES_PER_NODE = 16  # looking through this many nodes of a graph takes as long as importing a node


class ImportBounds:
    """The remaining budget of an import.

    Args:
        source: the model, for messages.
        declared: the nodes of the model's graph and functions, nested graphs included, each once.
        max_nodes: the most imported nodes, including the resulting ops; by default 100,000 plus 16 for each declared
            node.
    """

    def __init__(self, source: str, declared: int, max_nodes: int | None = None) -> None:
        self._source = source
        self._declared = declared
        self._max_nodes = _BASE_NODES + _NODES_PER_NODE * declared if max_nodes is None else max_nodes
        self._num_nodes = 0
        self._generated = 0
        self._order = 0

    def check(self, count: int, where: str) -> None:
        """Check, before work begins, that ``count`` further nodes stay within the bound.

        Raises:
            FrontendError: the nodes exceed the bound.
        """
        needed = self._num_nodes + count
        if needed > self._max_nodes:
            raise FrontendError(
                where,
                "functions, loops and sequences expand to too many nodes",
                got=f"{needed:,} or more" if needed < 10**18 else "10**18 or more",
                expected=f"at most {self._max_nodes:,} for a model with {self._declared:,} declared nodes",
                hint="If you trust the model, pass a higher `max_nodes` (on the command line, --max-nodes).",
            )

    def spend(self, count: int = 1, where: str | None = None) -> None:
        """Count imported nodes or resulting ops.

        Raises:
            FrontendError: the count exceeds the bound.
        """
        self.check(count, self._source if where is None else where)
        self._num_nodes += count

    def spend_copy(self, nbytes: int, where: str) -> None:
        """Count the copy of a function's body, possibly with large tensors.

        Raises:
            FrontendError: too much is copied.
        """
        self.spend(nbytes // _NBYTES_PER_NODE, where)

    @contextmanager
    def differentiate(self, num_nodes: int, where: str) -> Iterator[None]:
        """Count a differentiation of a graph, during the import of the differentiated nodes.

        Args:
            num_nodes: the nodes of the graph.
            where: the node requesting the gradient.

        Raises:
            FrontendError: too many gradients are nested in each other, or the nodes exceed the bound.
        """
        if self._order == _MAX_ORDER:
            raise FrontendError(where, "differentiates too many gradients in turn", expected=f"at most {_MAX_ORDER}")
        self.spend(num_nodes // _READ_NODES_PER_NODE, where)
        self._order += 1
        try:
            yield
        finally:
            self._order -= 1

    def may_generate(self, nbytes: int) -> bool:
        """Return whether a node may become a constant of ``nbytes`` bytes absent from the file; count the bytes if so.

        All of these constants together may occupy 768 MiB: more than in any model of ONNX's own with such nodes as
        weights.
        """
        allowed = self._generated + nbytes <= _GENERATED_NBYTES
        self._generated += nbytes if allowed else 0
        return allowed


def check_nesting(model: onnx.ModelProto, source: str) -> int:
    """Check the nesting depth of graphs in a model, and return the number of nodes. Cost: linear, no recursion.

    Raises:
        FrontendError: the graphs are nested too deeply.
    """
    count = 0
    pending: list[tuple[Iterable[onnx.NodeProto], int]] = [(model.graph.node, 0)]
    pending.extend((function.node, 0) for function in model.functions)
    while pending:
        nodes, depth = pending.pop()
        if depth > MAX_NESTING:
            raise nesting_error(source)
        for node in nodes:
            count += 1
            pending.extend((graph.node, depth + 1) for _, graph in subgraphs(node))
    return count


def nesting_error(source: str) -> FrontendError:
    """Return the error for a model with graphs and functions nested too deeply."""
    return FrontendError(
        source,
        "graphs and function calls are nested too deeply",
        expected=f"at most {MAX_NESTING} levels",
        hint="Inline the functions, for instance with onnx.inliner.inline_local_functions.",
    )
