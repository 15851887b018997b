"""How a convolution by Winograd's minimal filtering is cut up, and whether it pays: estimates, from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.winograd_transforms import MinimalFilter, minimal_filter
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["Parting", "WinogradPlan", "choose_plan", "make_plan"]

_ROUND_NBYTES, _ROUND_TILES = 1 << 19, 56
"""What the transformed tiles of a round and the products of a panel may take, to stay in the second-level cache; and
tiles of a round in any case, so that each element of a filter that comes from memory is used often enough."""

_LEAST_BLOCKS, _LEAST_PANELS = 12, 4
"""With so many, parts of neighbouring blocks, or of neighbouring panels, are even enough."""

_MOST_PARTS = 16
"""Parts of neighbouring blocks or panels, at most: each has scratch memory of its own."""

_NEAR_NBYTES = 1 << 20
"""So many bytes of one panel's factors are in the second-level cache when the second block needs them."""

_NEAR_RATE, _FAR_RATE = 32, 3
"""Bytes of factors that arrive in a cycle, from the second-level cache, and from beyond it, where other layers leave
those of a network's filters."""

_POINT_CYCLES, _DIRECT_RATE = 5, 1.7
"""Cycles that transforms take for one vector at one point, loads and stores included; and multiply-adds of vectors that
direct convolution reaches in a cycle."""

_MARGIN, _LARGE_TILE_MARGIN = 1.25, 1.25
"""How much cheaper a plan must look than direct convolution: its many small loops cost more than the estimate says; and
tiles of 4 by 4 than those of 2 by 2, whose errors are smaller."""

_UNKNOWN_SIZE = 28
"""What a symbolic size of an image counts as; a symbolic batch counts as 1."""


class Parting(NamedTuple):
    """How threads part a ``total`` of blocks or panels: by multiples of ``grain``.

    The smallest part has scratch memory for the transformed tiles of so many blocks (``places``), and a larger one for
    as many more; all parts have ``tiles_size`` elements. Behind them lie the products, ``scratch_size`` ends both.
    """

    total: Dim
    grain: Dim
    places: int
    tiles_size: int
    scratch_size: int


@dataclass(frozen=True, eq=False, slots=True)
class WinogradPlan:
    """How one convolution is computed.

    The products of ``rows`` tiles, a block, by ``vectors`` vectors of output channels, a panel, are computed together.
    All tiles of ``blocks`` blocks, a round, are transformed before they are multiplied.
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
    def parts(self) -> Literal["blocks", "panels", "pairs"]:
        """What threads part: neighbouring blocks, panels, or pairs of panels and blocks of a round.

        With blocks, a thread finds what it transformed in its cache, and gets the same pixels from layer to layer.
        """
        if -(-self._assumed_tiles() // self.rows) >= _LEAST_BLOCKS:
            return "blocks"
        is_one_round = isinstance(self.num_tiles, int) and 0 < self.num_tiles <= self.round_tiles
        return "panels" if is_one_round and self.num_panels >= _LEAST_PANELS else "pairs"

    @property
    def panel_products(self) -> int:
        """Elements of the products of one panel and all tiles of a round."""
        return self.num_points * self.round_tiles * self.width

    @property
    def parting(self) -> Parting:
        """What threads part, and the scratch memory that they need."""
        total = self.num_panels if self.parts == "panels" else (self.num_tiles + (self.rows - 1)) // self.rows
        grain, parts, places = total // _MOST_PARTS + 1, _MOST_PARTS, self.blocks
        if isinstance(total, int) and isinstance(grain, int):
            parts, places = -(-total // grain), min(grain, self.blocks)
        tiles_size = (parts * places if self.parts == "blocks" else self.blocks) * self.block_step
        # The products of a pair lie on the stack.
        products = 0 if self.parts == "pairs" else parts * self.panel_products
        return Parting(total, grain, places, tiles_size, tiles_size + products)

    @property
    def cycles(self) -> float:
        """Estimated cycles in one thread."""
        channels, tiles = self.geometry.channels, self._assumed_tiles()
        blocks = -(-tiles // self.rows)
        sums, loads, near = self.rows * self.vectors, self.rows + self.vectors, self.vectors * self.unit.nbytes
        step = max(sums / 2, loads / 2, 4.0, near / _NEAR_RATE)
        products = blocks * self.num_panels * self.num_points * (channels * step + sums + 20)
        vectors = -(-channels // self.lanes) + self.num_panels * self.vectors
        transforms = tiles * vectors * self.num_points * _POINT_CYCLES
        panel_nbytes = self.num_points * channels * self.width * self.itemsize
        times_read = 1 if panel_nbytes <= _NEAR_NBYTES else blocks
        return transforms + _beside(products, times_read * self.num_panels * panel_nbytes / _FAR_RATE)

    def _assumed_tiles(self) -> int:
        (batch, height, width), size = _assumed(self.geometry), self.algorithm.num_outputs
        return batch * -(-height // size) * -(-width // size)


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
    direct = _beside(batch * height * width * products / _DIRECT_RATE, products * unit.nbytes / _FAR_RATE)
    return best if best.cycles * _MARGIN < direct else None


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
    if best.parts == "panels" and isinstance(best.num_tiles, int):
        # One round: as few blocks as registers permit, and as even.
        blocks = -(-best.num_tiles // min(unit.rows_for(best.vectors), 16))
        best = replace(best, blocks=blocks, rows=-(-best.num_tiles // blocks))
    return best


def _beside(computing: float, fetching: float) -> float:
    """Return the cycles of computing while factors are fetched: 0.3 of the shorter is not hidden behind the longer."""
    return max(computing, fetching) + 0.3 * min(computing, fetching)


def _assumed(geometry: ConvolutionGeometry) -> list[int]:
    """Return the images, rows and columns of the result, with numbers for symbolic sizes."""
    sizes = ((geometry.batch, 1), (geometry.out_height, _UNKNOWN_SIZE), (geometry.out_width, _UNKNOWN_SIZE))
    return [size if isinstance(size, int) else number for size, number in sizes]
