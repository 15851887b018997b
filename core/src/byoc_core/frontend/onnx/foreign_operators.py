"""Importers for the operators of a model: of the core, registered by the process, or of installed plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.errors import ByocError, HookError, IRError, UnsupportedOpsError, type_name
from byoc_core.frontend.onnx.direct_import import direct_importer
from byoc_core.frontend.onnx.import_bounds import ImportBounds
from byoc_core.frontend.onnx.loading import LoadedModel
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops import node_importers
from byoc_core.frontend.onnx.ops.delegation import delegate, is_evaluated
from byoc_core.frontend.onnx.ops.spelled import spelled_importers
from byoc_core.frontend.onnx.sequence_value import MapSequence, OptionalValue, RunTimeSequence, SequenceValue
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.support import OpSurvey, survey_ops, unsupported_ops
from byoc_core.frontend.onnx_names import OnnxName, dotted_name
from byoc_core.ir.module import Value
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry

if TYPE_CHECKING:
    from byoc_core.frontend.importers import ImporterPlugin, RegisteredOperator

__all__ = ["ForeignKind", "ForeignOperator", "FoundImporters", "OperatorSearch", "find_importers", "search_importers"]


@dataclass(frozen=True, slots=True)
class FoundImporters:
    """The importers of a model's operators.

    Attributes:
        importers: by domain and operator.
        ops: the registry for the import, including the ops of the importers.
    """

    importers: Mapping[OnnxName, NodeImporter]
    ops: OpRegistry


class ForeignKind(Enum):
    """The kind of the importer of an operator without importer in the core."""

    PLUGIN = "plugin"
    """An importer of an installed plugin."""
    REGISTERED = "registered"
    """A function or op registered by the process."""
    DELEGATED = "delegated"
    """The package ``onnx`` evaluates the nodes."""


@dataclass(frozen=True, slots=True)
class ForeignOperator:
    """An operator without importer in the core, imported otherwise.

    Attributes:
        importer: the importer.
        ops: the ops needed by the importer.
        origin: the origin of the ops, for messages.
        kind: the kind of the importer.
    """

    importer: NodeImporter
    ops: Sequence[OpDef]
    origin: str
    kind: ForeignKind


@dataclass(frozen=True, slots=True)
class OperatorSearch:
    """The search for the importers of a model's operators.

    Attributes:
        own: the importers of the core, and of the ops passed to the import.
        foreign: the other operators with importer.
        survey: the nodes of the model; ``unknown`` are the operators without importer.
    """

    own: Mapping[OnnxName, NodeImporter]
    foreign: Mapping[OnnxName, ForeignOperator]
    survey: OpSurvey

    def missing(self, model: LoadedModel) -> UnsupportedOpsError | None:
        """Return the error for the operators without importer, if there are any."""
        if not self.survey.unknown:
            return None
        from byoc_core.frontend.importers import importers

        return unsupported_ops(model, self.survey, importers().list())


def search_importers(model: LoadedModel, ops: OpRegistry) -> OperatorSearch:
    """Search the importers of all operators of a model, including operators in nested graphs and called functions.

    Only a model with operators imported neither by the core nor by ``ops`` opens importer plugins.

    Args:
        model: the model.
        ops: the registry of the import.

    Raises:
        PluginError: several plugins import an operator of the model.
        FrontendError: a function calls itself, or calls are nested too deeply.
    """
    own = node_importers(ops)
    survey = survey_ops(model, own)
    foreign: dict[OnnxName, ForeignOperator] = {}
    while found := _find_all(survey.unknown):
        foreign |= found
        survey = survey_ops(model, {*own, *foreign})  # nodes with importer may have graphs with further operators
    delegated = {
        name: ForeignOperator(delegate, (), "the core", ForeignKind.DELEGATED)
        for name in survey.unknown
        if not name[0] and is_evaluated(*name, model.opset)
    }
    if delegated:
        foreign |= delegated
        survey = survey_ops(model, {*own, *foreign})
    return OperatorSearch(own, foreign, survey)


def find_importers(model: LoadedModel, bounds: ImportBounds, ops: OpRegistry) -> FoundImporters:
    """Return the importers of all operators of a model; see :func:`search_importers`.

    Args:
        model: the model.
        bounds: the bounds of the import.
        ops: the registry of the import.

    Raises:
        UnsupportedOpsError: some operators have no importer; all of these are listed, with counts.
        PluginError: several plugins import an operator of the model.
        IRError: ops of the same name come from several places.
        FrontendError: a function calls itself, calls are nested too deeply, or calls expand to too many nodes.
    """
    search = search_importers(model, ops)
    if (error := search.missing(model)) is not None:
        raise error
    bounds.check(search.survey.num_nodes, model.source)
    if not search.foreign:
        return FoundImporters(search.own, ops)
    merged = {**search.own, **{name: operator.importer for name, operator in search.foreign.items()}}
    return FoundImporters(MappingProxyType(merged), _extended(ops, search.foreign.values()))


def _find_all(names: Iterable[OnnxName]) -> dict[OnnxName, ForeignOperator]:
    """Return the operators with an importer of a plugin, or registered by the process."""
    return {name: operator for name in sorted(names) if (operator := _find_foreign(name)) is not None}


def _find_foreign(name: OnnxName) -> ForeignOperator | None:
    from byoc_core.frontend.importers import importers  # imports pluggy: models of known operators need none

    registry = importers()
    registered = registry.find_registered(name)
    if registered is not None:
        return _registered_operator(name, registered)
    plugin = registry.find_plugin(name)
    return None if plugin is None else _plugin_operator(name, plugin)


def _registered_operator(name: OnnxName, registered: RegisteredOperator) -> ForeignOperator:
    where = f"`register_op` of `{dotted_name(name)}`"
    ops = () if registered.op is None else (registered.op,)
    if registered.importer is not None:
        return ForeignOperator(_registered_importer(registered.importer, where), ops, where, ForeignKind.REGISTERED)
    assert registered.op is not None  # checked by the registration
    return ForeignOperator(direct_importer(registered.op), ops, where, ForeignKind.REGISTERED)


def _registered_importer(importer: Callable[..., Any], where: str) -> NodeImporter:
    def import_node(node: NodeContext) -> Sequence[Imported]:
        try:
            found = importer(node)
        except Exception as error:
            error.add_note(f"raised by the importer of {where} for {node.label}")
            raise
        results = (found,) if _is_imported(found) else found
        if (fault := _find_fault(results)) is not None:
            raise node.error(f"the importer of {where} returned {fault}", expected=_EXPECTED)
        return results

    return import_node


def _plugin_operator(name: OnnxName, plugin: ImporterPlugin) -> ForeignOperator:
    importer = plugin.importer(name)
    if importer is None:
        op = plugin.spelled_op(name)
        assert op is not None  # every operator of a plugin has an importer or a spelling
        checked = next(iter(spelled_importers({op.name: op}).values()))
    else:
        checked = _plugin_importer(importer, name, plugin)
    return ForeignOperator(checked, plugin.ops, plugin.record.label, ForeignKind.PLUGIN)


def _plugin_importer(importer: NodeImporter, name: OnnxName, plugin: ImporterPlugin) -> NodeImporter:
    where = f"{plugin.record.label}, importer of `{dotted_name(name)}`"

    def import_node(node: NodeContext) -> Sequence[Imported]:
        try:
            results = importer(node)
        except ByocError as error:
            error.add_note(f"raised by {where}")
            raise
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            raise HookError(
                where,
                f"raised {type(error).__name__}: {error}",
                got=node.label,
                hint=f"This is a fault of {plugin.record.distribution}, not of byoc-core.",
            ) from error
        if (fault := _find_fault(results)) is not None:
            raise HookError(where, f"returned {fault}", got=node.label, expected=_EXPECTED)
        return results

    return import_node


_EXPECTED = "a sequence with the imported form of each output"


def _is_imported(value: object) -> bool:
    structures = SequenceValue | RunTimeSequence | MapSequence | OptionalValue | StringTensor
    return isinstance(value, Value | ShapeValue | np.ndarray | structures)


def _find_fault(results: object) -> str | None:
    """Return the fault of an importer's results, if any."""
    if not isinstance(results, Sequence) or isinstance(results, str | bytes):
        return f"a value of the type {type_name(results)}"
    wrong = [result for result in results if not _is_imported(result)]
    return f"an output of the type {type_name(wrong[0])}" if wrong else None


def _extended(ops: OpRegistry, foreign: Iterable[ForeignOperator]) -> OpRegistry:
    """Return the registry with the ops of the operators.

    Raises:
        IRError: two different ops have the same name.
    """
    added: dict[str, OpDef] = {}
    origins: dict[str, str] = {}
    for operator in foreign:
        for op in operator.ops:
            other = ops[op.name] if op.name in ops else added.setdefault(op.name, op)
            origin = origins.setdefault(op.name, "the registry of the import" if op.name in ops else operator.origin)
            if other is not op:
                raise IRError(f"op `{op.name}`", f"has different definitions in {origin} and {operator.origin}")
    return ops.extended(added.values()) if added else ops
