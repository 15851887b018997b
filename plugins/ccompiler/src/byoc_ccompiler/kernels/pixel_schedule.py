"""Schedules of convolutions by register tiles of pixels times output channels, and the choice.

Few pixels, in the second half of a network, meet filters too large for any cache from call to call. All pixels are
multiplied by successive blocks of a panel, small enough for the first-level cache, while the next block is
prefetched. The sums of all pixels and a panel wait in the first-level cache too.

The constants are sizes of caches and estimates of costs, and affect time and the order of sums only; but
:data:`MAX_POINTERS` is the room for pointers on the stack. Illegal schedules are refused by
:class:`~byoc_ccompiler.kernels.pixel_tiles.PixelPlan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "MAX_POINTERS",
    "PixelSchedule",
    "Steps",
    "best_tiles",
    "choose_schedule",
    "choose_tiles",
    "depth_blocks",
    "has_gaps",
]

_RESIDENT_NBYTES = 1 << 19  # a filter up to this size stays in the second-level cache while all pixels pass
_PANEL_NBYTES = 3 << 18  # a panel up to this size stays in the second-level cache beside the next one
_TOO_LARGE = 1.3  # slowdown of a step with a panel above this size, about
_REGISTER_POINTERS = 10  # pointers of a tile's rows staying in registers
_CACHE_NBYTES = 24  # bytes from the second-level cache in a cycle, about
_FEW_POINTERS = 1 << 8  # the same without vectors, on small machines: 2 KiB of the stack
MAX_POINTERS = 1 << 13  # maximum pointers to runs of factors on the stack
_MOST_PIXELS = 64  # with more pixels, fetching a panel from memory is short beside computing with the panel
_LEAST_PANELS = 4  # with fewer panels, threads would have too few parts
_DEPTH_BLOCK_NBYTES = 1 << 15  # a block of a panel, in the first-level cache beside the sums and some rows
_MOST_ROWS = 10  # rows of a tile of few pixels, at most: their pointers stay in registers
_VECTORS = 2  # of a tile of few pixels
_TILES_OF_A_WIDTH = 2  # tiles offered to a search for each number of vectors

Steps = tuple[Dim, Dim, Dim, Dim]
"""An image's distances between neighbouring images, channels, rows and pixels."""


@dataclass(frozen=True, slots=True)
class PixelSchedule:
    """The schedule of a convolution by register tiles of pixels times output channels.

    Attributes:
        rows: pixels of a tile.
        vectors: vectors of output channels of a tile, and of a panel of the filter.
        copies: whether each image is copied first, padded with zeros, channels side by side.
        panels_outside: whether the panels are the outer loop around all pixels, reading each panel once.
        depth_block: factors of a run multiplied at a time, if blocks of the depth are an outer loop around all pixels.
    """

    rows: int
    vectors: int
    copies: bool = False
    panels_outside: bool = False
    depth_block: int | None = None


def choose_schedule(kernel: Kernel, shape: ConvolutionGeometry) -> PixelSchedule | None:
    """Return the schedule of a convolution, channels last; ``None`` if a window has too many runs."""
    if shape.num_runs > most_pointers(kernel.unit):
        return None
    image, weight = kernel.group.steps[0].operands
    copies, columns = (
        has_gaps(shape, shape.image_steps(kernel.strides(image))),
        _VECTORS * kernel.unit.lanes(shape.dtype),
    )
    pixels = (replace(shape, batch=1) if copies else shape).num_pixels
    schedule = choose_tiles(kernel.unit, shape, pixels, copies)
    if not kernel.unit.has_vectors:
        return schedule
    if not isinstance(pixels, int) or not 1 < pixels <= _MOST_PIXELS or not isinstance(weight, Constant):
        return schedule
    blocks = -(-pixels // min(_MOST_ROWS, kernel.unit.rows_for(_VECTORS)))
    rows, depth, panels = -(-pixels // blocks), shape.run_size, -(-shape.out_channels // columns)
    has_room = blocks * rows * shape.num_runs <= MAX_POINTERS
    if copies or shape.groups > 1 or not has_room or not _is_large(shape, columns) or panels < _LEAST_PANELS:
        return schedule
    room = min(DEPTH_CHUNK, _DEPTH_BLOCK_NBYTES // (columns * dtype_info(shape.dtype).itemsize))
    return PixelSchedule(rows, _VECTORS, panels_outside=True, depth_block=-(-depth // -(-depth // room)))


def _is_large(shape: ConvolutionGeometry, columns: int) -> bool:
    """Return whether a filter, in panels of columns, exceeds the second-level cache while all pixels pass."""
    size = shape.groups * -(-shape.group_out_channels // columns) * columns * shape.num_taps * shape.group_channels
    return size * dtype_info(shape.dtype).itemsize > _RESIDENT_NBYTES


def has_gaps(shape: ConvolutionGeometry, steps: Steps) -> bool:
    """Return whether runs are lines of the filter with factors not contiguous in the image."""
    return shape.joins_lines and (shape.is_padded or steps[1] != 1 or steps[3] != shape.channels)


def choose_tiles(unit: VectorUnit, shape: ConvolutionGeometry, pixels: Dim, copies: bool = False) -> PixelSchedule:
    """Return the tiles of the least total cost, for ``pixels`` pixels passing at a time."""
    if not unit.has_vectors:
        return _choose_scalar_tiles(unit, shape, pixels, copies)
    best, best_cost = (1, 1), float("inf")
    for tile, cost in _tile_costs(unit, shape, pixels):
        if cost < best_cost * 0.995:
            best, best_cost = tile, cost
    return PixelSchedule(*best, copies, _is_large(shape, best[1] * unit.lanes(shape.dtype)))


def _tile_costs(unit: VectorUnit, shape: ConvolutionGeometry, pixels: Dim) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield rows and vectors of tiles, with their estimated cost for ``pixels`` pixels passing at a time."""
    lanes, tap_nbytes = unit.lanes(shape.dtype), shape.group_channels * dtype_info(shape.dtype).itemsize
    for vectors in (4, 2, 3, 1):
        columns, most = vectors * lanes, min(unit.rows_for(vectors), 16, MAX_POINTERS // shape.num_runs)
        for rows in range(most, 0, -1) if isinstance(pixels, int) else (most,):
            full_tiles, tail = divmod(pixels, rows) if isinstance(pixels, int) else (1 / rows, 0)
            work = full_tiles * _step_cost(unit, rows, vectors) + (_step_cost(unit, tail, vectors) if tail else 0)
            cost = work * -(-shape.group_out_channels // columns)
            if shape.num_taps * tap_nbytes * columns > _PANEL_NBYTES:
                cost *= _TOO_LARGE
            yield (rows, vectors), cost


def best_tiles(unit: VectorUnit, shape: ConvolutionGeometry, tiles: PixelSchedule) -> list[tuple[int, int]]:
    """Return rows and vectors of other tiles: for each number of vectors the two cheapest, the cheapest of all first.

    Args:
        unit: the vector registers.
        shape: the convolution.
        tiles: the known schedule.
    """
    if not unit.has_vectors:
        return [(max(1, tiles.rows // 2), tiles.vectors), (tiles.rows, max(1, tiles.vectors // 2))]
    pixels = (replace(shape, batch=1) if tiles.copies else shape).num_pixels
    costs = dict(_tile_costs(unit, shape, pixels))
    ranked: list[tuple[int, int]] = []
    for tile in sorted(costs, key=lambda tile: (costs[tile], tile)):
        if sum(vectors == tile[1] for _, vectors in ranked) < _TILES_OF_A_WIDTH:
            ranked.append(tile)
    return ranked


def depth_blocks(unit: VectorUnit, shape: ConvolutionGeometry) -> list[int]:
    """Return sizes of blocks of the depth: a block of a panel of two vectors fits into the first-level cache."""
    columns = _VECTORS * unit.lanes(shape.dtype)
    room = min(DEPTH_CHUNK, _DEPTH_BLOCK_NBYTES // (columns * dtype_info(shape.dtype).itemsize))
    return [-(-shape.run_size // -(-shape.run_size // most)) for most in (room, max(1, room // 2))]


def _choose_scalar_tiles(unit: VectorUnit, shape: ConvolutionGeometry, pixels: Dim, copies: bool) -> PixelSchedule:
    """Return the tiles without vectors: panels of about equal width, and as many rows as there is room for."""
    panels = -(-shape.group_out_channels // unit.panel_vectors)
    columns = -(-shape.group_out_channels // panels)
    rows = max(1, min(unit.rows_for(columns), most_pointers(unit) // shape.num_runs))
    rows = max(1, min(rows, pixels)) if isinstance(pixels, int) else rows
    return PixelSchedule(rows, columns, copies, _is_large(shape, columns))


def most_pointers(unit: VectorUnit) -> int:
    """Return the maximum of pointers to runs of factors on the stack: few for kernels without vectors."""
    return MAX_POINTERS if unit.has_vectors else _FEW_POINTERS


def _step_cost(unit: VectorUnit, rows: int, vectors: int) -> float:
    """Return the cycles of one step of a tile, at two loads and two products a cycle, four cycles at least.

    Each row loads a factor, and with many rows a pointer as well; the panel comes from the second-level cache. With 16
    registers, gcc reads the vectors of a wide panel from the first-level cache again for each row.
    """
    passes = rows if unit.registers < 32 and vectors > 2 else 1
    loads = rows * (1 if rows <= _REGISTER_POINTERS else 2) + passes * vectors
    return max(rows * vectors / 2, loads / 2, 4, vectors * unit.nbytes / _CACHE_NBYTES)
