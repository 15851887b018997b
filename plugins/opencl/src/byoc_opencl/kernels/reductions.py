"""Kernels of reductions: a thread collects an element of the result, in the order of memory."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding

from byoc_opencl.kernels.attributes import axes_of_attr, axis_of, flag_of
from byoc_opencl.kernels.family import KernelFamily, dtype_of, reject_empty_axis, reject_other_than_floats, shape_of
from byoc_opencl.kernels.rows import Row, highest, lowest
from byoc_opencl.kernels.step import DOUBLE, Step, cast, literal

__all__ = ["FAMILIES"]

_UPDATES = {
    "sum": "add",
    "mean": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
"""The elementwise op collecting the elements, by reduction."""


def _write(step: Step) -> c.Block:
    """Return the loops of a reduction; sums and products of floats are collected in float64."""
    op, (x,), (out,) = step.binding.op.name, step.inputs, step.outputs
    row = Row(x, axes_of_attr(step.binding, len(x.shape)))
    type_ = DOUBLE if x.type.is_float and op in ("sum", "mean", "prod") else x.type
    start: c.Expression = {"max": lowest, "min": highest}.get(op, lambda of: literal(op in ("prod", "all"), of))(type_)
    total = c.Variable("total", type_)
    body = row.collect(total, start, lambda so_far, value: c.Element(_UPDATES[op], (so_far, value), type_))
    result: c.Expression = total
    if op == "mean":
        result = total / c.Cast(c.Size(product(row.sizes)), DOUBLE)
    return row.in_parallel((*body, c.Store(out.buffer, row.item, cast(result, out.type))))


def _reject(binding: Binding) -> Rejection | None:
    op, dtype = binding.op.name, dtype_of(binding.operands[0])
    if op == "mean":
        return reject_other_than_floats(binding)
    if (dtype == "bool") != (op in ("any", "all")) or dtype_of(binding.result) != dtype:
        return Rejection("dtype", f"{op} has no kernel for {dtype}")
    return None


def _write_logsumexp(step: Step) -> c.Block:
    """Return the loops of a logarithm of a sum of exponentials, shifted by the largest element if finite."""
    (x,), (out,) = step.inputs, step.outputs
    row = Row(x, axes_of_attr(step.binding, len(x.shape)))
    best, shift, total = (c.Variable(name, DOUBLE) for name in ("best", "shift", "total"))
    is_finite = c.Element("isinf", (best,), c.BOOL, {"detect_negative": True, "detect_positive": True})
    moved, power, log = (c.Variable(name, DOUBLE) for name in ("moved", "power", "log_total"))
    sums = row.each(
        lambda inner: (
            c.Let(moved, cast(row.load(inner), DOUBLE) - shift),
            c.Let(power, c.Element("exp", (moved,), DOUBLE)),
            c.Assign(total, total + power),
        )
    )
    return row.in_parallel(
        (
            *row.largest(best),
            c.Let(shift, c.Select(is_finite, literal(0, DOUBLE), best)),
            c.Declare(total, literal(0, DOUBLE)),
            *sums,
            c.Let(log, c.Element("log", (total,), DOUBLE)),
            c.Store(out.buffer, row.item, cast(log + shift, out.type)),
        )
    )


def _write_extreme_index(step: Step) -> c.Block:
    """Return the loops finding the position of the largest or smallest element; NaN comes before all numbers."""
    binding, (x,), (out,) = step.binding, step.inputs, step.outputs
    row = Row(x, (axis_of(binding, len(x.shape)),))
    best, found, value, is_better = (
        c.Variable("best", x.type),
        c.Variable("found"),
        c.Variable("value", x.type),
        c.Variable("is_better", c.BOOL),
    )
    takes_last = flag_of(binding, "select_last_index")
    operator = (">" if binding.op.name == "argmax" else "<") + ("=" if takes_last else "")
    better: c.Expression = value.compare(operator, best)
    if x.type.is_float:
        is_nan, was_nan = value.compare("!=", value), best.compare("!=", best)
        better = c.Binary("||", better, is_nan if takes_last else c.Binary("&&", is_nan, c.Unary("!", was_nan)))
    k, (size,) = c.Variable("k"), row.sizes
    update = c.If(is_better, (c.Assign(best, value), c.Assign(found, k)))
    block = (c.Let(value, row.load([k])), c.Let(is_better, better), update)
    return row.in_parallel(
        (
            c.Declare(best, row.load([c.Size(0)])),
            c.Declare(found, c.Size(0)),
            c.For(k, c.Size(1), c.Size(size), block),
            c.Store(out.buffer, row.item, cast(found, out.type)),
        )
    )


def _reject_extreme_index(binding: Binding) -> Rejection | None:
    data = binding.operands[0]
    if dtype_of(data) == "bool":
        return Rejection("dtype", f"{binding.op.name} has no kernel for bool")
    return reject_empty_axis(binding, shape_of(data)[axis_of(binding, len(shape_of(data)))])


FAMILIES = (
    KernelFamily(frozenset(_UPDATES), _write, _reject),
    KernelFamily(frozenset({"logsumexp"}), _write_logsumexp, reject_other_than_floats),
    KernelFamily(frozenset({"argmax", "argmin"}), _write_extreme_index, _reject_extreme_index),
)
"""Sums, extremes, logic, and the positions of extremes along axes."""
