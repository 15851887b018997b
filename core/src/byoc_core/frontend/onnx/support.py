"""Support of a model's ops: all unsupported ops are found at once, before the import."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import onnx

from byoc_core.errors import FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx.function_bodies import fixed_body, has_own_body
from byoc_core.frontend.onnx.graph_order import node_label, subgraphs
from byoc_core.frontend.onnx.import_bounds import MAX_NESTING, nesting_error
from byoc_core.frontend.onnx.loading import FunctionKey, LoadedModel, find_opset, function_key, onnx_name
from byoc_core.frontend.onnx.op_advice import UnknownOp, describe_missing
from byoc_core.frontend.onnx_names import OnnxName, dotted_name
from byoc_core.plugin import PluginRecord

__all__ = ["OpSurvey", "survey_ops", "unsupported_ops"]


def survey_ops(model: LoadedModel, imported: Container[OnnxName]) -> OpSurvey:
    """Return a survey of all nodes, including nodes of nested graphs and of called functions.

    Nested graphs of nodes without importer are left out.

    Args:
        model: the model.
        imported: the operators with an importer.

    Raises:
        FrontendError: a function calls itself, or calls are nested too deeply.
    """
    return _Surveyor(model, imported).survey(model.graph.node, model.opset, model.source)


def unsupported_ops(model: LoadedModel, survey: OpSurvey, installed: Sequence[PluginRecord]) -> UnsupportedOpsError:
    """Return the error listing all unsupported ops, with counts; the nodes of a function count for each call.

    Args:
        model: the model.
        survey: of the model, with unsupported ops.
        installed: all importer plugins, with their present state.
    """
    unknown = sorted((dotted_name(name), op) for name, op in survey.unknown.items())
    hint, detail = describe_missing([op for _, op in unknown], installed)
    return UnsupportedOpsError(
        model.source,
        f"{sum(op.count for _, op in unknown)} of {survey.num_nodes} nodes have unsupported ops",
        got=", ".join(f"{name} ({op.count}x)" for name, op in unknown),
        hint=hint,
        detail=detail,
    )


@dataclass
class OpSurvey:
    """The number of nodes, the operators without importer, and the nesting depth of graphs and calls."""

    num_nodes: int = 0
    unknown: dict[OnnxName, UnknownOp] = field(default_factory=dict)
    depth: int = 0

    def add(self, inner: OpSurvey) -> None:
        """Add a survey from the next nesting level."""
        self.num_nodes += inner.num_nodes
        for op in inner.unknown.values():
            self.add_unknown(op)
        self.depth = max(self.depth, inner.depth + 1)

    def add_unknown(self, op: UnknownOp) -> None:
        """Add uses of an operator without importer."""
        earlier = self.unknown.get(op.name)
        self.unknown[op.name] = op if earlier is None else earlier.with_uses(op)


class _Surveyor:
    def __init__(self, model: LoadedModel, imported: Container[OnnxName]) -> None:
        self._model = model
        self._imported = imported
        self._functions: dict[FunctionKey, OpSurvey] = {}
        self._calls: list[FunctionKey] = []
        self._depth = 0
        self._standard: dict[tuple[str, int], bool] = {}

    def survey(self, nodes: Sequence[onnx.NodeProto], opset: int, where: str) -> OpSurvey:
        found = OpSurvey()
        for node in nodes:
            key = function_key(node)
            if key in self._model.functions:
                found.add(self._function(key, f"{where}, {node_label(node)}"))
                continue
            found.num_nodes += 1
            if not self._is_imported(onnx_name(node), opset):
                found.add_unknown(UnknownOp(onnx_name(node), 1, frozenset(a.name for a in node.attribute)))
            else:
                for label, graph in subgraphs(node):
                    found.add(self._inside(graph.node, opset, f"{where}, {node_label(node)}, {label}"))
        return found

    def _inside(self, nodes: Sequence[onnx.NodeProto], opset: int, where: str) -> OpSurvey:
        self._check_depth(1)
        self._depth += 1
        found = self.survey(nodes, opset, where)
        self._depth -= 1
        return found

    def _check_depth(self, added: int) -> None:
        if self._depth + added > MAX_NESTING:
            raise nesting_error(self._model.source)

    def _function(self, key: FunctionKey, where: str) -> OpSurvey:
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
