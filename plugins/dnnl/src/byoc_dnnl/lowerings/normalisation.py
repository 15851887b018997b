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
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_layer_norm", "lower_lrn", "lower_softmax"]

_REFERENCE = "oneDNN has only a reference implementation"


def lower_softmax(call: Call, planner: Planner) -> str | None:
    """Add softmax.

    A NaN makes the whole row NaN, and so does plus infinity. oneDNN 3.2 gives NaN in a single element of the row, and
    zeros in the others. A check looks for this NaN, unless the operand is proved finite or the reader spreads the NaN
    anyway.
    """
    axis = axis_of(call)
    dtype = planner.result_dtype(call)
    is_safe = planner.ranges.proves([(call.inputs[0], LARGEST)]) or _sums_rows(planner.graph.follower(call), call, axis)
    reason = _add(call, planner, lambda desc, target: planner.factory.softmax(desc, target, axis), dtype=dtype)
    if reason is None and not is_safe:
        planner.check_result(call, 2.0)
    return reason


def _sums_rows(reader: Call | None, call: Call, axis: int) -> bool:
    """Return whether the only reader of a softmax is a product with the rows: a single NaN acts like a row of NaN."""
    is_product = reader is not None and reader.op in ("matmul", "nn.dense") and reader.inputs[0] == call.output
    return is_product and axis == len(call.result.shape) - 1


def lower_lrn(call: Call, planner: Planner) -> str | None:
    """Add local response normalisation; oneDNN's windows have as many channels before as after.

    Not taken: windows of an even number of channels; windows with more channels than exist on both sides; channels on
    another axis than the second.
    """
    size = integer(call, "size")
    if axis_of(call) != 1:
        return "oneDNN normalises over the second axis only"
    if size % 2 == 0:
        return "oneDNN supports only windows of an odd number of channels"
    if size > 2 * sizes_of(call.result)[1]:
        return "the window is larger than twice the number of channels"
    alpha, beta, bias = (number(call, name) for name in ("alpha", "beta", "bias"))
    return _add(call, planner, lambda desc, _: planner.factory.lrn(desc, size, alpha, beta, bias))


def lower_layer_norm(call: Call, planner: Planner) -> str | None:
    """Add layer normalisation over the last axes.

    Not taken: other axes than the last.
    """
    x, gamma, beta = call.inputs
    sizes = sizes_of(call.operands[0])
    axes = sorted(in_range(call, "axes", axis) for axis in integers(call, "axes"))
    if axes != list(range(len(sizes) - len(axes), len(sizes))):
        return "the axes are not the last axes"
    columns = 1
    for axis in axes:
        columns *= sizes[axis]
    rows = 1
    for size in sizes[: len(sizes) - len(axes)]:
        rows *= size
    stored_dtype, dtype = planner.stored_location(x).desc.dtype, planner.result_dtype(call)
    row, matrix, written = (
        planner.row_major(shape, column_dtype)
        for shape, column_dtype in (((columns,), "float32"), ((rows, columns), stored_dtype), ((rows, columns), dtype))
    )
    primitive = planner.factory.layer_normalization(matrix, written, number(call, "epsilon"))
    if primitive is None or not planner.accepts(primitive):
        return _REFERENCE
    source = planner.row_major_location(x, stored_dtype)
    scale, shift = (planner.row_major_location(id_, "float32") for id_ in (gamma, beta))
    target = planner.allocate_result(call.output, planner.row_major(sizes, dtype))
    arguments: dict[int, Location] = {
        Argument.SRC: source.view_as(matrix),
        Argument.SCALE: scale.view_as(row),
        Argument.SHIFT: shift.view_as(row),
        Argument.DST: target.view_as(written),
    }
    planner.add_step(call.op, primitive, arguments)
    return None


def _add(
    call: Call,
    planner: Planner,
    make: Callable[[MemoryDesc, MemoryDesc], PrimitiveDesc | None],
    operands: Mapping[int, Location] | None = None,
    order: Sequence[int] | None = None,
    dtype: str | None = None,
) -> str | None:
    """Add a primitive on the first operand as stored, or else in row-major order.

    Args:
        call: the call.
        planner: the plan.
        make: returns the primitive, from the descriptions of operand and result.
        operands: other operands.
        order: the axes in the primitive's order; by default unchanged.
        dtype: of the result, if the layout permits; by default the stored dtype of the operand.
    """
    for location in planner.candidate_locations(call.inputs[0]):
        result = (dtype and location.desc.cast(planner.engine, dtype)) or location.desc
        desc, target = (found.permuted(order) if order else found for found in (location.desc, result))
        primitive = make(desc, target)
        if primitive is not None and planner.accepts(primitive):
            written = _written(call, planner, location, result).view_as(target)
            planner.add_step(
                call.op, primitive, {Argument.SRC: location.view_as(desc), **(operands or {}), Argument.DST: written}
            )
            return None
    return _REFERENCE


def _written(call: Call, planner: Planner, location: Location, result: MemoryDesc) -> Location:
    """Return the location of a result: for a softmax the operand, still in cache, if nothing else reads the operand."""
    (x, *_) = call.inputs
    has_operand_layout = call.op == "nn.softmax" and location is planner.stored_location(x) and location.desc == result
    if has_operand_layout and not planner.graph.is_result(call.output) and planner.can_overwrite(call, x):
        planner.set_location(call.output, location)
        return location
    return planner.allocate_result(call.output, result)
