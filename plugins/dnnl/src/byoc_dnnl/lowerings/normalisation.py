"""Normalisations and softmax: the result lies as the operand does."""

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
    """Adds softmax.

    A NaN makes the whole row NaN, and so does plus infinity. oneDNN 3.2 gives NaN in one place of the row, and zeros in
    the others: that is looked for, except where it comes to the same.
    """
    axis = axis_of(call)
    dtype = planner.result_dtype(call)
    is_safe = planner.ranges.hold([(call.inputs[0], LARGEST)]) or _sums_rows(planner.follower(call), call, axis)
    reason = _add(call, planner, lambda desc, target: planner.workshop.softmax(desc, target, axis), dtype=dtype)
    if reason is None and not is_safe:
        planner.check_result(call, 2.0)
    return reason


def _sums_rows(reader: Call | None, call: Call, axis: int) -> bool:
    """Whether all that reads a softmax is a product with its rows, where one NaN does what a row of NaN does."""
    is_product = reader is not None and reader.op in ("matmul", "nn.dense") and reader.inputs[0] == call.output
    return is_product and axis == len(call.result.shape) - 1


def lower_lrn(call: Call, planner: Planner) -> str | None:
    """Adds local response normalisation; oneDNN's windows have as many channels before as after.

    Not taken: windows of an even number of channels; windows that hold all channels and more.
    """
    size = integer(call, "size")
    if size % 2 == 0:
        return "oneDNN knows windows of an odd number of channels"
    if size > 2 * sizes_of(call.result)[1]:
        return "its windows have more channels than there are on both sides"
    alpha, beta, bias = (number(call, name) for name in ("alpha", "beta", "bias"))
    return _add(call, planner, lambda desc, _: planner.workshop.lrn(desc, size, alpha, beta, bias))


def lower_layer_norm(call: Call, planner: Planner) -> str | None:
    """Adds layer normalisation over the last axes.

    Not taken: other axes than the last ones.
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
    """Adds a primitive on the first operand as it is stored, or else on it in row-major order.

    Args:
        call: the call.
        planner: the plan.
        make: gives the primitive, from the descriptions of its operand and its result.
        given: other operands.
        order: the axes as the primitive wants them; as they are where not given.
        dtype: of the result, where the layout permits; as the operand is stored where not given.
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
    """Gives where a result goes: that of a softmax over its operand, which is in cache, where nothing else reads it."""
    (x, *_) = call.inputs
    is_over = call.op == "nn.softmax" and place is planner.stored(x) and place.desc == result
    if is_over and not planner.is_result(call.output) and planner.ends_in(call, x):
        planner.set_view(call.output, place)
        return place
    return planner.result(call.output, result)
