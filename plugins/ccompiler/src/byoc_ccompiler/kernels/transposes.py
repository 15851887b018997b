"""``permute_dims``: rows that stay whole are copied, the others turned in square tiles that fit the vector registers.

A tile is turned as Eklundh does ("A fast computer method for matrix transposing", 1972): in log2(lanes) steps, each of
which swaps halves of ever smaller blocks between pairs of registers. Where a side is no multiple of the tile's, the
last tile lies over the one before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.fetching import fetch
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "turn_function"]

_MOVE_PS = 300
"""Estimated picoseconds to move one element to another order."""

_ROWS_AHEAD = 8
"""Rows that what is fetched lies ahead, where rows are copied."""

_FETCHED_NBYTES = (128, 2048)
"""Bytes of rows, from and to, that are fetched ahead: the processor itself does it for longer ones."""

_SOURCE, _RESULT = "source", "result"


def _order(step: Step) -> list[int]:
    axes, rank = step.binding.attrs["axes"], len(shape_of(step.operands[0]))
    return [int(str(axis)) % rank for axis in axes] if isinstance(axes, tuple) else [*range(rank)][::-1]


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``permute_dims``."""
    (step,) = kernel.group.steps
    source, result = step.operands[0], step.result
    space, strides = shape_of(result), kernel.strides(source)
    layouts: dict[Hashable, Layout] = {
        _SOURCE: Layout(space, tuple(strides[axis] for axis in _order(step))),
        _RESULT: Layout(space, kernel.strides(result)),
    }
    nest = StridedNest(space, layouts, range(len(space)))
    turned = _find_turned(kernel, nest)
    if turned is not None:
        _write_tiles(kernel, layouts, nest, turned)
        return
    part = _first_wide(nest)
    if part is None:
        kernel.finish_block(_moves(kernel, nest, {}))
        return
    round_ps = product(nest.sizes[part + 1 :]) * _MOVE_PS
    block = _moves(kernel, nest, {part: c.LoopKind.PARALLEL}, round_ps)
    if _copies_rows(kernel, nest):
        fetching = _fetch(kernel, nest)
        block = c.change_loop(block, nest.variables[-1], lambda loop: (*fetching, loop))
    kernel.finish_block(block)


def _moves(kernel: Kernel, nest: StridedNest, kinds: Mapping[int, c.LoopKind], round_ps: Dim | None = None) -> c.Block:
    """Return the loops that move one element at a time."""
    source, target = _buffers(kernel)
    move = c.Store(target, nest.position(_RESULT), source[nest.position(_SOURCE)])
    return nest.loops((move,), kinds, round_ps=round_ps)


def _buffers(kernel: Kernel) -> tuple[c.Buffer, c.Buffer]:
    return kernel.source(kernel.group.steps[0].operands[0]), kernel.target(kernel.stored[0])


def _copies_rows(kernel: Kernel, nest: StridedNest) -> bool:
    """Tells whether the innermost loop copies some lines of memory that do not follow those copied before."""
    last = len(nest.sizes) - 1
    if last < 1 or not isinstance(nest.sizes[last], int) or nest.step(_SOURCE, last)[0] != 1:
        return False
    return _FETCHED_NBYTES[0] <= _row_nbytes(kernel, nest) <= _FETCHED_NBYTES[1]


def _row_nbytes(kernel: Kernel, nest: StridedNest) -> int:
    size = nest.sizes[-1]
    return size * dtype_info(dtype_of(kernel.stored[0])).itemsize if isinstance(size, int) else 0


def _fetch(kernel: Kernel, nest: StridedNest) -> c.Block:
    """Return the statement that fetches a row which is copied some rounds later."""
    ahead = nest.step(_SOURCE, len(nest.sizes) - 2)[0] * _ROWS_AHEAD
    fetched = fetch(_buffers(kernel)[0], nest.position(_SOURCE) + ahead, _row_nbytes(kernel, nest))
    return c.substitute((fetched,), {nest.variables[-1]: c.Size(0)})


def _find_turned(kernel: Kernel, nest: StridedNest) -> int | None:
    """Gives the loop along the source's memory, where it and the innermost loop may be turned by vector."""
    dtype = dtype_of(kernel.stored[0])
    lanes, last = kernel.unit.lanes(dtype), len(nest.sizes) - 1
    if dtype_info(dtype).itemsize not in (4, 8) or lanes < 4 or last < 1:
        return None
    if nest.step(_SOURCE, last)[0] == 1 or nest.step(_RESULT, last)[0] != 1:
        return None
    along = [loop for loop in range(last) if nest.step(_SOURCE, loop)[0] == 1]
    sizes = [nest.sizes[loop] for loop in (*along, last)]
    return along[-1] if along and all(not isinstance(size, int) or size >= lanes for size in sizes) else None


def _write_tiles(kernel: Kernel, layouts: dict[Hashable, Layout], nest: StridedNest, turned: int) -> None:
    space, last = shape_of(kernel.stored[0]), len(nest.sizes) - 1
    outer = [axis for loop, axes in enumerate(nest.groups) if loop not in (turned, last) for axis in axes]
    planes = StridedNest(space, layouts, outer, prefix="p")
    source, target = _buffers(kernel)
    lanes = kernel.unit.lanes(source.dtype)
    # An item that is the last one does what is left over, too, so that no two threads write to one place.
    tiles, line_ps = nest.sizes[turned] // lanes, nest.sizes[last] * _MOVE_PS
    part = _first_wide(planes)
    kind = c.LoopKind.PARALLEL if part is None else c.LoopKind.SERIAL
    from_, to = c.Buffer("from", source.dtype), c.Buffer("to", target.dtype, c.MemoryAccess.WRITE)
    tile = c.Variable("tile")
    body: c.Block = (
        c.Alias(from_, source, planes.position(_SOURCE)),
        c.Alias(to, target, planes.position(_RESULT)),
        c.For(
            tile,
            c.Size(0),
            c.Size(tiles),
            _tile(kernel, nest, turned, tile, from_, to),
            kind=kind,
            round_ps=line_ps * lanes,
        ),
    )
    if part is None:
        block = planes.loops(body, {})
    else:
        round_ps = product(planes.sizes[part + 1 :]) * nest.sizes[turned] * line_ps
        block = planes.loops(body, {part: c.LoopKind.PARALLEL}, round_ps=round_ps)
    sizes = [c.Size(nest.sizes[loop]).compare("<", lanes) for loop in (turned, last)]
    is_narrow = c.Binary("||", *sizes)
    kernel.finish_block((c.If(is_narrow, (*_moves(kernel, nest, {}), c.Return())), *block))


def _tile(kernel: Kernel, nest: StridedNest, turned: int, tile: c.Variable, from_: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements that turn a row of tiles; where a side is no multiple, the last tile begins earlier."""
    last, lanes = len(nest.sizes) - 1, kernel.unit.lanes(to.dtype)
    height, width = nest.sizes[turned], nest.sizes[last]
    from_step, to_step = nest.step(_SOURCE, last)[0], nest.step(_RESULT, turned)[0]
    a, b, a_first, b_first, b_end = (c.Variable(name) for name in ("a", "b", "a_first", "b_first", "b_end"))
    place = c.Address(from_, a_first * from_step + b_first)
    turned_place = c.Address(to, b_first * to_step + a_first)
    turn = kernel.shared_function(turn_function(kernel.unit, to.dtype))
    columns: c.Block = (
        c.Let(a_first, c.index_min(a, width - lanes)),
        c.Evaluate(c.Call(turn, (place, c.Size(from_step), turned_place, c.Size(to_step)))),
    )
    rows: c.Block = (
        c.Let(b_first, c.index_min(b, height - lanes)),
        c.For(a, c.Size(0), c.Size(width), columns, step=lanes),
    )
    is_last = tile.compare("==", height // lanes - 1)
    return (
        c.Let(b_end, c.Select(is_last, c.Size(height), (tile + 1) * lanes)),
        c.For(b, tile * lanes, b_end, rows, step=lanes),
    )


def _first_wide(nest: StridedNest) -> int | None:
    """Gives the first loop of more than one round."""
    return next((loop for loop, size in enumerate(nest.sizes) if size != 1), None)


def turn_function(unit: VectorUnit, dtype: str) -> c.Function:
    """Return the function that turns a square of as many rows as a register has lanes, rows so many elements apart."""
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
            one, other = old[row & ~size], old[row | size]
            body.append(c.Let(rows[row], c.Shuffle(one, other, high if row & size else low)))
        size //= 2
    body += [c.Store(to, to_step * k, row) for k, row in enumerate(rows)]
    return c.Function(f"turn_{c_suffix(dtype)}", (from_, from_step, to, to_step), tuple(body))


def _rejects_nothing(binding: Binding) -> Rejection | None:
    return None


def _any(step: Step, index: int) -> Access:
    return Access.ANY


FAMILY = KernelFamily(frozenset({"permute_dims"}), _rejects_nothing, _write, takes_halves=True, reads=_any, writes=_any)
"""``permute_dims``."""
