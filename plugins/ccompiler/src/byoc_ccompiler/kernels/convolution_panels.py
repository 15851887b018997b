"""The filter of a convolution as panels: what a tile reads, in the order in which it reads.

A panel holds some output channels of one group, the columns of a tile, padded with zeros. The columns of one input
channel lie side by side, the channels of one tap follow one another, then the taps.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.ir import Constant, Value
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry

__all__ = ["count_panels", "pack_lines", "packed_constant", "panel_size"]

_PACK_PS = 500
"""Estimated picoseconds to move one element."""


def count_panels(shape: ConvolutionGeometry, columns: int) -> int:
    """Gives how many panels of so many columns one group has."""
    return -(-shape.group_out_channels // columns)


def panel_size(shape: ConvolutionGeometry, columns: int) -> int:
    """Gives the elements of one panel."""
    return shape.num_taps * shape.group_channels * columns


def packed_constant(kernel: Kernel, shape: ConvolutionGeometry, weight: Constant, columns: int) -> Value:
    """Gives the constant that holds the panels of a constant filter, group by group."""
    array: NDArray = shape.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
    groups, per_group, panels = shape.groups, shape.group_out_channels, count_panels(shape, columns)
    padded = np.zeros((groups, panels * columns, *array.shape[1:]), array.dtype)
    padded[:, :per_group] = array.reshape(groups, per_group, *array.shape[1:])
    tiled = padded.reshape(groups, panels, columns, *array.shape[1:])
    return kernel.scope.constants.derive(tiled.transpose(0, 1, 4, 5, 3, 2))


def pack_lines(shape: ConvolutionGeometry, ctype: str, weight: str, columns: int) -> ParallelLoop:
    """Gives the loop that writes the panels of a filter to the start of ``scratch``, group by group."""
    panels, per_group = count_panels(shape, columns), shape.group_out_channels
    out, into, down, right = shape.weight_steps
    position = f"tap / {shape.filter_width} * {down} + tap % {shape.filter_width} * {right} + c * {into}"
    lines = (
        f"  for (int64_t panel = {FIRST_ITEM}; panel < {END_ITEM}; ++panel) {{",
        f"    const int64_t n0 = panel % {panels} * {columns}, n_count = byoc_min({columns}, {per_group} - n0);",
        f"    const {ctype} *from = {weight} + (panel / {panels} * {per_group} + n0) * {out};",
        f"    {ctype} *to = scratch + panel * {panel_size(shape, columns)};",
        f"    for (int64_t tap = 0; tap < {shape.num_taps}; ++tap) {{",
        f"      for (int64_t c = 0; c < {shape.group_channels}; ++c, to += {columns}) {{",
        f"        const {ctype} *line = from + {position};",
        f"        for (int64_t j = 0; j < {columns}; ++j) to[j] = j < n_count ? line[j * {out}] : 0;",
        "      }",
        "    }",
        "  }",
    )
    return ParallelLoop(lines, shape.groups * panels, panel_size(shape, columns) * _PACK_PS)
