"""Normalisations without a primitive of their own in oneDNN 3.2: of groups of channels, and by the root mean square."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.attributes import in_range, integer, integers, number
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_group_norm", "lower_instance_norm", "lower_rms_norm"]

_REFERENCE = "oneDNN has only a reference implementation"


def lower_instance_norm(call: Call, planner: Planner) -> str | None:
    """Add normalisation of each channel of each image."""
    sizes = sizes_of(call.result)
    if sizes[0] == 1 and len(sizes) > 2:
        return _add_single_image(call, planner)
    return _add_groups(call, planner, sizes[1])


def lower_group_norm(call: Call, planner: Planner) -> str | None:
    """Add normalisation of each group of channels of each image."""
    return _add_groups(call, planner, integer(call, "groups"))


def lower_rms_norm(call: Call, planner: Planner) -> str | None:
    """Add division by the root mean square over the last axes: squares, the root of the mean, a quotient.

    Not taken: other axes than the last.
    """
    x, gamma = call.inputs
    sizes = sizes_of(call.result)
    axes = sorted(in_range(call, "axes", axis) for axis in integers(call, "axes"))
    num_outer = len(sizes) - len(axes)
    if axes != list(range(num_outer, len(sizes))):
        return "the axes are not the last axes"
    matrix, row = (
        planner.row_major((prod(sizes[:num_outer]), prod(sizes[num_outer:]))),
        planner.row_major((1, prod(sizes[num_outer:]))),
    )
    column = planner.row_major((prod(sizes[:num_outer]), 1))
    source = planner.row_major_location(x).view_as(matrix)
    scale = planner.row_major_location(gamma).view_as(row)
    squares, roots = (planner.allocate_temporary(name, desc) for name, desc in (("squares", matrix), ("roots", column)))
    root = [PostOp(Algorithm.ELTWISE_LINEAR, 1.0, beta=number(call, "epsilon")), PostOp(Algorithm.ELTWISE_SQRT)]
    factory = planner.factory
    steps: Sequence[tuple[PrimitiveDesc | None, dict[int, Location]]] = (
        (
            factory.binary(Algorithm.BINARY_MUL, matrix, matrix, ()),
            {Argument.SRC: source, Argument.SRC_1: source, Argument.DST: squares},
        ),
        (
            factory.reduction(Algorithm.REDUCTION_MEAN, matrix, column, root),
            {Argument.SRC: squares, Argument.DST: roots},
        ),
        (
            factory.binary(Algorithm.BINARY_DIV, matrix, column, [PostOp(Algorithm.BINARY_MUL, operand=row)]),
            {
                Argument.SRC: source,
                Argument.SRC_1: roots,
                Argument.POST_OP_SRC_1: scale,
                Argument.DST: planner.allocate_result(call.output, planner.row_major(sizes)).view_as(matrix),
            },
        ),
    )
    for primitive, arguments in steps:
        if primitive is None or not planner.accepts(primitive):
            return _REFERENCE
        planner.add_step(call.op, primitive, arguments)
    return None


def _add_single_image(call: Call, planner: Planner) -> str | None:
    """Add normalisation of the channels of a single image: batch normalisation by the statistics of the batch."""
    x, gamma, beta = call.inputs
    location = planner.location(x)
    primitive = planner.factory.channel_standardisation(location.desc, number(call, "epsilon"))
    if primitive is None or not planner.accepts(primitive):
        return _REFERENCE
    arguments: dict[int, Location] = {
        Argument.SRC: location,
        Argument.SCALE: planner.row_major_location(gamma),
        Argument.SHIFT: planner.row_major_location(beta),
        Argument.DST: planner.allocate_result(call.output, location.desc),
    }
    planner.add_step(call.op, primitive, arguments)
    return None


def _add_groups(call: Call, planner: Planner, groups: int) -> str | None:
    """Add normalisation of rows, each a group of channels of an image, then each channel's scale and shift."""
    x, gamma, beta = call.inputs
    images, channels, *spatial = sizes_of(call.result)
    rows = images * groups
    matrix = planner.row_major((rows, channels // groups * prod(spatial)))
    primitive = planner.factory.standardisation(matrix, number(call, "epsilon"))
    if primitive is None or not planner.accepts(primitive):
        return _REFERENCE
    standardised = planner.allocate_temporary(call.op, matrix)
    planner.add_step(
        call.op, primitive, {Argument.SRC: planner.row_major_location(x).view_as(matrix), Argument.DST: standardised}
    )

    pixels = [prod(spatial)] if prod(spatial) > 1 else []
    image, channel = (
        planner.row_major((images, channels, *pixels)),
        planner.row_major((1, channels, *[1] * len(pixels))),
    )
    channel_post_ops = [PostOp(Algorithm.BINARY_ADD, operand=channel)]

    def arguments(_: PrimitiveDesc) -> Mapping[int, Location]:
        return {
            Argument.SRC: standardised.view_as(image),
            Argument.SRC_1: planner.row_major_location(gamma).view_as(channel),
            Argument.POST_OP_SRC_1: planner.row_major_location(beta).view_as(channel),
        }

    def to_primitive(desc: MemoryDesc) -> MemoryDesc | None:
        if desc.sizes[2:] not in (tuple(spatial), (1,) * len(spatial)):
            return None
        return desc.reshaped((*desc.sizes[:2], *[prod(desc.sizes[2:])] * len(pixels)))

    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.factory.binary(Algorithm.BINARY_MUL, image, channel, post_ops),
        arguments,
        to_primitive,
        lambda _: planner.row_major(sizes_of(call.result)),
        channel_post_ops,
    )
