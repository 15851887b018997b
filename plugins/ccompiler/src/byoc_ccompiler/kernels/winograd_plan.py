"""How a convolution by Winograd's minimal filtering is cut up, and whether it pays: estimates, from sizes alone."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.winograd_transforms import MinimalFilter, minimal_filter
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["Parts", "WinogradPlan", "choose_plan", "make_plan"]

_ROUND_NBYTES = 1 << 19
"""What the transformed tiles of a round and the products of a panel may take: they stay in the second-level cache."""

_ROUND_TILES = 56
"""Tiles that a round has in any case, so that each element of a filter that comes from memory is used often enough."""

_PRODUCTS_NBYTES = 1 << 16
"""What the products of one item may take on the stack."""

_NEAR_NBYTES = 1 << 20
"""So many bytes of one panel's factors are in the second-level cache when the second block needs them."""

_LEAST_BLOCKS = 12
"""With so many blocks, parts of neighbouring blocks are even enough."""

_LEAST_PANELS = 4
"""With so many panels, parts of neighbouring panels are even enough."""

_MOST_PARTS = 16
"""Parts of neighbouring blocks or panels, at most: each has scratch memory of its own."""

_NEAR_RATE, _FAR_RATE = 32, 3
"""Bytes of factors that arrive in a cycle, from the second-level cache, and from beyond it, where other layers leave
those of a network's filters."""

_WAITING = 0.3
"""The share of the shorter of computing and fetching that is not hidden behind the longer."""

_POINT_CYCLES = 5
"""Cycles that transforms take for one vector at one point, loads and stores included."""

_DIRECT_SHARE = 0.85
"""What direct convolution reaches of two multiply-adds in a cycle."""

_MARGIN = 1.25
"""How much cheaper a plan must look than direct convolution: its many small loops cost more than the estimate says."""

_LARGE_TILE_MARGIN = 1.25
"""How much cheaper tiles of 4 by 4 must look than those of 2 by 2, whose errors are smaller."""

_UNKNOWN_SIZE = 28
"""What a symbolic size of an image counts as; a symbolic batch counts as 1."""


class Parts(enum.Enum):
    """What threads part: see :mod:`~byoc_ccompiler.kernels.winograd_loops`."""

    BLOCKS = "neighbouring blocks"
    PANELS = "panels"
    PAIRS = "pairs of panels and blocks of a round"


@dataclass(frozen=True, eq=False, slots=True)
class WinogradPlan:
    """How one convolution is computed.

    Attributes:
        geometry: its sizes.
        unit: the vector registers.
        algorithm: the transforms.
        rows: tiles whose products are computed together: a block.
        vectors: vectors of output channels in one panel.
        blocks: blocks of one round: all their tiles are transformed before they are multiplied.
    """

    geometry: ConvolutionGeometry
    unit: VectorUnit
    algorithm: MinimalFilter
    rows: int
    vectors: int
    blocks: int = 1

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.unit.lanes(self.geometry.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return dtype_info(self.geometry.dtype).itemsize

    @property
    def width(self) -> int:
        """Output channels of one panel."""
        return self.vectors * self.lanes

    @property
    def num_panels(self) -> int:
        """Panels of output channels; the last is filled up with zeros."""
        return -(-self.geometry.out_channels // self.width)

    @property
    def num_points(self) -> int:
        """Products of one tile for one pair of channels."""
        return self.algorithm.num_inputs**2

    @property
    def point_size(self) -> int:
        """Elements of one panel of the transformed filter at one point."""
        return self.geometry.channels * self.width

    @property
    def panel_size(self) -> int:
        """Elements of one panel of the transformed filter."""
        return self.num_points * self.point_size

    @property
    def tiles_down(self) -> Dim:
        """Tiles along the height of an image."""
        return _ceil_div(self.geometry.out_height, self.algorithm.num_outputs)

    @property
    def tiles_right(self) -> Dim:
        """Tiles along the width of an image."""
        return _ceil_div(self.geometry.out_width, self.algorithm.num_outputs)

    @property
    def num_tiles(self) -> Dim:
        """Tiles of all images."""
        return self.geometry.batch * self.tiles_down * self.tiles_right

    @property
    def row_step(self) -> int:
        """Elements from one tile's channels to the next's at one point; the same sets of a cache do not serve all."""
        step = _round_up(self.geometry.channels, self.lanes)
        return step + self.lanes if step * self.itemsize % 512 == 0 else step

    @property
    def point_step(self) -> int:
        """Elements from one point to the next in a block."""
        return self.rows * self.row_step

    @property
    def block_step(self) -> int:
        """Elements of a block."""
        return self.num_points * self.point_step

    @property
    def total_blocks(self) -> Dim:
        """Blocks of all images."""
        return _ceil_div(self.num_tiles, self.rows)

    @property
    def round_tiles(self) -> int:
        """Tiles of a round."""
        return self.blocks * self.rows

    @property
    def parts(self) -> Parts:
        """What threads part.

        With blocks a thread finds in its cache what it transformed, and neighbouring pixels are its own from layer to
        layer.
        """
        if -(-self._assumed_tiles() // self.rows) >= _LEAST_BLOCKS:
            return Parts.BLOCKS
        is_one_round = isinstance(self.num_tiles, int) and 0 < self.num_tiles <= self.round_tiles
        return Parts.PANELS if is_one_round and self.num_panels >= _LEAST_PANELS else Parts.PAIRS

    @property
    def part_blocks(self) -> Dim:
        """Blocks of the smallest part, 1 or more."""
        return self.total_blocks // _MOST_PARTS + 1

    @property
    def part_places(self) -> int:
        """Blocks of scratch memory of the smallest part; a larger part's places lie side by side."""
        part = self.part_blocks
        return min(part, self.blocks) if isinstance(part, int) else self.blocks

    @property
    def part_panels(self) -> int:
        """Panels of the smallest part."""
        return self.num_panels // _MOST_PARTS + 1

    @property
    def num_parts(self) -> int:
        """Parts, at most."""
        total, part = (
            (self.total_blocks, self.part_blocks) if self.parts is Parts.BLOCKS else (self.num_panels, self.part_panels)
        )
        return -(-total // part) if isinstance(total, int) and isinstance(part, int) else _MOST_PARTS

    @property
    def tiles_size(self) -> int:
        """Elements of scratch memory for transformed tiles."""
        places = self.num_parts * self.part_places if self.parts is Parts.BLOCKS else self.blocks
        return places * self.block_step

    @property
    def panel_products(self) -> int:
        """Elements of the products of one panel and all tiles of a round."""
        return self.num_points * self.round_tiles * self.width

    @property
    def scratch_size(self) -> int:
        """Elements of scratch memory in all; where pairs are parted, products lie on the stack."""
        return self.tiles_size + (0 if self.parts is Parts.PAIRS else self.num_parts * self.panel_products)

    @property
    def cycles(self) -> float:
        """Estimated cycles in one thread."""
        tiles, channels = self._assumed_tiles(), self.geometry.channels
        blocks = -(-tiles // self.rows)
        step = max(self.rows * self.vectors / 2, (self.rows + self.vectors) / 2, 4.0)
        step = max(step, self.vectors * self.unit.nbytes / _NEAR_RATE)
        calls = blocks * self.num_panels * self.num_points
        products = calls * (channels * step + self.rows * self.vectors + 20)
        vectors = -(-channels // self.lanes) + self.num_panels * self.vectors
        transforms = tiles * vectors * self.num_points * _POINT_CYCLES
        panel_nbytes = self.panel_size * self.itemsize
        times_read = 1 if panel_nbytes <= _NEAR_NBYTES else blocks
        return transforms + _beside(products, times_read * self.num_panels * panel_nbytes / _FAR_RATE)

    def _assumed_tiles(self) -> int:
        geometry, size = self.geometry, self.algorithm.num_outputs
        batch, height, width = _assumed(geometry)
        return batch * -(-height // size) * -(-width // size)


def choose_plan(geometry: ConvolutionGeometry, unit: VectorUnit, option: str) -> WinogradPlan | None:
    """Gives the cheapest plan that the option ``winograd`` permits, ``None`` where direct convolution should win.

    The form of the filter is not looked at.
    """
    if option == "off" or geometry.channels < unit.lanes(geometry.dtype):
        return None
    best = make_plan(geometry, unit, 2)
    if option == "auto":
        large = make_plan(geometry, unit, 4)
        best = large if large.cycles * _LARGE_TILE_MARGIN < best.cycles else best
    return best if best.cycles * _MARGIN < _direct_cycles(geometry, unit) else None


def make_plan(geometry: ConvolutionGeometry, unit: VectorUnit, num_outputs: int) -> WinogradPlan:
    """Gives the cheapest plan with tiles of so many outputs along each axis."""
    algorithm = minimal_filter(num_outputs)
    best = min(_plans(geometry, unit, algorithm), key=lambda plan: plan.cycles)
    nbytes = (best.block_step + best.num_points * best.rows * best.width) * best.itemsize
    blocks = max(_ROUND_NBYTES // nbytes, -(-_ROUND_TILES // best.rows))
    if isinstance(best.num_tiles, int):
        total = max(1, -(-best.num_tiles // best.rows))
        rounds = -(-total // blocks)
        blocks = -(-total // rounds)
    best = replace(best, blocks=blocks)
    return _even(best, best.num_tiles) if best.parts is Parts.PANELS and isinstance(best.num_tiles, int) else best


def _even(plan: WinogradPlan, num_tiles: int) -> WinogradPlan:
    """Gives a plan of one round with as few blocks as registers permit, and as even."""
    blocks = -(-num_tiles // min(plan.unit.rows_for(plan.vectors), 16))
    return replace(plan, blocks=blocks, rows=-(-num_tiles // blocks))


def _plans(geometry: ConvolutionGeometry, unit: VectorUnit, algorithm: MinimalFilter) -> Iterator[WinogradPlan]:
    for vectors in (2, 1, 3, 4):
        for rows in range(min(unit.rows_for(vectors), 16), 0, -1):
            plan = WinogradPlan(geometry, unit, algorithm, rows, vectors)
            if rows == 1 or plan.num_points * rows * plan.width * plan.itemsize <= _PRODUCTS_NBYTES:
                yield plan


def _direct_cycles(geometry: ConvolutionGeometry, unit: VectorUnit) -> float:
    batch, height, width = _assumed(geometry)
    vectors = -(-geometry.out_channels // unit.lanes(geometry.dtype))
    products = geometry.num_taps * geometry.channels * vectors
    return _beside(batch * height * width * products / 2 / _DIRECT_SHARE, products * unit.nbytes / _FAR_RATE)


def _beside(computing: float, fetching: float) -> float:
    """Gives the cycles of computing while factors are fetched."""
    return max(computing, fetching) + _WAITING * min(computing, fetching)


def _assumed(geometry: ConvolutionGeometry) -> tuple[int, int, int]:
    batch = geometry.batch if isinstance(geometry.batch, int) else 1
    height = geometry.out_height if isinstance(geometry.out_height, int) else _UNKNOWN_SIZE
    width = geometry.out_width if isinstance(geometry.out_width, int) else _UNKNOWN_SIZE
    return batch, height, width


def _ceil_div(size: Dim, divisor: int) -> Dim:
    return (size + (divisor - 1)) // divisor


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
