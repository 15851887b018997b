"""The filter of a convolution as panels: what a tile reads, in the order in which it reads.

A panel holds some output channels of one group, the columns of a tile, padded with zeros. The columns of one input
channel lie side by side, the channels of one tap follow one another, then the taps.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.ir import Constant, Value
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around, offset_along

__all__ = ["count_panels", "pack_panels", "packed_constant", "panel_size"]

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


def pack_panels(shape: ConvolutionGeometry, weight: c.Buffer, packed: c.Buffer, columns: int) -> c.Block:
    """Return the loop that writes the panels of a filter, group by group."""
    panels, width, size = count_panels(shape, columns), shape.group_out_channels, panel_size(shape, columns)
    panel, down, right, channel, j = map(c.Variable, ("panel", "down", "right", "c", "j"))
    column = panel % panels * columns + j
    place = offset_along((panel // panels * width + column, channel, down, right), shape.weight_steps)
    row = (down * shape.filter_width + right) * shape.group_channels + channel
    value = c.Select(column.compare("<", width), weight[place], c.Literal(0, c.CType(shape.dtype)))
    store = c.Store(packed, panel * size + (row * columns + j), value)
    sizes = (shape.groups * panels, shape.filter_height, shape.filter_width, shape.group_channels, columns)
    return loops_around((store,), (panel, down, right, channel, j), sizes, part=0, round_ps=size * _PACK_PS)
