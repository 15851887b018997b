"""Depthwise convolution, channels last: each channel by itself, vectors running along the channels.

A block of neighbouring outputs, in one or two rows, is summed up in registers, so that each pixel is loaded once for
all of them. Where a block's windows all lie inside the image its pixels are found by their distances; at the border
each has an address of its own, that of a pixel of zeros outside. The sums of a block wait in a small array for what
follows the convolution.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.depthwise_block import (
    DepthwiseBlock,
    PixelSource,
    choose_block,
    has_suited_filter,
    sum_function,
)
from byoc_ccompiler.kernels.epilogue import epilogue
from byoc_ccompiler.kernels.image_pixels import ImagePixels
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["filter_taps", "is_suited", "write"]


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Return whether a convolution, its channels last, has a filter for each channel that is summed up in registers."""
    geometry = ConvolutionGeometry.of_step(step)
    has_rows = geometry.layout[-1] == "C" and kernel.strides(step.operands[0])[-1] == 1
    return has_rows and has_suited_filter(geometry, kernel.unit)


def write(kernel: Kernel) -> None:
    """Write the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    image = ImagePixels.of(kernel)
    block = choose_block(image.geometry, kernel.unit, image.row_step, image.pixel_step)
    taps, declared = filter_taps(kernel, image.geometry)
    kernel.finish_block((*declared, _block_loop(kernel, block, image, taps)))


def filter_taps(kernel: Kernel, geometry: ConvolutionGeometry) -> tuple[c.Buffer, c.Block]:
    """Return the filter tap by tap, channels side by side, and the statements that rearrange one that is computed."""
    weight, channels = kernel.group.steps[0].operands[1], geometry.channels
    if isinstance(weight, Constant):
        array = geometry.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
        packed = np.ascontiguousarray(array.reshape(channels, geometry.num_taps).T)
        return kernel.source(kernel.scope.constants.derive(packed), "weights"), ()
    taps = kernel.scratch_memory(geometry.num_taps * channels, geometry.dtype)
    sizes, steps = (geometry.filter_height, geometry.filter_width, channels), geometry.weight_steps
    indices = [c.Variable(name) for name in ("down", "right", "c")]
    come = kernel.source(weight, "weight")[offset_along(indices, (*steps[2:], steps[0]))]
    return taps, loops_around((c.Store(taps, offset_along(indices, compact_strides(sizes)), come),), indices, sizes)


def _block_loop(kernel: Kernel, block: DepthwiseBlock, image: ImagePixels, taps: c.Buffer) -> c.For:
    """Return the loop over rows of blocks."""
    geometry = block.geometry
    item, n, y0, x0, row, column = (c.Variable(name) for name in ("item", "n", "y0", "x0", "row", "col"))
    at = c.PointerArray("at", geometry.dtype, c.MemoryAccess.WRITE, block.in_rows * block.in_columns)
    num_rows = (geometry.out_height + (block.rows - 1)) // block.rows
    number, block_row = c.unravelled(item, (geometry.batch, num_rows))
    is_border = image.misses(row, column, block.in_rows, block.in_columns)
    steps = tuple(c.Size(step) for step in (block.row_step, block.pixel_step) if not isinstance(step, int))

    def summed(c0: c.Variable, count: c.Variable, sums: c.Buffer) -> c.Block:
        def call(source: PixelSource, *pixels: c.Expression) -> c.Block:
            callee = kernel.shared_function(sum_function(block, source))
            arguments = (*pixels, c.Address(taps, c0), count, c.Address(sums, c.Size(0)))
            return (c.Evaluate(c.Call(callee, arguments)),)

        inside = call(PixelSource.STEPS, c.Address(image.buffer, image.offset(n, row, column) + c0), *steps)
        return (c.If(is_border, call(PixelSource.PIXELS, c.Address(at, c.Size(0)), c0), inside),)

    chunks = block.chunk_loop((n, y0, x0), summed, lambda _, tile: epilogue(kernel, tile))
    columns = (
        c.Let(column, x0 * geometry.strides[1] - geometry.padding[1]),
        c.LocalArray(at),
        c.If(is_border, image.pointers(at, n, row, column, block.in_columns)),
        chunks,
    )
    body = (
        c.Let(n, number),
        c.Let(y0, block_row * block.rows),
        c.Let(row, y0 * geometry.strides[0] - geometry.padding[0]),
        c.For(x0, c.Size(0), c.Size(geometry.out_width), columns, step=block.columns),
    )
    item_ps = geometry.out_width * (block.rows * geometry.channels * geometry.num_taps)
    item_ps = item_ps * (multiply_add_ps(block.unit, geometry.dtype) * 2)
    count = c.Size(geometry.batch * num_rows)
    return c.For(item, c.Size(0), count, body, kind=c.LoopKind.PARALLEL, round_ps=item_ps)
