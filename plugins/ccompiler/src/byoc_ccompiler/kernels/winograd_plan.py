"""How a convolution by Winograd's minimal filtering is cut up, and whether it pays: estimates, from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.winograd_transforms import MinimalFilter, minimal_filter
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["WinogradPlan", "choose_plan", "make_plan"]

_ROUND_NBYTES = 1 << 19
"""What the transformed tiles of a round and the products of a panel may take: they stay in the second-level cache."""

_ROUND_TILES = 56
"""Tiles that a round has in any case, so that each element of a filter that comes from memory is used often enough."""

_NEAR_NBYTES = 1 << 20
"""So many bytes of one panel's factors are in the second-level cache when the second block needs them."""

_LEAST_BLOCKS, _LEAST_PANELS = 12, 4
"""With so many, parts of neighbouring blocks, or of neighbouring panels, are even enough."""

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

_MARGIN, _LARGE_TILE_MARGIN = 1.25, 1.25
"""How much cheaper a plan must look than direct convolution: its many small loops cost more than the estimate says; and
tiles of 4 by 4 than those of 2 by 2, whose errors are smaller."""

_UNKNOWN_SIZE = 28
"""What a symbolic size of an image counts as; a symbolic batch counts as 1."""


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
    def grid(self) -> tuple[Dim, Dim, Dim]:
        """Images, and tiles down and right of each."""
        geometry, size = self.geometry, self.algorithm.num_outputs
        return geometry.batch, (geometry.out_height + (size - 1)) // size, (geometry.out_width + (size - 1)) // size

    @property
    def num_tiles(self) -> Dim:
        """Tiles of all images."""
        return product(self.grid)

    @property
    def row_step(self) -> int:
        """Elements from one tile's channels to the next's at one point; the same sets of a cache do not serve all."""
        step = -(-self.geometry.channels // self.lanes) * self.lanes
        return step + self.lanes if step * self.itemsize % 512 == 0 else step

    @property
    def block_step(self) -> int:
        """Elements of a block: points of tiles."""
        return self.num_points * self.rows * self.row_step

    @property
    def round_tiles(self) -> int:
        """Tiles of a round."""
        return self.blocks * self.rows

    @property
    def parts_panels(self) -> bool:
        """Whether threads part the panels, and not the blocks: where all tiles are in one round of few blocks.

        With blocks a thread finds in its cache what it transformed, and neighbouring pixels are its own from layer to
        layer.
        """
        most = min(self.round_tiles, (_LEAST_BLOCKS - 1) * self.rows)
        is_one_round = isinstance(self.num_tiles, int) and 0 < self.num_tiles <= most
        return is_one_round and self.num_panels >= _LEAST_PANELS

    @property
    def count(self) -> Dim:
        """The panels or blocks that threads part."""
        return self.num_panels if self.parts_panels else (self.num_tiles + (self.rows - 1)) // self.rows

    @property
    def grain(self) -> Dim:
        """Panels or blocks of the smallest part, 1 or more."""
        return self.count // _MOST_PARTS + 1

    @property
    def num_parts(self) -> int:
        """Parts, at most."""
        count, grain = self.count, self.grain
        return -(-count // grain) if isinstance(count, int) and isinstance(grain, int) else _MOST_PARTS

    @property
    def part_places(self) -> int:
        """Blocks of scratch memory of the smallest part; a larger part's places lie side by side."""
        return min(self.grain, self.blocks) if isinstance(self.grain, int) else self.blocks

    @property
    def tiles_size(self) -> int:
        """Elements of scratch memory for transformed tiles."""
        return (self.blocks if self.parts_panels else self.num_parts * self.part_places) * self.block_step

    @property
    def panel_products(self) -> int:
        """Elements of the products of one panel and all tiles of a round."""
        return self.num_points * self.round_tiles * self.width

    @property
    def scratch_size(self) -> int:
        """Elements of scratch memory in all."""
        return self.tiles_size + self.num_parts * self.panel_products

    @property
    def cycles(self) -> float:
        """Estimated cycles in one thread."""
        channels, size = self.geometry.channels, self.algorithm.num_outputs
        batch, height, width = _assumed(self.geometry)
        tiles = batch * -(-height // size) * -(-width // size)
        blocks = -(-tiles // self.rows)
        step = max(self.rows * self.vectors / 2, (self.rows + self.vectors) / 2, 4.0)
        step = max(step, self.vectors * self.unit.nbytes / _NEAR_RATE)
        calls = blocks * self.num_panels * self.num_points
        products = calls * (channels * step + self.rows * self.vectors + 20)
        vectors = -(-channels // self.lanes) + self.num_panels * self.vectors
        transforms = tiles * vectors * self.num_points * _POINT_CYCLES
        panel_nbytes = self.num_points * channels * self.width * self.itemsize
        times_read = 1 if panel_nbytes <= _NEAR_NBYTES else blocks
        return transforms + _beside(products, times_read * self.num_panels * panel_nbytes / _FAR_RATE)


def choose_plan(geometry: ConvolutionGeometry, unit: VectorUnit, option: str) -> WinogradPlan | None:
    """Return the cheapest plan that the option ``winograd`` permits, ``None`` where direct convolution should win.

    The form of the filter is not looked at.
    """
    if option == "off" or geometry.channels < unit.lanes(geometry.dtype):
        return None
    best = make_plan(geometry, unit, 2)
    if option == "auto":
        large = make_plan(geometry, unit, 4)
        best = large if large.cycles * _LARGE_TILE_MARGIN < best.cycles else best
    batch, height, width = _assumed(geometry)
    products = geometry.num_taps * geometry.channels * -(-geometry.out_channels // best.lanes)
    computing, fetching = batch * height * width * products / 2 / _DIRECT_SHARE, products * unit.nbytes / _FAR_RATE
    return best if best.cycles * _MARGIN < _beside(computing, fetching) else None


def make_plan(geometry: ConvolutionGeometry, unit: VectorUnit, num_outputs: int) -> WinogradPlan:
    """Return the cheapest plan with tiles of so many outputs along each axis."""
    algorithm = minimal_filter(num_outputs)
    sizes = ((rows, vectors) for vectors in (2, 1, 3, 4) for rows in range(min(unit.rows_for(vectors), 16), 0, -1))
    plans = (WinogradPlan(geometry, unit, algorithm, rows, vectors) for rows, vectors in sizes)
    best = min(plans, key=lambda plan: plan.cycles)
    nbytes = (best.block_step + best.panel_products) * best.itemsize
    blocks = max(_ROUND_NBYTES // nbytes, -(-_ROUND_TILES // best.rows))
    if isinstance(best.num_tiles, int):
        total = max(1, -(-best.num_tiles // best.rows))
        blocks = -(-total // -(-total // blocks))
    best = replace(best, blocks=blocks)
    if best.parts_panels and isinstance(best.num_tiles, int):
        # One round: as few blocks as registers permit, and as even.
        blocks = -(-best.num_tiles // min(unit.rows_for(best.vectors), 16))
        best = replace(best, blocks=blocks, rows=-(-best.num_tiles // blocks))
    return best


def _beside(computing: float, fetching: float) -> float:
    """Return the cycles of computing while factors are fetched."""
    return max(computing, fetching) + _WAITING * min(computing, fetching)


def _assumed(geometry: ConvolutionGeometry) -> list[int]:
    """Return the images, rows and columns of the result, with numbers for symbolic sizes."""
    sizes = ((geometry.batch, 1), (geometry.out_height, _UNKNOWN_SIZE), (geometry.out_width, _UNKNOWN_SIZE))
    return [size if isinstance(size, int) else number for size, number in sizes]
