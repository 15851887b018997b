"""Support of a model's ops: all unsupported ops are found at once, before the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from enum import Enum

import onnx

from byoc_core.errors import FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx.function_bodies import fixed_body, has_own_body
from byoc_core.frontend.onnx.graph_order import node_label, subgraphs
from byoc_core.frontend.onnx.import_bounds import MAX_NESTING, nesting_error
from byoc_core.frontend.onnx.loading import FunctionKey, LoadedModel, find_opset, function_key, onnx_name
from byoc_core.frontend.onnx.op_advice import UnknownOp, describe_missing
from byoc_core.frontend.onnx_names import OnnxName, dotted_name
from byoc_core.plugin import PluginRecord

__all__ = ["ImportPath", "OpSurvey", "survey_ops", "unsupported_ops"]


class ImportPath(Enum):
    """The import of an operator's nodes, as far as the graphs and the standard decide."""

    IMPORTER = "importer"
    """By an importer."""
    MODEL_FUNCTION = "model function"
    """By the nodes of a function of the model."""
    STANDARD_FUNCTION = "standard function"
    """By the nodes of a function of the standard."""
    NONE = "none"
    """There is no importer and no function."""


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
    """Counts of nodes. The nodes of a function of the model count for each call.

    Attributes:
        num_nodes: the number of nodes, without calls of functions of the model.
        operators: the number of nodes by operator and import path. Calls count beside the nodes of the function; the
            nodes of functions of the standard are left out.
        unknown: the operators without importer.
        depth: the nesting depth of graphs and calls.
    """

    num_nodes: int = 0
    operators: Counter[tuple[OnnxName, ImportPath]] = field(default_factory=Counter)
    unknown: dict[OnnxName, UnknownOp] = field(default_factory=dict)
    depth: int = 0

    def add(self, inner: OpSurvey, times: int = 1) -> None:
        """Add a survey from the next nesting level, ``times`` times."""
        self.num_nodes += inner.num_nodes * times
        for operator, count in inner.operators.items():
            self.operators[operator] += count * times
        for op in inner.unknown.values():
            self.add_unknown(op.repeated(times))
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
        self._standard: dict[tuple[str, int], bool] = {}  # whether a function of importable operators exists

    def survey(self, nodes: Sequence[onnx.NodeProto], opset: int, where: str) -> OpSurvey:
        found = OpSurvey()
        calls: Counter[FunctionKey] = Counter()
        for node in nodes:
            key = function_key(node)
            if key in self._model.functions:
                if key not in calls:
                    self._function(key, f"{where}, {node_label(node)}")
                calls[key] += 1
                continue
            found.num_nodes += 1
            name = onnx_name(node)
            path = self._import_path(name, opset)
            found.operators[name, path] += 1
            if path is ImportPath.NONE:
                found.add_unknown(UnknownOp(name, 1, frozenset(a.name for a in node.attribute)))
            else:
                for label, graph in subgraphs(node):
                    found.add(self._inside(graph.node, opset, f"{where}, {node_label(node)}, {label}"))
        for key, count in calls.items():
            found.add(self._functions[key], count)
            found.operators[key[:2], ImportPath.MODEL_FUNCTION] += count
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

    def _import_path(self, name: OnnxName, opset: int) -> ImportPath:
        """Return the import path of an operator other than a function of the model."""
        domain, op_type = name
        if name in self._imported:
            return ImportPath.IMPORTER
        if domain:
            return ImportPath.NONE
        key = op_type, opset
        if key not in self._standard:
            body = fixed_body(op_type, opset)
            self._standard[key] = (
                has_own_body(op_type, opset)
                if body is None
                else not self.survey(body.node, find_opset(body, op_type, nodes=body.node), op_type).unknown
            )
        return ImportPath.STANDARD_FUNCTION if self._standard[key] else ImportPath.NONE


def _chain(calls: Sequence[FunctionKey]) -> str:
    return " -> ".join(name for _, name, _ in calls)
