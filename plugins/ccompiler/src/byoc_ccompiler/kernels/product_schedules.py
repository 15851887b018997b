"""Schedules of matrix products, and the choice of a schedule for a product.

Dot products rearrange nothing. The schedule is for operands both contiguous along the sums, with few rows, or one or
two columns: each element of the larger operand is read once, in memory order. Other products of floats go by panels.
Products of integers go row by row, with any strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import dtype_info
from byoc_core.errors import InternalError

from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "DotSchedule",
    "PanelSchedule",
    "RightOperand",
    "SizedSchedule",
    "StretchSchedule",
    "check_laws",
    "choose",
    "even_part",
    "offered",
    "panel_vectors",
]

_DEPTH_BLOCK = 768
"""Steps of a panel computed at a time; longer sums are cut into equal parts."""

_FEW_ROWS, _ROWS_AT_ONCE, _ROWS_WAITING = 12, 48, 192
"""Rows for which nothing is rearranged; rows with sums complete at once; rows with sums waiting for the next part."""

_NEAR_NBYTES, _CACHE_NBYTES = 1 << 16, 1 << 20
"""Bytes sure to stay in the nearest cache, or in the next cache, while a kernel runs."""

_MOST_STREAMED_ROWS, _STREAMS, _LEAST_STREAMS, _STREAMED_VECTORS, _LEAST_ITEMS = 6, 4, 3, 8, 3
"""Rows for which reading a large right operand takes longer than multiplying; narrow panels read at a time, at most and
at least; vectors of wide panels read at a time; and items left for threads."""

_ROWS_OF_DOTS = 16
"""Rows, or columns, for which a search tries dot products."""

_FEW_DOT_ROWS, _FEW_DOT_COLUMNS, _AT_HAND = 8, 2, 64
"""Rows, and columns, for which dot products pay; rows, and columns, with sums held at a time."""


def check_laws(laws: Mapping[str, bool]) -> None:
    """Check the laws of a schedule.

    Raises:
        InternalError: the schedule breaks a law.
    """
    for law, is_kept in laws.items():
        if not is_kept:
            raise InternalError("schedule", f"violates the constraint: {law}")


class RightOperand(StrEnum):
    """The source of the panels of the right operand.

    Attributes:
        CONSTANT: weights, packed during code generation; swappable weights, packed when the value is known.
        IN_PLACE: the operand unchanged, columns side by side; last columns not filling a vector are packed.
        PACKED: scratch memory; each item packs a panel, for all rows of a matrix.
        PACKED_APART: scratch memory; a separate loop packs all panels of the only matrix.
    """

    CONSTANT = "constant"
    IN_PLACE = "in place"
    PACKED = "packed"
    PACKED_APART = "packed apart"


@dataclass(frozen=True, slots=True)
class SizedSchedule:
    """Choices with all numbers above 0."""

    def __post_init__(self) -> None:
        sizes = [getattr(self, item.name) for item in fields(self)]
        check_laws({"sizes are above 0": all(size > 0 for size in sizes if type(size) is int)})


@dataclass(frozen=True, slots=True)
class PanelSchedule(SizedSchedule):
    """A product of floats by panels.

    Attributes:
        right: the source of the panels.
        vectors: vectors in a row of a panel.
        chunk: rows with sums held at a time.
        outer: rows multiplied by all panels before the next rows: whole chunks, or all rows.
        depth_block: steps of a panel computed at a time; ``None`` for all.
        fetches: whether the continuation of a panel is prefetched while rows pass.
        panels_at_once: panels multiplied by the rows at a time. Each is a stream of memory of its own.
    """

    right: RightOperand
    vectors: int
    chunk: int
    outer: Dim
    depth_block: int | None = None
    fetches: bool = False
    panels_at_once: int = 1

    def packs_inside(self, p: Product, unit: VectorUnit) -> bool:
        """Return whether some item packs a panel: each item, or the item of last columns not filling a vector."""
        is_in_place = self.right is RightOperand.IN_PLACE
        return self.right is RightOperand.PACKED or (is_in_place and p.has_ragged_columns(unit.lanes(p.dtype)))

    def _has_few_rows(self, p: Product) -> bool:
        """Return whether all rows meet a whole panel of known weights at once."""
        is_whole = self.right is RightOperand.CONSTANT and self.depth_block is None and p.known_columns is not None
        return is_whole and p.known_rows in range(1, min(_MOST_STREAMED_ROWS, self.chunk) + 1)

    def laws(self, p: Product, unit: VectorUnit) -> dict[str, bool]:
        """Return the laws of the schedule for a product, and whether each is kept."""
        right, all_meet = self.right, self.outer == p.num_rows
        return {
            "panels hold floats": p.dtype in FLOATS,
            "rows divide into full chunks": all_meet or self.outer % self.chunk == 0,
            "an item packing a panel computes all rows": all_meet or not self.packs_inside(p, unit),
            "constant panels hold weights": right is not RightOperand.CONSTANT or p.has_weights,
            "columns read in place are contiguous": right is not RightOperand.IN_PLACE or p.right.column_step == 1,
            "panels packed apart belong to a single matrix": right is not RightOperand.PACKED_APART or p.batch == (),
            "panels at once are whole constants, and meet few rows": self.panels_at_once == 1 or self._has_few_rows(p),
        }


@dataclass(frozen=True, slots=True)
class DotSchedule(SizedSchedule):
    """A product of floats by dot products.

    Attributes:
        rows: rows with sums held at a time.
        columns: columns with sums held at a time.
        tile_rows: rows with sums in registers at a time.
        tile_columns: columns with sums in registers at a time.
    """

    rows: int
    columns: int
    tile_rows: int
    tile_columns: int


@dataclass(frozen=True, slots=True)
class StretchSchedule(SizedSchedule):
    """A product row by row, of numbers of any dtype.

    Attributes:
        columns: columns with sums held at a time.
    """

    columns: int


def offered(
    p: Product, unit: VectorUnit, near: PanelSchedule | DotSchedule | StretchSchedule
) -> Iterator[PanelSchedule | DotSchedule | StretchSchedule]:
    """Yield legal schedules near a schedule: the other kind, other sources of panels, tiles, orders and depths."""
    if isinstance(near, StretchSchedule):
        yield from (replace(near, columns=columns) for columns in (256, 128, 32))
        return

    def has_few(*sizes: int | None) -> bool:
        return any(size is not None and size <= _ROWS_OF_DOTS for size in sizes)

    panels = near if isinstance(near, PanelSchedule) else _choose_panels(p, unit)
    dots = near if isinstance(near, DotSchedule) else _choose_dots(p, unit)
    if isinstance(near, DotSchedule):
        yield from (replace(dots, tile_rows=1), replace(dots, tile_columns=1))
        tile = 4 if dots.tile_rows <= 2 else 2
        yield replace(dots, tile_rows=min(dots.rows, tile), tile_columns=min(dots.columns, tile))
        yield panels
    elif p.right.row_step == 1 and p.left.column_step == 1 and has_few(p.known_rows, p.known_columns):
        yield dots
    yield from (schedule for schedule in _near_panels(p, unit, panels) if all(schedule.laws(p, unit).values()))


def _near_panels(p: Product, unit: VectorUnit, near: PanelSchedule) -> Iterator[PanelSchedule]:
    """Yield schedules near a schedule, perhaps illegal."""
    right = near.right

    def sized(schedule: PanelSchedule) -> PanelSchedule:
        # An item packing a panel computes all rows; other items compute full chunks.
        outer = p.num_rows if schedule.packs_inside(p, unit) else schedule.outer
        is_whole = outer == p.num_rows or outer % schedule.chunk == 0
        return replace(schedule, outer=outer if is_whole else schedule.chunk)

    yield from (sized(replace(near, vectors=size)) for size in (2, 4, 1, 3) if size != near.vectors)
    if right is not RightOperand.CONSTANT:
        sources = (RightOperand.IN_PLACE, RightOperand.PACKED, RightOperand.PACKED_APART)
        yield from (sized(replace(near, right=source)) for source in sources if source is not right)
    blocks: list[int | None] = [] if near.depth_block is None else [None]
    if not isinstance(p.depth, int) or p.depth > _DEPTH_BLOCK // 2:
        blocks.append(_DEPTH_BLOCK // 2)
    yield from (replace(near, depth_block=block) for block in blocks)
    chunks = (2 * near.chunk, max(1, near.chunk // 2))
    yield from (sized(replace(near, chunk=size)) for size in chunks if p.known_rows is None or size <= p.known_rows)
    yield replace(near, outer=near.chunk if near.outer == p.num_rows else p.num_rows)
    yield replace(near, fetches=not near.fetches and unit.has_vectors)
    yield from (replace(near, panels_at_once=panels) for panels in (1, 2, _STREAMS) if panels != near.panels_at_once)


def choose(p: Product, unit: VectorUnit) -> PanelSchedule | DotSchedule | StretchSchedule:
    """Return the schedule of a non-empty product."""
    if p.dtype not in FLOATS:
        return StretchSchedule(_AT_HAND)
    has_few_columns = p.known_columns is not None and p.known_columns <= _FEW_DOT_COLUMNS
    has_few_rows = not p.has_weights and p.known_rows is not None and p.known_rows <= _FEW_DOT_ROWS
    if p.right.row_step == 1 and p.left.column_step == 1 and (has_few_columns or has_few_rows):
        return _choose_dots(p, unit)
    return _choose_panels(p, unit)


def _choose_dots(p: Product, unit: VectorUnit) -> DotSchedule:
    rows, columns = (min(_AT_HAND, size or _AT_HAND) for size in (p.known_rows, p.known_columns))
    side = 4 if unit.registers >= 32 else 2
    tile_columns = min(columns, 8 if rows == 1 else side)
    return DotSchedule(rows, columns, min(rows, 8 if tile_columns == 1 else side), tile_columns)


def _choose_panels(p: Product, unit: VectorUnit) -> PanelSchedule:
    vectors, _ = panel_vectors(unit, p.dtype, p.num_columns)
    row_nbytes = p.depth * dtype_info(p.dtype).itemsize
    nbytes = row_nbytes * p.num_columns
    is_near, is_cached = (isinstance(nbytes, int) and nbytes <= most for most in (_NEAR_NBYTES, _CACHE_NBYTES))
    has_few_rows = p.known_rows is not None and p.known_rows <= _FEW_ROWS
    depth_block = None if has_few_rows else _DEPTH_BLOCK
    if depth_block is not None and isinstance(p.depth, int):
        parts = -(-p.depth // _DEPTH_BLOCK)
        depth_block = -(-p.depth // parts // 4) * 4 if parts > 1 else None
    chunk = _ROWS_AT_ONCE if depth_block is None else _ROWS_WAITING
    chunk = chunk if p.known_rows is None else even_part(p.known_rows, chunk, unit.panel_rows(vectors))
    # Rows staying in the cache meet all panels, if the panels do not stay.
    stay = _CACHE_NBYTES // row_nbytes if isinstance(row_nbytes, int) and row_nbytes else 2 * _ROWS_WAITING
    outer = chunk if is_cached else max(1, stay // chunk) * chunk
    if p.has_weights:
        right = RightOperand.CONSTANT
    elif p.right.column_step == 1 and (has_few_rows or (is_near and not p.has_ragged_columns(unit.lanes(p.dtype)))):
        right = RightOperand.IN_PLACE
    else:
        is_apart = p.batch == () and ceildiv(p.num_rows, outer) != 1
        right = RightOperand.PACKED_APART if is_apart else RightOperand.PACKED
    # The continuation of a panel is prefetched if far away and if enough rows pass.
    stays_near = right is RightOperand.IN_PLACE or has_few_rows or (depth_block is None and is_cached)
    fetches = unit.has_vectors and not stays_near
    schedule = PanelSchedule(right, vectors, chunk, outer, depth_block, fetches)
    schedule = replace(schedule, outer=p.num_rows) if schedule.packs_inside(p, unit) else schedule
    return _with_streams(schedule, p, unit)


def _with_streams(schedule: PanelSchedule, p: Product, unit: VectorUnit) -> PanelSchedule:
    """Return the schedule reading the right operand faster for very few rows.

    A processor reads ahead in several streams of memory at a time, and reads a single stream at two thirds of its
    speed. Moreover, the few sums of a single panel do not keep the multipliers busy. Columns in place are one stream,
    wider than a panel.
    """
    rows, columns = p.known_rows, p.known_columns
    if rows is None or columns is None or not 0 < rows <= _MOST_STREAMED_ROWS or not unit.has_vectors:
        return schedule
    room, needed = (unit.registers - _STREAMS) // rows, -(-columns // unit.lanes(p.dtype))
    if schedule.right is RightOperand.IN_PLACE:
        if schedule.packs_inside(p, unit):  # the last columns are packed: the fewer, the better
            return schedule
        most = max((size for size in range(1, 2 * _STREAMS + 1) if unit.rows_for(size) >= rows), default=1)
        return replace(schedule, vectors=max(schedule.vectors, min(most, needed)))
    if schedule.right is not RightOperand.CONSTANT:
        return schedule
    nbytes = p.depth * columns * dtype_info(p.dtype).itemsize
    items = 1 if isinstance(nbytes, int) and nbytes <= _NEAR_NBYTES else _LEAST_ITEMS

    def streams(vectors: int, most: int) -> int:
        return max(1, min(most, room // vectors, needed // vectors // items))

    # With panels as for many rows, both products share the packed weights: prompt and step of a decoder, for example.
    if room // schedule.vectors > 1:
        return replace(schedule, panels_at_once=streams(schedule.vectors, _STREAMED_VECTORS // schedule.vectors))
    narrow = streams(1, _STREAMS) if room >= _LEAST_STREAMS else 1
    return schedule if narrow == 1 else replace(schedule, vectors=1, panels_at_once=narrow)


def panel_vectors(unit: VectorUnit, dtype: str, columns: Dim) -> tuple[int, int]:
    """Return the vectors in a row of a panel, and in a row of the last panel if known to be fewer."""
    if not isinstance(columns, int):
        return unit.panel_vectors, 0
    needed = max(1, -(-columns // unit.lanes(dtype)))
    vectors = min(unit.panel_vectors, needed)
    return vectors, needed % vectors


def even_part(size: int, most: int, step: int) -> int:
    """Return the size of parts of about equal size, a multiple of the step, if a single part is too large.

    Threads get equal numbers of parts; a small last part would leave a thread idle.
    """
    if size <= most:
        return size
    parts = -(-size // most)
    return min(most, -(-size // (parts * step)) * step)
