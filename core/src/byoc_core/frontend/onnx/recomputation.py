"""The nodes of a graph imported once more, to differentiate the graph."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.importer import GraphImporter
from byoc_core.frontend.onnx.node_context import Imported
from byoc_core.frontend.onnx.regions import Region
from byoc_core.ir.module import Value, Var

__all__ = ["Recomputation"]


class Recomputation(GraphImporter):
    """An importer of nodes of the surrounding graph, for other values of some of the graph's tensors.

    A node imported here may request another recomputation of the same graph: a gradient of a gradient.

    Args:
        outer: the graph, or another recomputation of the graph.
        where: the requesting node, for messages.
        path: the prefix of locations of the nodes.
        region: the region receiving the nodes.
        requester: an output of the requesting node.
    """

    def __init__(self, outer: GraphImporter, where: str, path: str, region: Region, requester: str) -> None:
        super().__init__(
            outer.model,
            region,
            outer.symbols,
            outer.bounds,
            outer.importers,
            outer.weights,
            opset=outer.opset,
            opset_imports=outer.opset_imports,
            where=where,
            path=path,
            repeats=outer.repeats,
            outer=outer,
        )
        self._surrounding = outer
        self._graph: GraphImporter = outer._graph if isinstance(outer, Recomputation) else outer
        earlier = outer._requesters if isinstance(outer, Recomputation) else ()
        self._requesters: tuple[str, ...] = (*earlier, requester)

    def run(self, target: str, variables: Mapping[str, Value], fixed: Mapping[str, Imported]) -> Imported:
        """Import the nodes computing a tensor of the graph, and return the tensor.

        Args:
            target: the name of the tensor.
            variables: values of the region in place of tensors of the graph, by name.
            fixed: imported forms of the surrounding importer in place of further tensors.

        Raises:
            FrontendError: the graph has no tensors of these names, other values determine the tensor, or the requesting
                node is needed to compute the tensor.
        """
        if self._requesters[-1] in self._requesters[:-1]:
            raise FrontendError(self.where, f"is needed to compute `{target}`, the differentiated tensor")
        graph = self._graph.graph_nodes
        with self.bounds.differentiate(len(graph), self.where):
            nodes = graph.between((*variables, *fixed), target, self.where)
            self._imported.update(variables)
            self._imported.update((name, self.bring_in(form)) for name, form in fixed.items())
            for node in nodes:
                self._import_node(node)
        return self.lookup(target)

    def _find_seed(self, name: str) -> Var | None:
        seed = super()._find_seed(name)
        outer = self._surrounding._find_seed(name) if seed is None else None
        return seed if outer is None else self._captured(outer)
