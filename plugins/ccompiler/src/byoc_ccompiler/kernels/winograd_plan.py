"""Winograd's minimal filtering: the matrices, the tiling of a convolution, and the estimate of the gain.

``F(m, 3)`` computes ``m`` neighbouring outputs of a filter of 3 taps from ``m + 2`` inputs with ``m + 2`` products,
instead of ``3 m`` in the plain sums: ``y = A^T [(G g) * (B^T d)]``. Over two axes each map is applied along both. The
matrices interpolate a product of polynomials at chosen points and at infinity (Toom and Cook). The points determine the
growth of rounding errors: with 0, +-3/4 and +-3/2, the errors of ``F(4, 3)`` are a quarter of the errors with the
customary 0, +-1 and +-2, and all of ``A^T`` and ``B^T`` is exact in float32.

The points are part of the error bound of :mod:`~byoc_ccompiler.kernels.winograd` and of the errors promised by the
option ``winograd``. The other constants, sizes and estimated costs, decide whether and with which tiles a convolution
takes this path.

Sources: S. Winograd, Arithmetic Complexity of Computations, SIAM 1980; A. Lavin and S. Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016; B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks, ACM TOMS 46 (2020), on the points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import lcm, prod
from typing import Literal

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.errors import InternalError

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "Matrix",
    "WinogradPlan",
    "WinogradSchedule",
    "choose_plan",
    "exact_filter",
    "gains",
    "has_form",
    "make_plan",
    "minimal_filter",
    "near_schedules",
]

_TAPS = 3
# By the number of outputs: the finite points; points differing in sign only stand side by side.
_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.75, -0.75, 1.5, -1.5)}
_WHOLE_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 1.0, -1.0, 2.0, -2.0)}
_ROUND_NBYTES = 1 << 19  # size of a round's transformed tiles and a panel's products staying in the second-level cache
_ROUND_TILES = 56  # minimum of a round: each element of a filter fetched from memory is used often
_LEAST_BLOCKS, _LEAST_PANELS = 12, 4  # from this many on, parts of neighbouring blocks, or of panels, are even enough
_MOST_PARTS = 16  # maximum parts of neighbouring blocks or panels: each has separate scratch memory
_NEAR_NBYTES = 1 << 20  # bytes of a panel's factors still in the second-level cache for the next block
_NEAR_RATE = 32  # bytes of factors arriving in a cycle from the second-level cache; from beyond: a fact of the unit
_POINT_CYCLES = 5  # of the transforms, for one vector at one point, loads and stores included
_DIRECT_RATE = 1.7  # multiply-adds of vectors in a cycle of direct convolution
_SAME = 0.98  # the ratio of costs from which the first of two tiles is kept
_MARGIN = 1.25  # required gain of a plan over direct convolution, because a plan has many small loops
_LEAST_GAIN = 160_000  # cycles; a smaller gain is not worth larger errors, and NaN in all outputs of a tile
_LARGE_TILE_MARGIN = 1.1  # required gain of tiles of 4 by 4 over tiles of 2 by 2 with smaller errors
_UNKNOWN_SIZE = 28  # assumed for a symbolic size of an image; a symbolic batch counts as 1

Matrix = npt.NDArray[np.float64] | npt.NDArray[np.int64]
_Parts = Literal["blocks", "panels", "pairs"]


@dataclass(frozen=True, eq=False, slots=True)
class _MinimalFilter:
    """The algorithm ``F(m, 3)``: ``m`` outputs from ``m + 2`` inputs along each axis, with as many products.

    ``A^T`` maps products to ``outputs``, ``G`` the ``taps`` of a filter to factors, ``B^T`` ``inputs`` to the other
    factors. The outputs come out ``scale`` times as large along each axis.
    """

    num_outputs: int
    num_inputs: int
    outputs: Matrix
    taps: Matrix
    inputs: Matrix
    scale: int = 1


@cache
def minimal_filter(num_outputs: int) -> _MinimalFilter:
    """Return the algorithm with 2 or 4 outputs along an axis."""
    return _filter_at(_POINTS[num_outputs], num_outputs)


@cache
def exact_filter(num_outputs: int) -> _MinimalFilter:
    """Return the algorithm with 2 or 4 outputs along an axis, in integers: the denominators of ``G`` are the scale."""
    points = _WHOLE_POINTS[num_outputs]
    rational = _filter_at(points, num_outputs)
    # The row of `G` at a point has the denominator of the point in all elements; at infinity there is none.
    denominators = [round(prod(point - other for other in points if other != point)) for point in points] + [1]
    scale = lcm(*denominators)
    taps = np.rint(rational.taps * np.array(denominators)[:, np.newaxis]).astype(np.int64)
    outputs = np.rint(rational.outputs * scale / np.array(denominators)).astype(np.int64)
    return replace(rational, outputs=outputs, taps=taps, inputs=rational.inputs.astype(np.int64), scale=scale)


def _filter_at(points: tuple[float, ...], num_outputs: int) -> _MinimalFilter:
    size = num_outputs + _TAPS - 1
    outputs, taps, inputs = np.zeros((num_outputs, size)), np.zeros((size, _TAPS)), np.zeros((size, size))
    for index, point in enumerate(points):
        other_points = [other for other in points if other != point]
        outputs[:, index] = [point**power for power in range(num_outputs)]
        taps[index] = [point**power / np.prod([point - other for other in other_points]) for power in range(_TAPS)]
        inputs[index, :-1] = np.polynomial.polynomial.polyfromroots(other_points)
    outputs[-1, -1] = taps[-1, -1] = 1.0
    inputs[-1] = np.polynomial.polynomial.polyfromroots(points)
    return _MinimalFilter(num_outputs, size, outputs, taps, inputs)


@dataclass(frozen=True, slots=True)
class WinogradSchedule:
    """A schedule of Winograd's minimal filtering for a convolution.

    Attributes:
        num_outputs: outputs of a tile along each axis, 2 or 4.
        rows: tiles multiplied together, a block.
        vectors: vectors of output channels multiplied together, a panel.
        blocks: blocks of a round; all tiles of a round are transformed before the multiplication.
        parts: the division among threads: neighbouring blocks, panels, or pairs of panels and blocks of a round.
    """

    num_outputs: int
    rows: int
    vectors: int
    blocks: int = 1
    parts: _Parts = "blocks"


class WinogradPlan:
    """The sizes of a convolution under a schedule.

    A panel has ``width`` channels, the last panel is padded with zeros; a tile has ``num_points`` products for a pair
    of channels. In a convolution of uint32, a channel is a word with two channels of bytes, and the algorithm is exact.

    Threads divide a ``total`` of blocks or panels by multiples of ``grain``. The smallest part has scratch memory for
    the transformed tiles of ``part_blocks`` blocks, a larger part a multiple of this memory; all parts together have
    ``tiles_size`` elements. The products follow; ``scratch_size`` is the size of both.

    Raises:
        InternalError: the schedule is not legal.
    """

    def __init__(self, geometry: ConvolutionGeometry, unit: VectorUnit, schedule: WinogradSchedule) -> None:
        self.geometry, self.unit, self.schedule, self.parts = geometry, unit, schedule, schedule.parts
        self.rows, self.vectors, self.blocks = rows, vectors, blocks = schedule.rows, schedule.vectors, schedule.blocks
        if schedule.num_outputs not in _POINTS or min(rows, vectors, blocks) < 1 or not has_form(geometry, unit):
            raise InternalError("schedule", "does not fit the convolution", got=str(schedule))
        self.algorithm, num_outputs, channels = (
            (exact_filter if geometry.dtype == "uint32" else minimal_filter)(schedule.num_outputs),
            schedule.num_outputs,
            geometry.channels,
        )
        self.round_tiles = blocks * rows
        self.lanes, self.itemsize = unit.lanes(geometry.dtype), dtype_info(geometry.dtype).itemsize
        self.width, self.num_points = vectors * self.lanes, self.algorithm.num_inputs**2
        self.num_panels = -(-geometry.out_channels // self.width)
        # Images, and tiles down and right of each.
        down, right = ((size + (num_outputs - 1)) // num_outputs for size in (geometry.out_height, geometry.out_width))
        self.grid: tuple[Dim, Dim, Dim] = (geometry.batch, down, right)
        self.num_tiles = product(self.grid)
        is_one_round = isinstance(self.num_tiles, int) and self.num_tiles <= self.round_tiles
        if self.parts == "panels" and not is_one_round:
            raise InternalError("schedule", "divides panels among threads, but has several rounds", got=str(schedule))
        batch, height, width = _assumed(geometry)
        self.assumed_tiles = batch * -(-height // num_outputs) * -(-width // num_outputs)
        # From one tile's channels to the next's at one point; the same sets of a cache do not serve all.
        step = -(-channels // self.lanes) * self.lanes
        self.row_step = step + self.lanes if step * self.itemsize % 512 == 0 else step
        self.block_step = self.num_points * rows * self.row_step
        self.panel_products = self.num_points * self.round_tiles * self.width
        self.total = self.num_panels if self.parts == "panels" else (self.num_tiles + (rows - 1)) // rows
        self.grain, parts, self.part_blocks = self.total // _MOST_PARTS + 1, _MOST_PARTS, blocks
        if isinstance(self.total, int) and isinstance(self.grain, int):
            parts, self.part_blocks = -(-self.total // self.grain), min(self.grain, blocks)
        self.tiles_size = (parts * self.part_blocks if self.parts == "blocks" else blocks) * self.block_step
        # The products of a pair lie on the stack.
        self.scratch_size = self.tiles_size + (0 if self.parts == "pairs" else parts * self.panel_products)

    def cycles(self) -> float:
        """Return the estimated cycles in a single thread."""
        channels, blocks = self.geometry.channels, -(-self.assumed_tiles // self.rows)
        sums, loads, near = self.rows * self.vectors, self.rows + self.vectors, self.vectors * self.unit.nbytes
        step = max(sums / 2, loads / 2, 4.0, near / _NEAR_RATE)
        products = blocks * self.num_panels * self.num_points * (channels * step + sums + 20)
        vectors = -(-channels // self.lanes) + self.num_panels * self.vectors
        transforms = self.assumed_tiles * vectors * self.num_points * _POINT_CYCLES
        panel_nbytes = self.num_points * channels * self.width * self.itemsize
        fetched = self._times_read(blocks, panel_nbytes) * self.num_panels * panel_nbytes
        return transforms + _beside(products, fetched / self.unit.far_rate)

    def _times_read(self, blocks: int, panel_nbytes: int) -> int:
        """Return how often the factors come from beyond the second-level cache: the blocks of a round share a reading.

        A pair of a panel and a block reads the whole panel, if the panel does not stay.
        """
        if self.parts == "pairs":
            return 1 if panel_nbytes <= _NEAR_NBYTES else blocks
        return -(-blocks // self.blocks)


def has_form(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether windows of 3 by 3 pixels move by one pixel, over all channels, at least a vector of channels."""
    form = (geometry.filter_height, geometry.filter_width), geometry.strides, geometry.dilation, geometry.groups
    return form == ((_TAPS, _TAPS), (1, 1), (1, 1), 1) and geometry.channels >= unit.lanes(geometry.dtype)


def choose_plan(geometry: ConvolutionGeometry, unit: VectorUnit, option: str) -> WinogradPlan | None:
    """Return the cheapest plan permitted by the option ``winograd``, ``None`` if direct convolution should win."""
    if option == "off" or not unit.has_vectors or not has_form(geometry, unit):
        return None
    best = make_plan(geometry, unit, 2)
    if option == "auto":
        large = make_plan(geometry, unit, 4)
        best = large if large.cycles() * _LARGE_TILE_MARGIN < best.cycles() else best
    return best if gains(best) else None


def gains(best: WinogradPlan) -> bool:
    """Return whether a plan should win against direct convolution."""
    geometry, unit = best.geometry, best.unit
    batch, height, width = _assumed(geometry)
    products = geometry.num_taps * geometry.channels * -(-geometry.out_channels // best.lanes)
    direct = _beside(batch * height * width * products / _DIRECT_RATE, products * unit.nbytes / unit.far_rate)
    cycles, is_exact = best.cycles(), geometry.dtype == "uint32"
    return cycles * _MARGIN < direct and (is_exact or direct - cycles >= _LEAST_GAIN)


def make_plan(geometry: ConvolutionGeometry, unit: VectorUnit, num_outputs: int) -> WinogradPlan:
    """Return the cheapest plan with ``num_outputs`` outputs of a tile along each axis.

    With blocks, a thread finds its transformed tiles in its cache, and gets the same pixels from layer to layer.
    """

    def plan(rows: int, vectors: int, blocks: int = 1, parts: _Parts = "blocks") -> WinogradPlan:
        return WinogradPlan(geometry, unit, WinogradSchedule(num_outputs, rows, vectors, blocks, parts))

    def in_rounds(tile: WinogradPlan) -> WinogradPlan:
        """Return the plan with the tile's rows and vectors, and the rounds and parts for these."""
        rows, vectors, count = tile.rows, tile.vectors, tile.num_tiles
        nbytes = (tile.block_step + tile.panel_products) * tile.itemsize
        blocks = max(_ROUND_NBYTES // nbytes, -(-_ROUND_TILES // rows))
        if isinstance(count, int):
            total = max(1, -(-count // rows))
            blocks = -(-total // -(-total // blocks))
        if -(-tile.assumed_tiles // rows) >= _LEAST_BLOCKS:
            return plan(rows, vectors, blocks)
        if not isinstance(count, int) or not 0 < count <= blocks * rows or tile.num_panels < _LEAST_PANELS:
            return plan(rows, vectors, blocks, "pairs")
        # One round: as few blocks as registers permit, and as even.
        blocks = -(-count // min(unit.rows_for(vectors), 16))
        return plan(-(-count // blocks), vectors, blocks, "panels")

    tiles = (plan(rows, n) for n in (2, 1, 3, 4) for rows in range(min(unit.rows_for(n), 16), 0, -1))
    best, *later = map(in_rounds, tiles)
    for plan_of_tile in later:
        best = plan_of_tile if plan_of_tile.cycles() < best.cycles() * _SAME else best
    return best


def near_schedules(unit: VectorUnit, schedule: WinogradSchedule) -> list[WinogradSchedule]:
    """Return schedules near a schedule, perhaps illegal: shorter and longer rounds, and other widths of a panel."""
    found = [replace(schedule, blocks=blocks) for blocks in (max(1, schedule.blocks // 2), 2 * schedule.blocks)]
    for vectors in (2, 1, 4):
        rows = min(unit.rows_for(vectors), 16)
        found.append(replace(schedule, rows=rows, vectors=vectors, parts="blocks"))
    return found


def _beside(computing: float, fetching: float) -> float:
    """Return the cycles of computing while fetching factors: the longer, plus an unhidden 0.3 of the shorter."""
    return max(computing, fetching) + 0.3 * min(computing, fetching)


def _assumed(geometry: ConvolutionGeometry) -> list[int]:
    """Return the images, rows and columns of the result, with numbers for symbolic sizes."""
    sizes = ((geometry.batch, 1), (geometry.out_height, _UNKNOWN_SIZE), (geometry.out_width, _UNKNOWN_SIZE))
    return [size if isinstance(size, int) else number for size, number in sizes]
