"""Importers for reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_axes import reduce_axes
from byoc_core.frontend.onnx.ops.data_sizes import is_computed, read_ints
from byoc_core.frontend.onnx.ops.float_arithmetic import compute_in_wide_floats, float_function
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS", "vector_norm"]

Axes = tuple[int, ...] | None
"""The reduced axes: ``None`` for all, ``()`` for none."""

_Compute = Callable[[NodeContext, Value, Axes, bool], Value]
"""Computes a reduction of a value of the dtype of input 0, given the axes, and whether the axes stay with size 1."""


def vector_norm(node: NodeContext, value: Value, p: int, axes: Axes, *, keepdims: bool) -> Value:
    """Return the 1-norm or 2-norm along axes."""
    if p == 1:
        return _reduced(node, "sum", node.emit("abs", value), axes, keepdims=keepdims)
    return float_function(node, "sqrt", _sum_square(node, value, axes, keepdims))


def _reduced(node: NodeContext, op: str, value: Value, axes: Axes, *, keepdims: bool) -> Value:
    return value if axes == () else node.emit(op, value, axis=axes, keepdims=keepdims)


def _plain(op: str) -> _Compute:
    return lambda node, value, axes, keepdims: _reduced(node, op, value, axes, keepdims=keepdims)


def _extreme(op: str, op_of_bools: str) -> _Compute:
    def compute(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
        is_bool = node.type(0).dtype == "bool"
        return _reduced(node, op_of_bools if is_bool else op, value, axes, keepdims=keepdims)

    return compute


def _widened(compute: _Compute) -> _Compute:
    def compute_wide(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
        return compute_in_wide_floats(node, value, lambda wide: compute(node, wide, axes, keepdims))

    return compute_wide


def _norm(p: int) -> _Compute:
    return lambda node, value, axes, keepdims: vector_norm(node, value, p, axes, keepdims=keepdims)


def _sum_square(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
    return _reduced(node, "sum", node.emit("multiply", value, value), axes, keepdims=keepdims)


def _log_sum(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
    return float_function(node, "log", _reduced(node, "sum", value, axes, keepdims=keepdims))


def _log_sum_exp(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
    if axes == ():
        return value
    return float_function(node, "logsumexp", value, axis=axes, keepdims=keepdims)


def _mean(node: NodeContext, value: Value, axes: Axes, keepdims: bool) -> Value:
    return value if axes == () else float_function(node, "mean", value, axis=axes, keepdims=keepdims)


def _reduction(compute: _Compute, *, axes_input_since: int = 18) -> NodeImporter:
    """Build the importer of a reduction with axes as attribute up to an opset, then as input.

    With ``noop_with_empty_axes`` and no axes nothing is summed, but the op's other computations still happen.
    """

    def import_node(node: NodeContext) -> Sequence[Imported]:
        keepdims = node.attr_flag("keepdims", default=True)
        is_noop = False
        if node.opset >= axes_input_since:
            is_noop = node.attr_flag("noop_with_empty_axes")
            if node.has_input(1) and is_computed(node, 1):

                def reduce(value: Value, axes: tuple[int, ...]) -> Value:
                    return compute(node, value, axes, False)

                return (reduce_axes(node, 1, reduce, keepdims=keepdims, is_noop=is_noop),)
            axes = read_ints(node, 1) if node.has_input(1) else ()
        else:
            axes = node.attr_ints("axes", ())
        reduced = axes if axes or is_noop else None
        return (compute(node, node.value(0), reduced, keepdims),)

    return import_node


def _arg_reduction(op: str) -> NodeImporter:
    """Build the importer of the search for an extreme element."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        flags = {
            "keepdims": node.attr_flag("keepdims", default=True),
            "select_last_index": node.attr_flag("select_last_index"),
        }
        return (node.emit(op, node.value(0), axis=node.attr_int("axis", 0), **flags),)

    return import_node


IMPORTERS: dict[str, NodeImporter] = {
    "ArgMax": _arg_reduction("argmax"),
    "ArgMin": _arg_reduction("argmin"),
    "ReduceL1": _reduction(_norm(1)),
    "ReduceL2": _reduction(_widened(_norm(2))),
    "ReduceLogSum": _reduction(_widened(_log_sum)),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_extreme("max", "any")),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(_extreme("min", "all")),
    "ReduceProd": _reduction(_plain("prod")),
    "ReduceSum": _reduction(_plain("sum"), axes_input_since=13),
    "ReduceSumSquare": _reduction(_widened(_sum_square)),
}
"""The family's importers, by ONNX name."""
