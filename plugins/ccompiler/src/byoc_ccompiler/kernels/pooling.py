"""Pooling over one, two or three axes: the positions of windows, and the order of visiting windows and taps.

With channels last, the inner loops run along the channels. Sums over small windows of known size are unrolled: each tap
has an address, outside the image the address of a pixel of zeros. Other windows are visited individually, with the
totals of a chunk of channels in a small array (for maxima too: a chain of maxima has more latency than memory). With
channels first, planes of known size are pooled row by row (:mod:`~byoc_ccompiler.kernels.plane_pooling`); a row of
another image takes a pass per tap, with the inner loop along the row; elsewhere a chunk is a single element.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.authoring.csource import C_TYPES
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.dtypes import is_integer
from byoc_core.ir import Binding, Value
from byoc_core.ops import axes_of

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.plane_pooling import takes_rows, write_rows
from byoc_ccompiler.kernels.pooling_windows import PooledImage, Pooling, layout_of, require_windows
from byoc_ccompiler.rejections import FLOATS, operand_type, reject_non_floats
from byoc_ccompiler.steps import Step

__all__ = ["FAMILY"]

_MAX_UNROLLED, _CHUNK = 32, 256
"""Maximum taps of an unrolled window; maximum channels with totals waiting together."""

_SHORT = 16
"""Minimum elements of a row worth a pass per tap."""


def _write(kernel: Kernel) -> None:
    """Write the kernel of a pooling op: a nest over windows, or rows of windows, in chunks of channels."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    pooling, order = Pooling.of_step(step), axes_of(layout_of(step), "NC")
    batch, first, count, chunk = map(c.Variable, ("n", "c0", "c_count", "chunk"))
    windows = tuple(c.Axis(c.Variable(f"o_{axis.name}"), axis.out_size) for axis in pooling.axes)
    indices = [axis.index for axis in windows]

    def image_in(name: str, buffer: c.Buffer, value: Value) -> PooledImage:
        batch_step, channel_step, *strides = (kernel.strides(value)[axis] for axis in order)
        start = batch * batch_step + first * channel_step
        return PooledImage(c.Alias(replace(buffer, name=name), buffer, start), strides)

    images = image_in("from", kernel.source(x), x), image_in("to", kernel.target(step.result), step.result)
    before: c.Block = ()
    room: Dim = _CHUNK
    has_planes = _access(step, 0) is Access.COMPACT
    if has_planes:
        # Planes are consecutive, across batches too.
        pooling, room = replace(pooling, batch=1, channels=pooling.batch * pooling.channels), 1
        if takes_rows(pooling):
            body, windows = write_rows(pooling, *images), ()
        elif _takes_passes(pooling):
            body, windows = _passes(pooling, indices, *images), windows[:-1]
        else:
            body = _reduction(pooling, indices, *images, c.Size(1), 1)
    elif pooling.is_sum and 0 < math.prod(axis.window for axis in pooling.axes) <= _MAX_UNROLLED:
        room = pooling.channels
        before, body = _unrolled(kernel, pooling, indices, *images)
    else:
        reduction = _reduction(pooling, indices, *images, count, _CHUNK)
        body = (c.Let(count, c.index_min(c.Size(_CHUNK), pooling.channels - first)), *reduction)
    chunks = c.Axis(chunk, 1 if room == pooling.channels else (pooling.channels + (room - 1)) // room)
    axes = (c.Axis(batch, pooling.batch), *((chunks, *windows) if has_planes else (*windows, chunks)))
    shared = tuple(axis.name for axis in (axes[:2] if has_planes else axes))
    nest = c.Nest(axes, (c.Let(first, chunk * room), *(image.first for image in images), *body))
    schedule = c.Schedule(parallel=shared)
    kernel.finish_block((*before, *kernel.lower(nest, schedule)))


def _takes_passes(pooling: Pooling) -> bool:
    """Return whether a pass along a row for each tap takes less time than window by window."""
    right, rank = pooling.axes[-1], len(pooling.axes)
    is_short = isinstance(right.out_size, int) and right.out_size < _SHORT
    if pooling.is_inside:
        return not is_short and not pooling.is_sum and (rank == 2 or right.stride < right.window)
    is_tiny = isinstance(right.size, int) and right.size <= _SHORT // 2
    return right.window > 0 and not is_tiny and not (is_short and (pooling.is_sum or rank == 1))


def _passes(pooling: Pooling, indices: Sequence[c.Variable], image: PooledImage, result: PooledImage) -> c.Block:
    """Return the statements visiting the windows of a row once for each tap: a sum takes the taps individually."""
    (*outer, last_index), along = indices, pooling.axes[-1]
    rows, window = pooling.window([*outer, c.Size(0)]), pooling.window(indices)
    tap, position, begin, col = map(c.Variable, ("k_w", "position", "begin", "col"))
    line, row = image.pointer("line", rows.positions[:-1]), result.pointer("to", outer)
    to = row.buffer
    # The windows from the first to the end have this tap inside the image.
    end = c.index_min(c.Size(along.out_size), (along.size - 1 - position + along.stride) // along.stride)
    one_pass: c.Block = (
        c.Let(position, tap * along.dilation - along.begin),
        replace(line, offset=line.offset + position),
        c.Let(begin, (c.index_max(c.Size(0), 0 - position) + (along.stride - 1)) // along.stride),
        c.For(col, begin, end, (c.Store(to, col, pooling.combine(to[col], line.buffer[col * along.stride])),)),
    )
    finish = c.Store(to, last_index, pooling.finish(to[last_index], window.divisor))
    finished = loops_around((*window.statements, finish), [last_index], [along.out_size])
    cleared = _each(to, c.Size(along.out_size), lambda _: pooling.start)
    passes = loops_around(one_pass, [*rows.taps[:-1], tap], [*rows.counts[:-1], along.window])
    return (*rows.statements, row, *cleared, *passes, *(finished if pooling.is_sum else ()))


def _unrolled(
    kernel: Kernel, pooling: Pooling, indices: Sequence[c.Variable], image: PooledImage, result: PooledImage
) -> tuple[c.Block, c.Block]:
    """Return the statements before all windows, and the statements reducing a window of known size in all channels."""
    channel, total, to = c.Variable("c"), c.Variable("total", pooling.type), result.pointer("to", indices)
    window, channels = pooling.window(indices), c.Size(pooling.channels)
    zeros = None if pooling.is_inside else kernel.scratch_memory(pooling.channels, pooling.type.dtype)
    begins = [c.Variable(f"from_{axis.name}") for axis in pooling.axes]
    corner = [index * axis.stride - axis.begin for axis, index in zip(pooling.axes, indices, strict=True)]
    # Pointers by name, not in an array: then compilers know the pointers to be loop-invariant.
    pixels: list[c.Alias] = []
    for taps in itertools.product(*(range(axis.window) for axis in pooling.axes)):
        positions = [begin + tap * axis.dilation for axis, begin, tap in zip(pooling.axes, begins, taps, strict=True)]
        limits = [
            (position, axis) for axis, position in zip(pooling.axes, positions, strict=True) if not axis.is_inside
        ]
        bounds = [
            bound
            for position, axis in limits
            for bound in (position.compare(">=", 0), position.compare("<", axis.size))
        ]
        pixel = image.pointer(f"at{len(pixels)}", positions)
        if bounds:
            is_inside = functools.reduce(functools.partial(c.Binary, "&&"), bounds)
            pixel = replace(pixel, condition=is_inside, otherwise=zeros)
        pixels.append(pixel)
    element: c.Block = (
        c.Declare(total, pooling.start),
        *(c.Assign(total, pooling.combine(total, pixel.buffer[channel])) for pixel in pixels),
        c.Store(to.buffer, channel, pooling.finish(total, window.divisor)),
    )
    before = () if zeros is None else (c.Clear(zeros, c.Size(0), channels),)
    pointers = (*map(c.Let, begins, corner), *pixels, to)
    return before, (*window.statements, *pointers, *loops_around(element, [channel], [pooling.channels]))


def _reduction(
    pooling: Pooling,
    indices: Sequence[c.Variable],
    image: PooledImage,
    result: PooledImage,
    count: c.Expression,
    room: int,
) -> c.Block:
    """Return the statements reducing a window in ``count`` neighbouring elements, with room for their totals.

    Sums are added up row by row first: errors grow with the height and the width of a window, not with the area.
    """
    window, to = pooling.window(indices), result.pointer("to", indices)
    line, last = image.pointer("line", window.positions[:-1]), window.positions[-1] * image.strides[-1]
    total, part = (c.Buffer(name, pooling.type.dtype, c.MemoryAccess.WRITE, room) for name in ("total", "part"))
    sums = part if pooling.is_sum else total
    taps = _each(sums, count, lambda channel: pooling.combine(sums[channel], line.buffer[last + channel]))
    rows = (line, *loops_around(taps, window.taps[-1:], window.counts[-1:]))
    if pooling.is_sum:
        added = _each(total, count, lambda channel: total[channel] + part[channel])
        rows = (c.LocalArray(part, is_zeroed=True), *rows, *added)
    cleared = (c.LocalArray(total), *_each(total, count, lambda _: pooling.start))
    finished = _each(to.buffer, count, lambda channel: pooling.finish(total[channel], window.divisor))
    return (*window.statements, *cleared, *loops_around(rows, window.taps[:-1], window.counts[:-1]), to, *finished)


def _each(cells: c.Buffer, count: c.Expression, value: Callable[[c.Expression], c.Expression]) -> c.Block:
    """Return the loop setting the first ``count`` elements of a buffer."""
    index = c.Variable("c")
    return (c.For(index, c.Size(0), count, (c.Store(cells, index, value(index)),)),)


def _reject(binding: Binding) -> Rejection | None:
    if "max" not in binding.op.name:
        return reject_non_floats(binding)
    dtype = operand_type(binding, 0).dtype
    if dtype in FLOATS or (dtype in C_TYPES and is_integer(dtype)):
        return None
    return Rejection("dtype", f"{binding.op.name} is compiled for {', '.join(FLOATS)} and integers, not for {dtype}")


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if str(step.binding.attrs["layout"]).endswith("C") else Access.COMPACT


_OPS = frozenset(
    f"nn.{kind}_pool{rank}d" for kind in ("max", "avg", "lp", "adaptive_max", "adaptive_avg") for rank in (1, 2, 3)
)
FAMILY = KernelFamily(_OPS, _reject, _write, require=require_windows, reads=_access, writes=_access)
"""Pooling."""
