"""Importers for ops with result sizes depending on operands' elements; ops of constants are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byoc_core.errors import ExecutionError, FrontendError
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.ir.module import Value
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.families.data_dependent import range_length
from byoc_core.opset.opdef import OpDef
from byoc_core.transform.folding_budget import selection_nbytes

__all__ = ["IMPORTERS", "emit_range", "emit_sized"]


def _import(node: NodeContext, name: str, values: Mapping[str, object]) -> Sequence[Imported]:
    op = node.find_op(name)
    attrs = op.normalise_attrs(values)
    arrays = [array for index in range(node.num_inputs) if (array := node.array(index)) is not None]
    selected = sum(selection_nbytes(node.type(index)) for index in range(len(arrays)))
    if len(arrays) < node.num_inputs or op.kernel is None or not node.may_generate(selected):
        return _emit(node, op, attrs, node.values())
    try:
        results = op.kernel(*arrays, **attrs)
    except ExecutionError as error:
        raise _refusal(node, error) from error
    return results if isinstance(results, tuple) else (results,)


def _refusal(node: NodeContext, error: ExecutionError) -> FrontendError:
    return node.error(error.problem, got=error.got, expected=error.expected)


def emit_sized(node: NodeContext, name: str, *operands: Value, **attrs: object) -> Sequence[Value]:
    """Emit an op with a result size decided by the operands' elements; return the results."""
    op = node.find_op(name)
    return _emit(node, op, op.normalise_attrs(attrs), operands)


def _emit(node: NodeContext, op: OpDef, attrs: Mapping[str, AttrValue], operands: Sequence[Value]) -> Sequence[Value]:
    operand_types = tuple(operand.type for operand in operands)
    context = TypeContext(op.name, operand_types, attrs, operand_names=op.operand_names(len(operands)))
    assert op.sized_results is not None  # declared by all ops of this family
    types = op.sized_results(context, node.fresh_size(op.name))
    return node.emit_all(op.name, operands, dict(attrs), out_types=types)


def _import_nonzero(node: NodeContext) -> Sequence[Imported]:
    return _import(node, "nonzero", {})


def _import_compress(node: NodeContext) -> Sequence[Imported]:
    return _import(node, "compress", {"axis": node.attr_int("axis") if node.has_attr("axis") else None})


def _import_unique(node: NodeContext) -> Sequence[Imported]:
    axis = node.attr_int("axis") if node.has_attr("axis") else None
    return _import(node, "unique", {"axis": axis, "sorted": node.attr_flag("sorted", default=True)})


def _import_range(node: NodeContext) -> Sequence[Imported]:
    bounds = [bound.reshape(()) for index in range(3) if (bound := node.array(index)) is not None]
    try:
        is_small = len(bounds) == 3 and node.may_generate(range_length(*bounds) * np.dtype(np.int64).itemsize)
    except ExecutionError as error:
        raise _refusal(node, error) from error
    if is_small:
        return _import(node, "range", {})
    return (emit_range(node, *(node.reshape(value, ()) for value in node.values())),)


def emit_range(node: NodeContext, start: Value, stop: Value, step: Value) -> Value:
    """Emit the range between scalars known only at run time."""
    (result,) = emit_sized(node, "range", start, stop, step)
    return result


IMPORTERS: dict[str, NodeImporter] = {
    "Compress": _import_compress,
    "NonZero": _import_nonzero,
    "Range": _import_range,
    "Unique": _import_unique,
}
"""The family's importers, by ONNX name."""
