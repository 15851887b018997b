"""Schedules of row kernels: the possible choices, and the choice for a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.dims import product
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Group, Kernel
from byoc_ccompiler.kernels.copies import Layout, StridedNest
from byoc_ccompiler.kernels.row_reducers import CHUNK, REDUCTIONS
from byoc_ccompiler.steps import dtype_of

__all__ = [
    "BLOCK_LOOP",
    "LONG_NBYTES",
    "RowSchedule",
    "levels_of",
    "num_passes",
    "row_loops",
    "row_schedule",
]

LONG_NBYTES = 1 << 10
"""Contiguous bytes worth prefetching."""

BLOCK_LOOP = "block"
"""The name of the loop over blocks of a single row, or of rows computed together."""

_FETCHED, _FETCHED_AHEAD = 128, 4
"""Elements of the next row prefetched at a time; elements prefetched ahead along rows side by side."""

_BUFFER_NBYTES, _BLOCK = 1 << 15, 1 << 15
"""Bytes of all buffers of a row, fitting the first cache; elements of a large row reduced by a single thread."""

_LANES, _COLUMNS, _COLUMN_CHUNK = 16, 512, 64
"""Rows side by side computed together, at least (a register of rows) and at most; elements of their chunks."""

_KEPT_ELEMENTS = 1 << 12
"""Elements of a block with values waiting for a later pass: fewer long rows are computed together."""


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """The schedule of a row kernel. The group defines the result: under each schedule, sums are in some order.

    Attributes:
        columns: the axes of rows computed together, traversed by a single loop; empty for a row at a time.
        width: maximum number of rows computed together.
        parallel: the name of the loop with rounds shared by threads; ``None`` for none.
        block: elements reduced at a time in a single row of a single pass and dtype; 0 for all.
        chunk: elements of a row combined before their sum is added to the sums of other chunks in float64.
        vector_nbytes: bytes of the registers combining elements side by side; 0 to combine elements singly.
        registers: registers combined at a time.
        fetched: elements of the next row prefetched at a time; with ``columns``, the prefetch distance along the rows;
            0 for none.
        buffer_nbytes: bytes of all buffers for values waiting for a later pass: other values wait in the memory of a
            result written later, or are recomputed.
        lender_nbytes: bytes of a row of a result for preferring the result's memory to a buffer; ``None`` for never.
    """

    columns: tuple[int, ...] = ()
    width: int = 1
    parallel: str | None = None
    block: int = 0
    chunk: int = CHUNK
    vector_nbytes: int = 0
    registers: int = 4
    fetched: int = 0
    buffer_nbytes: int = _BUFFER_NBYTES
    lender_nbytes: int | None = None


def row_loops(group: Group, layouts: Mapping[Any, Layout], columns: Sequence[int]) -> list[StridedNest]:
    """Return the loops over rows or blocks of rows, along a row, and over rows along ``columns``, computed together."""
    space, reduced = group.space or (), group.reduced or frozenset()
    outer_axes = [axis for axis in range(len(space)) if axis not in reduced and axis not in columns]
    axes = {"i": outer_axes, "r": sorted(reduced), "c": columns}
    return [StridedNest(space, layouts, along, prefix=prefix) for prefix, along in axes.items()]


def levels_of(group: Group) -> dict[Value, int]:
    """Return the pass computing each value per element, and the first pass knowing each value of a row."""
    levels: dict[Value, int] = {}
    for step in group.steps:
        after = 1 if step.op in REDUCTIONS else 0
        levels[step.result] = after + max((levels.get(operand, 0) for operand in step.operands), default=0)
    return levels


def num_passes(group: Group) -> int:
    """Return the number of passes over a row in a group."""
    return max(level + (result not in group.row_axes) for result, level in levels_of(group).items())


def row_schedule(kernel: Kernel, layouts: Mapping[Any, Layout]) -> RowSchedule:
    """Return the schedule of a kernel: across rows lying side by side, or along rows of contiguous elements."""
    group, columns = kernel.group, _columns_of(kernel.group, layouts)
    outer, inner, across = row_loops(group, layouts, columns)
    parallel = next((index.name for index, size in zip(outer.variables, outer.sizes, strict=True) if size != 1), None)
    if columns:
        width = _width(group, inner, across)
        parallel, fetched = parallel or BLOCK_LOOP, _FETCHED_AHEAD if kernel.unit.has_vectors else 0
        return RowSchedule(columns, width, parallel, chunk=_COLUMN_CHUNK, fetched=fetched)
    row_size = product(inner.sizes)
    dtypes = {dtype_of(step.operands[0]) for step in group.steps if step.op in REDUCTIONS}
    is_alone = num_passes(group) == 1 and not outer.sizes and len(inner.sizes) == 1 and len(dtypes) == 1
    is_shared = is_alone and (not isinstance(row_size, int) or row_size >= 2 * _BLOCK)
    return RowSchedule(
        parallel=BLOCK_LOOP if is_shared else parallel,
        block=_BLOCK if is_shared else 0,
        vector_nbytes=kernel.unit.nbytes,
        fetched=_FETCHED if kernel.unit.has_vectors else 0,
        lender_nbytes=LONG_NBYTES,
    )


def _columns_of(group: Group, layouts: Mapping[Any, Layout]) -> tuple[int, ...]:
    """Return the axes of rows lying side by side, if the elements of a row do not."""
    space, reduced = group.space or (), group.reduced or frozenset()
    wide = [axis for axis, size in enumerate(space) if size != 1]
    if not wide or wide[-1] in reduced:
        return ()
    after = max((axis for axis in wide if axis in reduced), default=-1)
    return tuple(StridedNest(space, layouts, range(after + 1, len(space))).groups[-1])


def _width(group: Group, inner: StridedNest, across: StridedNest) -> int:
    """Return the number of rows computed together: fewer if their elements wait for values of the row."""
    (size,), row_size, values, most = across.sizes, product(inner.sizes), group.row_axes, _COLUMNS
    if isinstance(row_size, int) and row_size * _COLUMNS > _KEPT_ELEMENTS:
        operands = (operand for step in group.steps if step.result not in values for operand in step.operands)
        if not values.keys().isdisjoint(operands):
            most = max(_LANES, _KEPT_ELEMENTS // row_size // _LANES * _LANES)
    if not isinstance(size, int):
        return most
    blocks = max(1, -(-size // most))
    return -(-size // blocks // _LANES) * _LANES if blocks > 1 else max(size, 1)
