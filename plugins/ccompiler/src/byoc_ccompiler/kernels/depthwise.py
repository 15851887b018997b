"""Depthwise convolution, channels last: each channel by itself, vectors running along the channels.

A block of neighbouring outputs, in one or two rows, is summed up in registers, so that each pixel is loaded once for
all of them. Where a block's windows all lie inside the image its pixels are found by their distances; at the border
each has an address of its own, that of a pixel of zeros outside. The sums of a block wait in a small array for what
follows the convolution.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import Dim
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.depthwise_block import (
    DepthwiseBlock,
    PixelSource,
    choose_block,
    has_suited_filter,
    sum_function,
)
from byoc_ccompiler.kernels.epilogue_text import epilogue_lines
from byoc_ccompiler.kernels.window_rows import zeros
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["is_suited", "write"]

_LOCALS = (
    *("taps", "item", "n", "y", "y0", "x0", "x_count", "c0", "c_count", "row", "col", "at", "k", "c", "down"),
    *("right", "from", "to", "is_inside"),
)


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Tells whether a convolution, its channels last, has a filter for each channel that is summed up in registers."""
    geometry = ConvolutionGeometry.of_step(step)
    has_rows = geometry.layout[-1] == "C" and kernel.strides(step.operands[0])[-1] == 1
    return has_rows and has_suited_filter(geometry, kernel.unit)


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    geometry = ConvolutionGeometry.of_step(anchor)
    image_step, _, row_step, pixel_step = geometry.image_steps(kernel.strides(anchor.operands[0]))
    block = choose_block(geometry, kernel.unit, row_step, pixel_step)
    kernel.names.reserve(_LOCALS)
    image = kernel.input(anchor.operands[0], "x")
    ctype = c_type(geometry.dtype)
    taps = taps_lines(kernel, geometry)
    kernel.finish([*taps, _block_loop(kernel, block, image, image_step)], variables=[f"const {ctype} *taps"])


def taps_lines(kernel: Kernel, geometry: ConvolutionGeometry) -> list[str]:
    """Gives the declaration of ``taps``, the filter tap by tap, channels side by side."""
    weight = kernel.group.steps[0].operands[1]
    ctype, channels = c_type(geometry.dtype), geometry.channels
    if isinstance(weight, Constant):
        array = geometry.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
        packed = np.ascontiguousarray(array.reshape(channels, geometry.num_taps).T)
        return [f"  const {ctype} *const taps = {kernel.input(kernel.scope.constants.derive(packed), 'weights')};"]
    kernel.scratch = geometry.num_taps * channels
    steps = geometry.weight_steps
    place = f"c * {steps[0]} + down * {steps[2]} + right * {steps[3]}"
    return [
        f"  {ctype} *const taps = scratch;",
        f"  for (int64_t down = 0; down < {geometry.filter_height}; ++down) {{",
        f"    for (int64_t right = 0; right < {geometry.filter_width}; ++right) {{",
        f"      {ctype} *const to = taps + (down * {geometry.filter_width} + right) * {channels};",
        f"      for (int64_t c = 0; c < {channels}; ++c) to[c] = {kernel.input(weight, 'weight')}[{place}];",
        "    }",
        "  }",
    ]


def _block_loop(kernel: Kernel, block: DepthwiseBlock, image: str, image_step: Dim) -> ParallelLoop:
    """Gives the loop over rows of blocks."""
    geometry, ctype = block.geometry, c_type(block.geometry.dtype)
    (down, right), (top, left) = geometry.strides, geometry.padding[:2]
    height, width = c_dim(geometry.height), c_dim(geometry.width)
    num_rows = (geometry.out_height + (block.rows - 1)) // block.rows
    batch = f"item / {c_dim(num_rows)} * {c_dim(image_step)}"
    origin = image if geometry.batch == 1 else f"{image} + {batch}"
    inner = kernel.helper("depthwise_inside", sum_function(block, PixelSource.STEPS))
    border = kernel.helper("depthwise_border", sum_function(block, PixelSource.PIXELS))
    chunk, pixels = block.chunk, block.in_rows * block.in_columns
    row_offset = f"row * {c_dim(block.row_step)} + col * {c_dim(block.pixel_step)}"
    steps = "".join(f"{c_dim(step)}, " for step in (block.row_step, block.pixel_step) if not isinstance(step, int))
    counts = "c_count, sums"
    is_inside = " && ".join(
        [
            f"row >= 0 && row + {block.in_rows} <= {height}",
            f"col >= 0 && col + {block.in_columns} <= {width}",
        ]
    )
    lines = (
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        *([f"    const int64_t n = item / {c_dim(num_rows)};"] if geometry.batch != 1 else []),
        f"    const int64_t y0 = item % {c_dim(num_rows)} * {block.rows}, row = y0 * {down} - {top};",
        f"    const {ctype} *const from = {origin};",
        f"    for (int64_t x0 = 0; x0 < {c_dim(geometry.out_width)}; x0 += {block.columns}) {{",
        f"      const int64_t x_count = byoc_min({block.columns}, {c_dim(geometry.out_width)} - x0);",
        f"      const int64_t col = x0 * {right} - {left};",
        f"      const int is_inside = {is_inside};",
        f"      const {ctype} *at[{pixels}];",
        "      if (!is_inside) {",
        f"        for (int64_t k = 0; k < {pixels}; ++k) {{",
        f"          const int64_t i = row + k / {block.in_columns}, j = col + k % {block.in_columns};",
        f"          at[k] = i >= 0 && i < {height} && j >= 0 && j < {width}",
        f"                      ? from + i * {c_dim(block.row_step)} + j * {c_dim(block.pixel_step)}",
        f"                      : {zeros(kernel, geometry.dtype, geometry.channels)};",
        "        }",
        "      }",
        f"      for (int64_t c0 = 0; c0 < {geometry.channels}; c0 += {chunk}) {{",
        f"        const int64_t c_count = byoc_min({chunk}, {geometry.channels} - c0);",
        f"        {ctype} sums[{block.rows * block.columns * chunk}] __attribute__((aligned({block.unit.nbytes})));",
        f"        if (is_inside) {inner}(from + {row_offset} + c0, {steps}taps + c0, {counts});",
        f"        else {border}(at, c0, taps + c0, {counts});",
        *_store_lines(kernel, block),
        "      }",
        "    }",
        "  }",
    )
    item_ps = geometry.out_width * block.rows * geometry.channels * geometry.num_taps
    return ParallelLoop(lines, geometry.batch * num_rows, item_ps * multiply_add_ps(block.unit, geometry.dtype) * 2)


def _store_lines(kernel: Kernel, block: DepthwiseBlock) -> list[str]:
    """Gives the loop over the rows of a block that does what follows, and stores."""
    geometry = block.geometry
    names = {"N": "0" if geometry.batch == 1 else "n", "H": "y"}
    tile = block.sums_tile(tuple(names[axis] for axis in geometry.layout[:-2]))
    return [
        f"        for (int64_t y = y0; y < byoc_min(y0 + {block.rows}, {c_dim(geometry.out_height)}); ++y) {{",
        *epilogue_lines(kernel, tile, "          "),
        "        }",
    ]
