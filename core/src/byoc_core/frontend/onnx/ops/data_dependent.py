"""Importers of ops whose operands' elements decide the sizes of their results; with constants they are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.errors import ExecutionError
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.ir.opdef import AttrValue, TypeContext
from byoc_core.ops import default_ops
from byoc_core.ops.data_dependent import result_types

__all__ = ["IMPORTERS"]


def _import(node: NodeContext, name: str, given: Mapping[str, object]) -> Sequence[Imported]:
    op = default_ops().find(name)
    attrs = op.normalise_attrs(given)
    arrays = [array for index in range(node.num_inputs) if (array := node.array(index)) is not None]
    if len(arrays) == node.num_inputs and op.kernel is not None:
        try:
            results = op.kernel(*arrays, **attrs)
        except ExecutionError as error:
            raise node.error(error.problem, got=error.got, expected=error.expected) from error
        return results if isinstance(results, tuple) else (results,)
    return _emit(node, name, attrs)


def _emit(node: NodeContext, name: str, attrs: Mapping[str, AttrValue]) -> Sequence[Imported]:
    op = default_ops().find(name)
    operands = node.values()
    types = tuple(operand.type for operand in operands)
    context = TypeContext(name, types, attrs, operand_names=op.operand_names(len(operands)))
    return node.emit_all(name, operands, dict(attrs), out_types=result_types(op, context, node.fresh_size(name)))


def _import_nonzero(node: NodeContext) -> Sequence[Imported]:
    return _import(node, "nonzero", {})


def _import_compress(node: NodeContext) -> Sequence[Imported]:
    return _import(node, "compress", {"axis": node.attr_int("axis") if node.has_attr("axis") else None})


def _import_unique(node: NodeContext) -> Sequence[Imported]:
    axis = node.attr_int("axis") if node.has_attr("axis") else None
    return _import(node, "unique", {"axis": axis, "sorted": node.attr_flag("sorted", default=True)})


def _import_range(node: NodeContext) -> Sequence[Imported]:
    return _import(node, "range", {})


IMPORTERS: dict[str, NodeImporter] = {
    "Compress": _import_compress,
    "NonZero": _import_nonzero,
    "Range": _import_range,
    "Unique": _import_unique,
}
"""The family's importers, by ONNX name."""
