"""Slices of a graph: the nodes computing a tensor from other tensors of the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import onnx

from byoc_core.errors import FrontendError, near_names
from byoc_core.frontend.onnx.graph_order import node_reads

__all__ = ["GraphNodes"]


class GraphNodes:
    """The nodes of a graph, with the producer of each name.

    Args:
        nodes: in topological order.
        names: the names of inputs and initializers.
        is_constant: returns whether a name of an input, of an initializer, or from around the graph is a constant;
            ``None`` for an unknown name.
    """

    def __init__(
        self, nodes: Sequence[onnx.NodeProto], names: Collection[str], is_constant: Callable[[str], bool | None]
    ) -> None:
        self._nodes = nodes
        self._names = names
        self._is_constant = is_constant
        self._producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}

    def __len__(self) -> int:
        return len(self._nodes)

    def between(self, sources: Collection[str], target: str, where: str) -> Sequence[onnx.NodeProto]:
        """Return the nodes computing a tensor from other tensors and constants, in order.

        Reads of nested graphs count. Nodes before the sources are left out.

        Args:
            sources: the names of the other tensors.
            target: the name of the tensor.
            where: the requester, for messages.

        Raises:
            FrontendError: the graph has no tensor of a name, a source is computed from another source, or the tensor
                depends on further tensors.

        Cost: linear in the nodes before sources and target.
        """
        for name in (*sources, target):
            if name not in self._producers and self._is_constant(name) is None:
                hint = near_names(name, (*self._names, *self._producers)) or None
                raise FrontendError(where, f"names a tensor missing in the graph, `{name}`", hint=hint)
        self._check_independent(sources, where)
        reached = set[int]()
        for name, _ in self._walk({target: target}, sources):
            index = self._producers.get(name)
            if name in sources:
                continue
            if index is not None:
                reached.add(index)
            elif not self._is_constant(name):
                raise FrontendError(
                    where,
                    f"`{target}` depends on `{name}`, a tensor missing in `xs` and `zs`",
                    expected="a tensor computed from the tensors of `xs` and `zs`, and constants",
                )
        return [self._nodes[index] for index in sorted(reached)]

    def _check_independent(self, sources: Collection[str], where: str) -> None:
        starts: dict[str, str] = {}
        for source in sources:
            for read in self._reads(source):
                starts.setdefault(read, source)
        for name, source in self._walk(starts, sources):
            if name in sources:
                raise FrontendError(
                    where, f"`{source}` is computed from `{name}`", expected="independent tensors in `xs` and `zs`"
                )

    def _reads(self, name: str) -> Iterator[str]:
        """Yield the names read by the producer of a name, if a node produces it."""
        index = self._producers.get(name)
        if index is not None:
            yield from (read for read, _ in node_reads(self._nodes[index], ""))

    def _walk(self, starts: Mapping[str, str], stops: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield names and all names needed to compute these, each once; nothing before a stop.

        Args:
            starts: the first names, each with a label.
            stops: names whose producers are not visited.

        Yields:
            A name, and the label of a start depending on the name.
        """
        pending, seen = list(starts.items()), set(starts)
        while pending:
            name, label = pending.pop()
            yield name, label
            for read in () if name in stops else self._reads(name):
                if read not in seen:
                    seen.add(read)
                    pending.append((read, label))
