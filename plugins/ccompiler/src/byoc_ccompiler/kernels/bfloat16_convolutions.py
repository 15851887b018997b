"""Convolution, channels last, as a matrix product of windows and filters that are rounded to bfloat16.

Windows are gathered: rounded, they are half of the columns of windows in float32, for some pixels at a time.
"""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_loops import RoundedProduct, panel_columns
from byoc_ccompiler.kernels.bfloat16_products import pack_rounded
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.word_blocks import Blocks
from byoc_ccompiler.kernels.word_rows import STEP_DEPTH, RoundedRows, gather_windows
from byoc_ccompiler.kernels.word_tiles import PAIRS, STEP_ROWS
from byoc_ccompiler.steps import Step

__all__ = ["is_suited", "write"]

_MAX_DEPTH = 1 << 14
"""Numbers of a window that is gathered on the stack."""


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Return whether the option permits it, for a convolution of floats, channels last, whose filter is constant."""
    shape = ConvolutionGeometry.of_step(step)
    is_whole = shape.groups == 1 and isinstance(step.operands[1], Constant)
    is_small = shape.channels % STEP_DEPTH == 0 or shape.num_taps * shape.channels <= _MAX_DEPTH
    return kernel.options.precision == "bfloat16" and shape.dtype == "float32" and is_whole and is_small


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    step, constants = kernel.group.steps[0], kernel.scope.constants
    image, weight = step.operands
    assert isinstance(weight, Constant)
    shape, columns = ConvolutionGeometry.of_step(step), ConvolutionGeometry.of_step(step).out_channels
    x, steps = kernel.source(image, "x"), shape.image_steps(kernel.strides(image))
    # A row of weights is a window of the image: line by line, pixel by pixel, channels last.
    filters = shape.ordered_filter(constants.array(weight, kernel.scope.where)).transpose(2, 3, 1, 0)
    blocks = Blocks(shape.num_pixels, columns, STEP_ROWS, panel_columns(columns))
    panels = kernel.source(constants.derive(pack_rounded(filters.reshape(-1, columns), blocks.width)), "weights")
    rows = c.Buffer("rounded", PAIRS.dtype, c.MemoryAccess.WRITE)
    whole = RoundedProduct(kernel, blocks, shape.num_taps * shape.channels, shape.channels, panels, rows)

    def gather(writer: RoundedRows) -> c.Block:
        return (gather_windows(x, shape, steps, blocks.m0, blocks.m_count, writer),)

    region: c.Block = ()
    if whole.scratch != 0:
        region = (c.Alias(rows, kernel.scratch_memory(whole.scratch, PAIRS.dtype), c.Size(0)),)
    kernel.finish_block((*whole.set_up(), *region, *whole.loops(gather)))
