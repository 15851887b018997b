"""Convolution, channels last, as a matrix product of windows and filters that are rounded to bfloat16.

Windows are gathered: rounded, they are half of the columns of windows in float32, for some pixels at a time.
"""

from __future__ import annotations

from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_loops import RoundedProduct
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.word_rows import gather_windows
from byoc_ccompiler.kernels.word_tiles import STEP_DEPTH
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
    step = kernel.group.steps[0]
    image, weight = step.operands
    assert isinstance(weight, Constant)
    shape = ConvolutionGeometry.of_step(step)
    depth, columns = shape.num_taps * shape.channels, shape.out_channels
    filters = shape.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
    x, strides = kernel.source(image, "x"), kernel.strides(image)
    # A row of weights is a window of the image, as it is gathered.
    has_pixels = shape.image_steps(strides)[1] == 1
    matrix = filters.transpose((2, 3, 1, 0) if has_pixels else (2, 1, 3, 0)).reshape(depth, columns)
    whole = RoundedProduct(kernel, shape.num_pixels, matrix, columns, depth, shape.channels)
    m0, count = whole.blocks.m0, whole.blocks.m_count
    loops = whole.loops(lambda writer: gather_windows(x, shape, strides, m0, count, writer))
    kernel.finish_block((*whole.set_up, *loops))
