"""Support of a model's ops: all unsupported ops are reported at once, before the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import onnx

from byoc_core.errors import FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx.function_bodies import fixed_body, has_own_body
from byoc_core.frontend.onnx.graph_order import node_label, subgraphs
from byoc_core.frontend.onnx.import_bounds import MAX_NESTING, ImportBounds, nesting_error
from byoc_core.frontend.onnx.loading import FunctionKey, LoadedModel, find_opset, function_key, onnx_name
from byoc_core.frontend.onnx.ops.spelled import OnnxName

__all__ = ["check_ops"]


def check_ops(model: LoadedModel, bounds: ImportBounds, imported: Container[OnnxName]) -> None:
    """Check all nodes for supported ops, including nodes of nested graphs and of called functions.

    Args:
        model: the model.
        bounds: the bounds of the import.
        imported: the operators with an importer.

    Raises:
        UnsupportedOpsError: some ops are not supported; all of these are listed, with counts. A function's nodes count
            for each call.
        FrontendError: a function calls itself, calls are nested too deeply, or calls expand to too many nodes.
    """
    survey = _Surveyor(model, imported).survey(model.graph.node, model.opset, model.source)
    if survey.unknown:
        listed = ", ".join(f"{name} ({count}x)" for name, count in sorted(survey.unknown.items()))
        raise UnsupportedOpsError(
            model.source,
            f"{survey.unknown.total()} of {survey.num_nodes} nodes have unsupported ops",
            got=listed,
        )
    bounds.check(survey.num_nodes, model.source)


@dataclass
class _Survey:
    """The number of nodes, the count of each unsupported op, and the nesting depth of graphs and calls."""

    num_nodes: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    depth: int = 0

    def add(self, inner: _Survey) -> None:
        """Add a survey from the next nesting level."""
        self.num_nodes += inner.num_nodes
        self.unknown.update(inner.unknown)
        self.depth = max(self.depth, inner.depth + 1)


class _Surveyor:
    def __init__(self, model: LoadedModel, imported: Container[OnnxName]) -> None:
        self._model = model
        self._imported = imported
        self._functions: dict[FunctionKey, _Survey] = {}
        self._calls: list[FunctionKey] = []
        self._depth = 0
        self._standard: dict[tuple[str, int], bool] = {}

    def survey(self, nodes: Sequence[onnx.NodeProto], opset: int, where: str) -> _Survey:
        found = _Survey()
        for node in nodes:
            key = function_key(node)
            if key in self._model.functions:
                found.add(self._function(key, f"{where}, {node_label(node)}"))
                continue
            found.num_nodes += 1
            if not self._is_imported(onnx_name(node), opset):
                found.unknown[".".join(filter(None, onnx_name(node)))] += 1
            else:
                for label, graph in subgraphs(node):
                    found.add(self._inside(graph.node, opset, f"{where}, {node_label(node)}, {label}"))
        return found

    def _inside(self, nodes: Sequence[onnx.NodeProto], opset: int, where: str) -> _Survey:
        self._check_depth(1)
        self._depth += 1
        found = self.survey(nodes, opset, where)
        self._depth -= 1
        return found

    def _check_depth(self, added: int) -> None:
        if self._depth + added > MAX_NESTING:
            raise nesting_error(self._model.source)

    def _function(self, key: FunctionKey, where: str) -> _Survey:
        if key not in self._functions:
            if key in self._calls:
                raise FrontendError(where, "calls a recursive function", got=_chain([*self._calls, key]))
            self._calls.append(key)
            function = self._model.functions[key]
            opset = find_opset(function, where, nodes=function.node)
            self._functions[key] = self._inside(function.node, opset, where)
            self._calls.pop()
        self._check_depth(self._functions[key].depth + 1)
        return self._functions[key]

    def _is_imported(self, name: OnnxName, opset: int) -> bool:
        """Return whether an operator has an importer, or is a function of operators with importers."""
        domain, op_type = name
        if domain or name in self._imported:
            return name in self._imported
        key = op_type, opset
        if key not in self._standard:
            body = fixed_body(op_type, opset)
            self._standard[key] = (
                has_own_body(op_type, opset)
                if body is None
                else not self.survey(body.node, find_opset(body, op_type, nodes=body.node), op_type).unknown
            )
        return self._standard[key]


def _chain(calls: Sequence[FunctionKey]) -> str:
    return " -> ".join(name for _, name, _ in calls)
