"""``permute_dims``: unbroken rows are copied, others transposed in square tiles fitting the vector registers.

A tile is transposed by Eklundh's method ("A fast computer method for matrix transposing", 1972): in log2(lanes) steps,
each swapping halves of ever smaller blocks between pairs of registers. If a side is no multiple of the tile's, the last
tile overlaps the tile before.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import cache

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.family import KernelFamily, any_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout, StridedNest, fetch, loops_around, memory_order, share_nest
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "order_of", "turn_function"]

_ROWS_AHEAD = 8
"""Prefetch distance in rows for row copies."""

_FETCHED_NBYTES = range(128, 2048 + 1)
"""Bytes of rows, from and to, prefetched in software: the processor itself prefetches longer rows."""

_SET_NBYTES, _SET_LINES = 1 << 12, 8
"""Bytes between addresses of the same set of the first-level cache; lines of a set, about."""

_SOURCE, _RESULT = "source", "result"


def order_of(step: Step) -> list[int]:
    """Return the axes of the operand in the order of ``permute_dims``."""
    axes, rank = step.binding.attrs["axes"], len(shape_of(step.operands[0]))
    return [int(str(axis)) % rank for axis in axes] if isinstance(axes, tuple) else [*range(rank)][::-1]


def _write(kernel: Kernel) -> None:
    """Write the kernel of ``permute_dims``."""
    (step,) = kernel.group.steps
    space, strides = shape_of(step.result), kernel.strides(step.operands[0])
    source, target = kernel.source(step.operands[0]), kernel.target(step.result)
    layouts: dict[Hashable, Layout] = {
        _SOURCE: Layout(space, tuple(strides[axis] for axis in order_of(step))),
        _RESULT: Layout(space, kernel.strides(step.result)),
    }
    nest, lanes = (
        StridedNest(space, layouts, memory_order(kernel.strides(step.result))),
        kernel.unit.lanes(target.dtype),
    )
    turned = _find_turned(nest, target.dtype, lanes)
    if turned is None:
        by_axis = StridedNest(space, layouts, range(len(space)))
        nest = nest if _shares_sets(by_axis, target.dtype) else by_axis
    last, moves = len(nest.sizes) - 1, (c.Store(target, nest.position(_RESULT), source[nest.position(_SOURCE)]),)
    if turned is not None:
        outer = [axis for loop, axes in enumerate(nest.groups) if loop not in (turned, last) for axis in axes]
        planes = StridedNest(space, layouts, outer, prefix="p")
        is_narrow = c.Binary("||", *(c.Size(nest.sizes[loop]).compare("<", lanes) for loop in (turned, last)))
        narrow = c.If(is_narrow, (*loops_around(moves, nest.variables, nest.sizes), c.Return()))
        kernel.finish_block((narrow, *_tiles(kernel, nest, planes, turned, source, target)))
        return
    row_nbytes = nest.sizes[-1] * dtype_info(target.dtype).itemsize if nest.sizes else 0
    # Rows are prefetched when copied to non-consecutive rows.
    is_row = last > 0 and nest.step(_SOURCE, last)[0] == 1
    if is_row and isinstance(row_nbytes, int) and row_nbytes in _FETCHED_NBYTES:
        ahead = nest.position(_SOURCE, last=c.Size(0)) + nest.step(_SOURCE, last - 1)[0] * _ROWS_AHEAD
        row = loops_around(moves, nest.variables[last:], nest.sizes[last:])
        block = share_nest(kernel, nest.axes[:last], (fetch(source, ahead, row_nbytes), *row))
    else:
        block = share_nest(kernel, nest.axes, moves)
    kernel.finish_block(block)


def _shares_sets(nest: StridedNest, dtype: str) -> bool:
    """Return whether the innermost loop writes more cache lines of the same set than the first-level cache has ways."""
    if not nest.sizes:
        return False
    step, size = nest.step(_RESULT, len(nest.sizes) - 1)[0], nest.sizes[-1]
    if not isinstance(step, int) or not isinstance(size, int) or step == 0:
        return False
    return step * dtype_info(dtype).itemsize % _SET_NBYTES == 0 and size > _SET_LINES


def _find_turned(nest: StridedNest, dtype: str, lanes: int) -> int | None:
    """Return the loop along the source's memory, if this loop and the innermost loop can be transposed by vector."""
    last = len(nest.sizes) - 1
    if dtype_info(dtype).itemsize not in (4, 8) or lanes < 4 or last < 1:
        return None
    if nest.step(_SOURCE, last)[0] == 1 or nest.step(_RESULT, last)[0] != 1:
        return None
    along = [loop for loop in range(last) if nest.step(_SOURCE, loop)[0] == 1]
    sizes = [nest.sizes[loop] for loop in (*along, last)]
    return along[-1] if along and all(not isinstance(size, int) or size >= lanes for size in sizes) else None


def _tiles(
    kernel: Kernel, nest: StridedNest, planes: StridedNest, turned: int, source: c.Buffer, target: c.Buffer
) -> c.Block:
    """Return the loops over tiles; if a side is no multiple of a tile's, the last tile begins earlier."""
    last, lanes = len(nest.sizes) - 1, kernel.unit.lanes(target.dtype)
    height, width = nest.sizes[turned], nest.sizes[last]
    from_step, to_step = nest.step(_SOURCE, last)[0], nest.step(_RESULT, turned)[0]
    from_, to = c.Buffer("from", source.dtype), c.Buffer("to", target.dtype, c.MemoryAccess.WRITE)
    tile, a, b, a_first, b_first, b_end = map(c.Variable, ("tile", "a", "b", "a_first", "b_first", "b_end"))
    turn = kernel.shared_function(turn_function(kernel.unit, target.dtype))
    source_offset, target_offset = a_first * from_step + b_first, b_first * to_step + a_first
    squares = (c.Address(from_, source_offset), c.Size(from_step), c.Address(to, target_offset), c.Size(to_step))
    columns: c.Block = (c.Let(a_first, c.index_min(a, width - lanes)), c.Evaluate(c.Call(turn, squares)))
    rows: c.Block = (c.Let(b_first, c.index_min(b, height - lanes)), c.For(a, c.Size(0), c.Size(width), columns, lanes))
    # The last item also computes the rest, because then no two threads write the same element.
    end = c.Select(tile.compare("==", height // lanes - 1), c.Size(height), (tile + 1) * lanes)
    item = (c.Let(b_end, end), c.For(b, tile * lanes, b_end, rows, lanes))
    tiles = loops_around(item, [tile], [height // lanes], part=None if planes.sizes else 0)
    pointers = (c.Alias(from_, source, planes.position(_SOURCE)), c.Alias(to, target, planes.position(_RESULT)))
    return share_nest(kernel, planes.axes, (*pointers, *tiles))


@cache
def turn_function(unit: VectorUnit, dtype: str) -> c.Function:
    """Return the function transposing a square of as many rows as lanes in a register, with given row strides."""
    lanes = unit.lanes(dtype)
    from_, to = c.Buffer("from", dtype), c.Buffer("to", dtype, c.MemoryAccess.WRITE)
    from_step, to_step = c.Variable("from_step"), c.Variable("to_step")
    rows = [c.Variable(f"row{row}", c.CType(dtype, lanes)) for row in range(lanes)]
    body: list[c.Statement] = [c.Let(row, c.Load(from_, from_step * k, lanes)) for k, row in enumerate(rows)]
    size = lanes // 2
    while size:
        old, rows = rows, [replace(row) for row in rows]
        low = tuple(lane - size + lanes if lane & size else lane for lane in range(lanes))
        high = tuple(lane + lanes if lane & size else lane + size for lane in range(lanes))
        for row in range(lanes):
            upper, lower = old[row & ~size], old[row | size]
            body.append(c.Let(rows[row], c.Shuffle(upper, lower, high if row & size else low)))
        size //= 2
    body += [c.Store(to, to_step * k, row) for k, row in enumerate(rows)]
    return c.Function(f"turn_{c_suffix(dtype)}", (from_, from_step, to, to_step), tuple(body))


FAMILY = KernelFamily(
    frozenset({"permute_dims"}), reject_nothing, _write, takes_halves=True, reads=any_access, writes=any_access
)
"""``permute_dims``."""
