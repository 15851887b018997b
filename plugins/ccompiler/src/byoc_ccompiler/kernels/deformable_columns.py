"""Columns of deformable convolutions: the samples at moved positions of windows, by linear interpolation.

Neighbours and weights of a position are found once for all channels of a group.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import ints_of
from byoc_ccompiler.family import Access, KernelFamily, any_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes, require_window
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_MOST_NEIGHBOURS = 8
"""The most neighbours of a position with their offsets and weights in local variables."""

_REAL = c.CType("float64")
_FLOOR = c.Callee("floor", np.floor, flops=1)
_NONE = c.Literal(0.0, _REAL)


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: window ``w`` puts tap ``k`` at ``w * stride + k * dilation - begin``, before the offset."""

    length: Dim
    taps: int
    stride: int
    dilation: int
    begin: int

    def neighbours(
        self, offset: c.Expression, tap: c.Expression, window: c.Expression
    ) -> tuple[c.Block, list[tuple[c.Variable, c.Variable]]]:
        """Return the statements finding both neighbours, and the index and the weight of each.

        The weight of a neighbour outside the axis is 0, and the index any element of the axis.
        """
        position, first, share = (c.Variable(name, _REAL) for name in ("position", "first", "share"))
        regular = window * self.stride + tap * self.dilation - self.begin
        block: list[c.Statement] = [
            c.Let(position, c.Cast(offset, _REAL) + c.Cast(regular, _REAL)),
            c.Let(first, c.Call(_FLOOR, (position,), _REAL)),
            c.Let(share, position - first),
        ]
        length = c.Cast(c.Size(self.length), _REAL)
        found: list[tuple[c.Variable, c.Variable]] = []
        for distance, amount in ((0.0, 1.0 - share), (1.0, share)):
            at, is_inside = c.Variable("at", _REAL), c.Variable("is_inside", c.BOOL)
            index, weight = c.Variable("index", c.INDEX), c.Variable("weight", _REAL)
            block += (
                c.Let(at, first + distance),
                c.Let(is_inside, c.Binary("&&", at.compare(">=", 0.0), at.compare("<", length))),  # NaN is outside
                c.Let(index, c.Cast(c.Select(is_inside, at, _NONE), c.INDEX)),
                c.Let(weight, c.Select(is_inside, amount, _NONE)),
            )
            found.append((index, weight))
        return tuple(block), found


def _axes(step: Step) -> list[_Axis]:
    names = ("window", "strides", "dilation", "padding")
    attributes = (ints_of(step.binding, name) for name in names)  # the padding behind the axes stands last
    return [_Axis(*axis) for axis in zip(shape_of(step.operands[0])[2:], *attributes, strict=False)]


def _write(kernel: Kernel) -> None:
    """Write the kernel: positions shared by threads; the channels of a group share the neighbours of a position."""
    (step,) = kernel.group.steps
    (x, offsets), axes = step.operands, _axes(step)
    (batch, channels, *_), (_, _, taps, *sizes) = shape_of(x), shape_of(step.result)
    num_groups = shape_of(offsets)[1]
    image, moves, out = kernel.source(x), kernel.source(offsets, "offsets"), kernel.target(step.result)
    (image_step, channel_step, *steps), (out_image, out_channel, *out_steps) = map(kernel.strides, (x, step.result))
    item, channel, n, group, tap = c.variables("item channel n group tap")
    group_channels, num_windows = channels // num_groups, product(sizes)
    at = c.unravelled(item, (batch, num_groups, taps, *sizes))
    type_, total = c.CType(image.dtype), c.Variable("total", c.CType(image.dtype))
    pixels, to = c.Buffer("from", image.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    first_channel = group * group_channels
    block: list[c.Statement] = [
        c.Let(n, at[0]),
        c.Let(group, at[1]),
        c.Let(tap, at[2]),
        c.Alias(pixels, image, n * image_step + first_channel * channel_step),
        c.Alias(to, out, offset_along([n, tap, *at[3:]], (out_image, *out_steps)) + first_channel * out_channel),
    ]
    windows, tap_indices = at[3:], c.unravelled(tap, [axis.taps for axis in axes])
    start, window = c.variables("start window")
    block += (
        c.Let(start, item // num_windows * len(axes) * num_windows),
        c.Let(window, item % num_windows),
    )
    found = []
    for number, axis in enumerate(axes):
        offset = moves[start + number * num_windows + window]
        statements, neighbours = axis.neighbours(offset, tap_indices[number], windows[number])
        block += statements
        found.append(neighbours)
    adds: list[c.Statement] = [c.Declare(total, c.Literal(0, type_))]
    for combined in itertools.product(*found):
        location, factor = c.Variable("offset", c.INDEX), c.Variable("factor", type_)
        weight: c.Expression = combined[0][1]
        for _, share in combined[1:]:
            weight = weight * share
        counts, exact = c.Variable("counts", c.BOOL), c.Variable("share", _REAL)
        block += (
            c.Let(exact, weight),
            c.Let(counts, exact.compare("!=", 0.0)),
            c.Let(factor, c.Cast(exact, type_)),
            c.Let(location, offset_along([index for index, _ in combined], steps)),
        )
        # An element of weight 0 counts as zero, even if infinite.
        value = c.Select(counts, pixels[channel * channel_step + location], c.Literal(0, type_))
        adds.append(c.Assign(total, total + value * factor))
    adds.append(c.Store(to, channel * out_channel, total))
    block += loops_around(tuple(adds), [channel], [group_channels])
    count = batch * num_groups * taps * num_windows
    kernel.finish_block(loops_around(tuple(block), [item], [count], part=0))


def _reject(binding: Binding) -> Rejection | None:
    rank, num_groups = len(operand_shape(binding, 0)) - 2, operand_shape(binding, 1)[1]
    if 1 << rank > _MOST_NEIGHBOURS:
        return Rejection("attribute", f"nn.deformable_im2col is compiled for at most {_MOST_NEIGHBOURS} neighbours")
    if not isinstance(num_groups, int):
        return Rejection("dynamic-shape", "nn.deformable_im2col is compiled for a known number of groups only")
    return reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    (image, offsets), result = map(shape_of, step.operands), shape_of(step.result)
    window, dilation, padding = (ints_of(step.binding, name) for name in ("window", "dilation", "padding"))
    rank, num_groups = len(window), offsets[1]
    padded = [size + padding[axis] + padding[rank + axis] for axis, size in enumerate(image[2:])]
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(window, dilation, strict=True)]
    require_window(scope, step.op, padded, reach)
    require_equal_sizes(scope, step, 0, image, (image[0], image[1] // num_groups * num_groups, *image[2:]))
    require_equal_sizes(scope, step, 1, offsets, (image[0], num_groups, result[2], rank, *result[3:]))


def _reads(step: Step, index: int) -> Access:
    return Access.ANY if index == 0 else Access.COMPACT


FAMILY = KernelFamily(
    frozenset({"nn.deformable_im2col"}), _reject, _write, require=_require, reads=_reads, writes=any_access
)
"""Columns of deformable convolutions."""
