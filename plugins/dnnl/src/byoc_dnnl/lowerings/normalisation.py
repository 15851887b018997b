"""Normalisations and softmax: the result has the layout of the operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from byoc_core.opset import LARGEST

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument
from byoc_dnnl.lowerings.attributes import axis_of, in_range, integer, integers, number

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["lower_layer_norm", "lower_lrn", "lower_softmax"]

_REFERENCE = "oneDNN has only its reference implementation"


def lower_softmax(call: Call, planner: Planner) -> str | None:
    """Add softmax.

    A NaN makes the whole row NaN, and so does plus infinity. oneDNN 3.2 gives NaN in a single place of the row, and
    zeros in the others. A check looks for this NaN, unless the operand is proved finite or the reader spreads the NaN
    anyway.
    """
    axis = axis_of(call)
    dtype = planner.result_dtype(call)
    is_safe = planner.ranges.hold([(call.inputs[0], LARGEST)]) or _sums_rows(planner.follower(call), call, axis)
    reason = _add(call, planner, lambda desc, target: planner.workshop.softmax(desc, target, axis), dtype=dtype)
    if reason is None and not is_safe:
        planner.check_result(call, 2.0)
    return reason


def _sums_rows(reader: Call | None, call: Call, axis: int) -> bool:
    """Return whether the only reader of a softmax is a product with the rows: a single NaN acts like a row of NaN."""
    is_product = reader is not None and reader.op in ("matmul", "nn.dense") and reader.inputs[0] == call.output
    return is_product and axis == len(call.result.shape) - 1


def lower_lrn(call: Call, planner: Planner) -> str | None:
    """Add local response normalisation; oneDNN's windows have as many channels before as after.

    Not taken: windows of an even number of channels; windows with more channels than exist on both sides.
    """
    size = integer(call, "size")
    if size % 2 == 0:
        return "oneDNN knows windows of an odd number of channels"
    if size > 2 * sizes_of(call.result)[1]:
        return "its windows have more channels than there are on both sides"
    alpha, beta, bias = (number(call, name) for name in ("alpha", "beta", "bias"))
    return _add(call, planner, lambda desc, _: planner.workshop.lrn(desc, size, alpha, beta, bias))


def lower_layer_norm(call: Call, planner: Planner) -> str | None:
    """Add layer normalisation over the last axes.

    Not taken: other axes than the last.
    """
    x, gamma, beta = call.inputs
    sizes = sizes_of(call.operands[0])
    axes = sorted(in_range(call, "axes", axis) for axis in integers(call, "axes"))
    if axes != list(range(len(sizes) - len(axes), len(sizes))):
        return "the axes are not the last ones"
    columns = 1
    for axis in axes:
        columns *= sizes[axis]
    rows = 1
    for size in sizes[: len(sizes) - len(axes)]:
        rows *= size
    own, dtype = planner.stored(x).desc.dtype, planner.result_dtype(call)
    row, matrix, written = (
        planner.row_major(shape, of)
        for shape, of in (((columns,), "float32"), ((rows, columns), own), ((rows, columns), dtype))
    )
    made = planner.workshop.layer_normalization(matrix, written, number(call, "epsilon"))
    if made is None or not planner.accepts(made):
        return _REFERENCE
    source = planner.place_row_major(x, own)
    scale, shift = (planner.place_row_major(id_, "float32") for id_ in (gamma, beta))
    target = planner.result(call.output, planner.row_major(sizes, dtype))
    given: dict[int, Place] = {
        Argument.SRC: source.seen_as(matrix),
        Argument.SCALE: scale.seen_as(row),
        Argument.SHIFT: shift.seen_as(row),
        Argument.DST: target.seen_as(written),
    }
    planner.add_step(call.op, made, given)
    return None


def _add(
    call: Call,
    planner: Planner,
    make: Callable[[MemoryDesc, MemoryDesc], PrimitiveDesc | None],
    given: Mapping[int, Place] | None = None,
    order: Sequence[int] | None = None,
    dtype: str | None = None,
) -> str | None:
    """Add a primitive on the first operand as stored, or else in row-major order.

    Args:
        call: the call.
        planner: the plan.
        make: returns the primitive, from the descriptions of operand and result.
        given: other operands.
        order: the axes in the primitive's order; by default unchanged.
        dtype: of the result, if the layout permits; by default the stored dtype of the operand.
    """
    for place in planner.ways(call.inputs[0]):
        result = (dtype and place.desc.cast(planner.engine, dtype)) or place.desc
        desc, target = (found.permuted(order) if order else found for found in (place.desc, result))
        made = make(desc, target)
        if made is not None and planner.accepts(made):
            written = _written(call, planner, place, result).seen_as(target)
            planner.add_step(call.op, made, {Argument.SRC: place.seen_as(desc), **(given or {}), Argument.DST: written})
            return None
    return _REFERENCE


def _written(call: Call, planner: Planner, place: Place, result: MemoryDesc) -> Place:
    """Return the place of a result: for a softmax the operand, still in cache, if nothing else reads the operand."""
    (x, *_) = call.inputs
    is_over = call.op == "nn.softmax" and place is planner.stored(x) and place.desc == result
    if is_over and not planner.is_result(call.output) and planner.ends_in(call, x):
        planner.set_view(call.output, place)
        return place
    return planner.result(call.output, result)
