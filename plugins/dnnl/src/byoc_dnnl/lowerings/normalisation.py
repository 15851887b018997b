"""Normalisations and softmax: the result lies as the operand does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument
from byoc_dnnl.lowerings.attributes import axis_of, in_range, integer, integers, number
from byoc_dnnl.planner import sizes_of

if TYPE_CHECKING:
    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_batch_norm", "lower_layer_norm", "lower_lrn", "lower_softmax"]

_REFERENCE = "oneDNN has only its reference implementation"


def lower_softmax(call: Call, planner: Planner) -> str | None:
    """Adds softmax."""
    axis = axis_of(call)
    return _add(call, planner, lambda desc: planner.workshop.softmax(desc, axis))


def lower_lrn(call: Call, planner: Planner) -> str | None:
    """Adds local response normalisation; oneDNN's windows have as many channels before as after."""
    size = integer(call, "size")
    if size % 2 == 0:
        return "oneDNN knows windows of an odd number of channels"
    alpha, beta, bias = (number(call, name) for name in ("alpha", "beta", "bias"))
    return _add(call, planner, lambda desc: planner.workshop.lrn(desc, size, alpha, beta, bias))


def lower_batch_norm(call: Call, planner: Planner) -> str | None:
    """Adds batch normalisation by given statistics."""
    arguments = (Argument.SCALE, Argument.SHIFT, Argument.MEAN, Argument.VARIANCE)
    given: dict[int, Place] = dict(zip(arguments, map(planner.place_row_major, call.inputs[1:]), strict=True))
    rank, axis, epsilon = len(call.result.shape), axis_of(call), number(call, "epsilon")
    if rank < 2:
        return "oneDNN needs an axis of images and one of channels"
    others = [place for place in range(rank) if place != axis]
    order = (others[0], axis, *others[1:])
    return _add(call, planner, lambda desc: planner.workshop.batch_normalization(desc, epsilon), given, order)


def lower_layer_norm(call: Call, planner: Planner) -> str | None:
    """Adds layer normalisation over the last axes."""
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
    matrix, row = planner.row_major((rows, columns)), planner.row_major((columns,))
    made = planner.workshop.layer_normalization(matrix, number(call, "epsilon"))
    if made is None or not planner.accepts(made):
        return _REFERENCE
    source, scale, shift = (planner.place_row_major(id_) for id_ in (x, gamma, beta))
    target = planner.result(call.output, planner.row_major(sizes))
    given: dict[int, Place] = {
        Argument.SRC: source.seen_as(matrix),
        Argument.SCALE: scale.seen_as(row),
        Argument.SHIFT: shift.seen_as(row),
        Argument.DST: target.seen_as(matrix),
    }
    planner.add_step(call.op, made, given)
    return None


def _add(
    call: Call,
    planner: Planner,
    make: Callable[[MemoryDesc], PrimitiveDesc | None],
    given: Mapping[int, Place] | None = None,
    order: Sequence[int] | None = None,
) -> str | None:
    """Adds a primitive on the first operand as it lies, or else on it in row-major order.

    Args:
        call: the call.
        planner: the plan.
        make: gives the primitive.
        given: other operands.
        order: the axes as the primitive wants them; as they are where not given.
    """
    x = call.inputs[0]
    for row_major in (False, True):
        place = planner.place_row_major(x) if row_major else planner.place(x)
        desc = place.desc.permuted(order) if order else place.desc
        made = make(desc)
        if made is not None and planner.accepts(made):
            target = planner.result(call.output, place.desc).seen_as(desc)
            planner.add_step(call.op, made, {Argument.SRC: place.seen_as(desc), **(given or {}), Argument.DST: target})
            return None
    return _REFERENCE
