"""Kernels of attention: the scores of all queries and keys, the softmax of each row of scores, sums of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, DimExpr
from byoc_core.ir import Binding

from byoc_opencl.kernels.attributes import flag_of, float_of, int_of
from byoc_opencl.kernels.family import KernelFamily, reject_other_than_floats, reject_sizes, shape_of
from byoc_opencl.kernels.rows import Row
from byoc_opencl.kernels.step import DOUBLE, Step, Tensor, cast, literal, lowered

__all__ = ["FAMILIES"]


def _write(step: Step) -> c.Block:
    """Return the loops over scores, over rows of scores, and over the result."""
    query, key, value, *masks = step.inputs
    (out,) = step.outputs
    batch, heads, steps, size = query.dims
    groups, length = key.dims[1:3]
    scores = step.new_scratch("scores", "float64", (batch, heads, steps, length))
    block = _scores(step, query, key, masks, scores, _head_ratio(heads, groups), size)
    block += _softmax(step, scores)
    return block + _weighted(step, scores, value, out, _head_ratio(heads, groups))


def _head_ratio(heads: Dim, groups: Dim) -> int:
    """Return the heads of queries sharing a head of keys and values."""
    return 1 if heads == groups else int(str(heads)) // int(str(groups))


def _scores(
    step: Step, query: Tensor, key: Tensor, masks: Sequence[Tensor], scores: Tensor, ratio: int, size: Dim
) -> c.Block:
    binding = step.binding
    scale_attr = binding.attrs["scale"]
    scale = 1 / math.sqrt(max(int(str(size)), 1)) if scale_attr is None else float_of(binding, "scale")
    axes = tuple(c.Axis(c.Variable(f"i{axis}"), extent) for axis, extent in enumerate(scores.shape))
    image, head, row, column = indices = [axis.index for axis in axes]
    d, total, score = c.Axis(c.Variable("d"), query.shape[3]), c.Variable("total", DOUBLE), c.Variable("score", DOUBLE)
    product = cast(query[[image, head, row, d.index]], DOUBLE) * cast(
        key[[image, head // ratio, column, d.index]], DOUBLE
    )
    body: c.Block = (c.Let(score, total * literal(scale, DOUBLE)),)
    if cap := float_of(binding, "softcap"):
        inner, capped = c.Variable("inner", DOUBLE), c.Variable("capped", DOUBLE)
        body += (
            c.Let(inner, score / literal(cap, DOUBLE)),
            c.Let(capped, c.Element("tanh", (inner,), DOUBLE) * literal(cap, DOUBLE)),
        )
        score = capped
    result: c.Expression = score
    for mask in masks:
        own = indices[4 - len(mask.shape) :]
        mask_indices = [c.Size(0) if extent == 1 else index for extent, index in zip(mask.shape, own, strict=True)]
        result = result + cast(mask[mask_indices], DOUBLE)
    if flag_of(binding, "causal"):
        is_future = column.compare(">", row + int_of(binding, "offset"))
        result = c.Select(is_future, literal(-math.inf, DOUBLE), result)
    sums = (c.Accumulator(total, literal(0, DOUBLE), total + product),)
    return lowered(c.Nest(axes, (*body, scores.store(indices, result)), (d,), accumulators=sums))


def _softmax(step: Step, scores: Tensor) -> c.Block:
    """Return the loop over rows of scores, replaced by weights; rows without visible keys yield NaN, or zeros."""
    row = Row(scores, (3,))
    best, shift, total = (c.Variable(name, DOUBLE) for name in ("best", "shift", "total"))
    moved, power, weight = (c.Variable(name, DOUBLE) for name in ("moved", "power", "weight"))

    def exponentials(inner: Sequence[c.Expression]) -> c.Block:
        return (
            c.Let(moved, row.load(inner) - shift),
            c.Let(power, c.Element("exp", (moved,), DOUBLE)),
            scores.store(row.indices(inner), power),
            c.Assign(total, total + power),
        )

    def weights(inner: Sequence[c.Expression]) -> c.Block:
        return (c.Let(weight, row.load(inner) / divisor), scores.store(row.indices(inner), weight))

    divisor: c.Expression = total
    start: c.Expression = best
    if flag_of(step.binding, "zero_unseen"):
        start = c.Select(best.compare("==", -math.inf), literal(0, DOUBLE), best)
        divisor = c.Select(total.compare("==", 0.0), literal(1, DOUBLE), total)
    return row.in_parallel(
        (
            *row.largest(best),
            c.Let(shift, start),
            c.Declare(total, literal(0, DOUBLE)),
            *row.each(exponentials),
            *row.each(weights),
        )
    )


def _weighted(step: Step, scores: Tensor, value: Tensor, out: Tensor, ratio: int) -> c.Block:
    axes = tuple(c.Axis(c.Variable(f"i{axis}"), extent) for axis, extent in enumerate(out.shape))
    image, head, row, column = indices = [axis.index for axis in axes]
    t, total = c.Axis(c.Variable("t"), value.shape[2]), c.Variable("total", DOUBLE)
    product = scores[[image, head, row, t.index]] * cast(value[[image, head // ratio, t.index, column]], DOUBLE)
    sums = (c.Accumulator(total, literal(0, DOUBLE), total + product),)
    return lowered(c.Nest(axes, (out.store(indices, cast(total, out.type)),), (t,), accumulators=sums))


def _reject(binding: Binding) -> Rejection | None:
    if (rejection := reject_other_than_floats(binding)) is not None:
        return rejection
    if binding.attrs["scores"] is not None:
        return Rejection("result", "nn.attention has no kernel with scores as a result")
    query, key, value, *masks = map(shape_of, binding.operands)
    batch, heads, steps, size = query
    groups, length = key[1:3]
    is_whole = heads == groups or (isinstance(heads, int) and isinstance(groups, int) and groups and not heads % groups)
    if key != (batch, groups, length, size) or value[:3] != (batch, groups, length) or not is_whole:
        return reject_sizes(binding)
    if binding.attrs["scale"] is None and not isinstance(size, int):
        return Rejection("dynamic-shape", "nn.attention has no kernel for heads of symbolic size without a scale")
    if isinstance(binding.attrs["offset"], DimExpr):
        return Rejection("dynamic-shape", "nn.attention has no kernel for a symbolic offset")
    for mask in masks:
        expected = (batch, heads, steps, length)[4 - len(mask) :]
        if any(dim not in (1, extent) for dim, extent in zip(mask, expected, strict=True)):
            return reject_sizes(binding)
    return None


FAMILIES = (KernelFamily(frozenset({"nn.attention"}), _write, _reject),)
"""Attention with masks, shared heads and a cap on scores."""
