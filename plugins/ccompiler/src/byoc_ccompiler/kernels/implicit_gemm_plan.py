"""How a convolution, channels last, is cut into register tiles of pixels times output channels, and its filter packed.

A panel is some output channels of one group, the columns of a tile, padded with zeros, as a tile reads them: the
columns of one input channel lie side by side, the channels of one tap follow one another, then the taps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant, Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import MOVE_PS, loops_around, offset_along
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["MAX_POINTERS", "ImplicitGemm", "count_runs", "joins_lines", "pack_filter"]

_FEW_CHANNELS = 16  # up to so many channels, a run is a line of the filter
_RESIDENT_NBYTES = 1 << 19  # a filter up to this size stays in the second-level cache while all pixels pass
_PANEL_NBYTES = 3 << 18  # a panel up to this size stays in the second-level cache beside the next one
_TOO_LARGE = 1.3  # how much longer a step takes with a panel above that size, about
_REGISTER_POINTERS = 10  # pointers of a tile's rows that stay in registers
_CACHE_NBYTES = 24  # bytes that the second-level cache gives in a cycle, about
MAX_POINTERS = 1 << 13  # pointers to runs of factors, which lie on the stack, at most


def joins_lines(shape: ConvolutionGeometry) -> bool:
    """Return whether one run of factors is a whole line of the filter."""
    has_line = shape.filter_width > 1 and shape.dilation[1] == 1
    return has_line and shape.groups == 1 and shape.channels <= _FEW_CHANNELS


def count_runs(shape: ConvolutionGeometry) -> int:
    """Return the number of runs of factors in a row."""
    return shape.filter_height if joins_lines(shape) else shape.num_taps


@dataclass(frozen=True, slots=True)
class ImplicitGemm:
    """How a convolution is cut into tiles of ``rows`` pixels times ``columns`` output channels, in ``vectors``.

    The image has ``steps`` from one image, channel, row and pixel to the next. Where it ``copies`` images, padded with
    zeros, one after another, the pixels are those of one image, else of all. Each has ``runs`` of ``depth`` factors.
    """

    shape: ConvolutionGeometry
    steps: tuple[Dim, Dim, Dim, Dim]
    copies: bool
    num_pixels: Dim
    runs: int
    depth: int
    rows: int
    vectors: int
    columns: int

    @classmethod
    def of(cls, kernel: Kernel, pixels: int | None = None) -> ImplicitGemm:
        """Return the cut of the convolution that a kernel begins with, by tiles for all pixels or for so many."""
        anchor, unit = kernel.group.steps[0], kernel.unit
        shape = ConvolutionGeometry.of_step(anchor)
        steps, runs = shape.image_steps(kernel.strides(anchor.operands[0])), count_runs(shape)
        copies = joins_lines(shape) and (shape.is_padded or steps[1] != 1 or steps[3] != shape.channels)
        num_pixels = shape.out_height * shape.out_width if copies else shape.num_pixels
        rows, vectors = _choose_tile(unit, shape, num_pixels if pixels is None else pixels)
        depth, columns = shape.num_taps // runs * shape.group_channels, vectors * unit.lanes(shape.dtype)
        return cls(shape, steps, copies, num_pixels, runs, depth, rows, vectors, columns)

    @property
    def panels(self) -> int:
        """Panels of one group."""
        return -(-self.shape.group_out_channels // self.columns)

    @property
    def panel_size(self) -> int:
        """Elements of one panel."""
        return self.runs * self.depth * self.columns

    @property
    def blocks(self) -> Dim:
        """Tiles that the pixels take."""
        return (self.num_pixels + (self.rows - 1)) // self.rows

    @property
    def panels_outside(self) -> bool:
        """Whether all pixels pass one panel after another: each is read once, where not all stay in the cache."""
        nbytes = self.shape.groups * self.panels * self.panel_size * dtype_info(self.shape.dtype).itemsize
        return nbytes > _RESIDENT_NBYTES


def _choose_tile(unit: VectorUnit, shape: ConvolutionGeometry, pixels: Dim) -> tuple[int, int]:
    """Return the (rows, vectors) of a tile for which all tiles together take least."""
    lanes, tap_nbytes = unit.lanes(shape.dtype), shape.group_channels * dtype_info(shape.dtype).itemsize
    best, best_cost = (1, 1), float("inf")
    for vectors in (4, 2, 3, 1):
        columns, most = vectors * lanes, min(unit.rows_for(vectors), 16, MAX_POINTERS // count_runs(shape))
        for rows in range(most, 0, -1) if isinstance(pixels, int) else (most,):
            whole, tail = divmod(pixels, rows) if isinstance(pixels, int) else (1 / rows, 0)
            work = whole * _step_cost(unit, rows, vectors) + (_step_cost(unit, tail, vectors) if tail else 0)
            cost = work * -(-shape.group_out_channels // columns)
            if shape.num_taps * tap_nbytes * columns > _PANEL_NBYTES:
                cost *= _TOO_LARGE
            if cost < best_cost * 0.995:
                best, best_cost = (rows, vectors), cost
    return best


def _step_cost(unit: VectorUnit, rows: int, vectors: int) -> float:
    """Return the cycles of one step of a tile: two loads are made at a time, and two products, four deep.

    Each row loads its factor, and of many rows its pointer as well; the panel comes from the second-level cache.
    """
    loads = rows * (1 if rows <= _REGISTER_POINTERS else 2) + vectors
    return max(rows * vectors / 2, loads / 2, 4, vectors * unit.nbytes / _CACHE_NBYTES)


def pack_filter(kernel: Kernel, plan: ImplicitGemm, filter_: Value) -> tuple[c.Buffer, c.Block]:
    """Return the panels of a filter, group by group, and the statements that write those of one that is computed."""
    shape, columns, width, panels = plan.shape, plan.columns, plan.shape.group_out_channels, plan.panels
    if isinstance(filter_, Constant):
        array = shape.ordered_filter(kernel.scope.constants.array(filter_, kernel.scope.where))
        array = array.reshape(shape.groups, width, *array.shape[1:])
        padded = np.pad(array, [(0, 0), (0, panels * columns - width), *[(0, 0)] * 3])
        tiled = padded.reshape(shape.groups, panels, columns, *array.shape[2:]).transpose(0, 1, 4, 5, 3, 2)
        return kernel.source(kernel.scope.constants.derive(tiled), "weights"), ()
    packed = c.Buffer("packed", shape.dtype, c.MemoryAccess.WRITE, shape.groups * panels * plan.panel_size)
    weight = kernel.source(filter_, "weight")
    panel, down, right, channel, j = indices = [c.Variable(name) for name in ("panel", "down", "right", "c", "j")]
    column = panel % panels * columns + j
    place = offset_along((panel // panels * width + column, channel, down, right), shape.weight_steps)
    row = (down * shape.filter_width + right) * shape.group_channels + channel
    value = c.Select(column.compare("<", width), weight[place], c.Literal(0, c.CType(shape.dtype)))
    store = c.Store(packed, panel * plan.panel_size + (row * columns + j), value)
    sizes = (shape.groups * panels, shape.filter_height, shape.filter_width, shape.group_channels, columns)
    loops = loops_around((store,), indices, sizes, part=0, round_ps=plan.panel_size * MOVE_PS)
    return packed, (kernel.in_scratch(packed), *loops)
