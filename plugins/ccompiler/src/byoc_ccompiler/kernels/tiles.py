"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. The loops need no more than unrolling from a C compiler: no
reassociation, no ``-ffast-math``. Products and sums are contracted (fused multiply-add).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import fetch_line
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH_CHUNK", "in_lanes", "in_parts", "multiply", "steps_of_a_line", "tile_function"]

_STEPS = 4
"""Steps of a tile unrolled if memory is prefetched and registers are left, and steps at a time without vectors."""

_LEAST_ROLLED = 8
"""Columns of a loop left to the vectoriser of the C compiler; shorter loops are unrolled."""

_LINE_NBYTES = 64
"""Bytes prefetched at once."""

DEPTH_CHUNK = 512
"""Products accumulated in sequence in a register; longer sums are sums of such sums."""

_ZERO, _FALSE = c.Size(0), c.Literal(False, c.BOOL)


def multiply(
    kernel: Kernel,
    shape: tuple[int, int],
    left: tuple[c.Expression, ...],
    panel: c.Address,
    depth: c.Expression,
    sums: c.Address,
    *,
    pitch: c.Expression | None = None,
    adds: c.Expression = _FALSE,
    ahead: tuple[c.Expression, ...] = (),
    panel_step: c.Expression | None = None,
    panels: int = 1,
) -> c.Evaluate:
    """Return the call of a :func:`tile_function` shared by all kernels of the source.

    The shape is the rows of the tile, and the vectors in a row of a panel. The rows on the left are the first row and
    the distance to the next; or pointers, the number of runs in a row, and the start in each run: then ``depth`` is the
    depth of a run. Rows of sums lie ``pitch`` elements apart, and steps of the panel ``panel_step``, unless contiguous.
    ``ahead`` is memory to prefetch meanwhile: an address, elements behind the address, and elements in each step.
    """
    dtype, steps = sums.buffer.dtype, () if panel_step is None else (panel_step,)
    ahead = ahead if kernel.unit.has_vectors else ()
    is_plain = pitch is None and adds == _FALSE and left[2:] in ((), (_ZERO,))
    function = tile_function(
        kernel.unit,
        dtype,
        *shape,
        indirect=isinstance(left[0], c.Address) and isinstance(left[0].buffer, c.PointerArray),
        strided=bool(steps),
        is_plain=is_plain,
        fetch_interval=steps_of_a_line(ahead[2], dtype) if ahead else 0,
        panels=panels,
    )
    row_size = c.Size(panels * shape[1] * kernel.unit.lanes(dtype)) if pitch is None else pitch
    target = (sums,) if is_plain else (sums, row_size, adds)
    arguments = (*left[: 2 if is_plain else 3], panel, *steps, depth, *ahead, *target)
    return c.Evaluate(c.Call(kernel.shared_function(function), arguments))


def in_lanes(value: c.Expression, lanes: int) -> c.Expression:
    """Return a vector with a value in all lanes; the value for one lane."""
    return c.Broadcast(value, lanes) if lanes > 1 else value


def steps_of_a_line(step: c.Expression, dtype: str) -> int:
    """Return the steps of a tile, at most 4, per cache line, with ``step`` elements in each step; 1 if not known."""
    elements = step.dim if isinstance(step, c.Size) and isinstance(step.dim, int) else _LINE_NBYTES
    return max(1, min(_STEPS, _LINE_NBYTES // max(1, elements * dtype_info(dtype).itemsize)))


def in_parts(
    name: str, end: c.Expression, part: int, body: Callable[[int, c.Expression], c.Block], begin: c.Expression = _ZERO
) -> c.Block:
    """Return a loop over whole parts from a beginning to an end, and a loop over the rest, singly."""
    index, rest = c.variables(f"{name} {name}")
    if part == 1:
        return (c.For(index, begin, end, body(1, index)),)
    # The start of the rest is computed from the size, because then a compiler sees an empty rest.
    parts_end = begin + (end - begin) // part * part
    return (c.For(index, begin, parts_end, body(part, index), step=part), c.For(rest, parts_end, end, body(1, rest)))


def _add_columns(
    acc: c.Buffer,
    sums_at: Sequence[int],
    factors: Sequence[Sequence[c.Expression]],
    steps: Sequence[c.Load],
    width: int,
) -> c.For:
    """Return the loop over columns adding some steps to the sums of each row.

    Args:
        acc: the sums.
        sums_at: the offset of the sums of each row.
        factors: the factors of each row, one for each step.
        steps: the first column of each step of a panel.
        width: columns.
    """
    n, parts = c.Variable("n"), [c.Variable("part", step.type) for step in steps]
    body: list[c.Statement] = [
        c.Let(part, step.buffer[step.index + n]) for part, step in zip(parts, steps, strict=True)
    ]
    for at, values in zip(sums_at, factors, strict=True):
        total: c.Expression = acc[n + at]
        for value, part in zip(values, parts, strict=True):
            total += value * part
        body.append(c.Store(acc, n + at, total))
    kind = c.LoopKind.ROLLED if width >= _LEAST_ROLLED else c.LoopKind.UNROLLED
    return c.For(n, _ZERO, c.Size(width), tuple(body), kind=kind)


@cache
def tile_function(
    unit: VectorUnit,
    dtype: str,
    rows: int,
    vectors: int,
    *,
    indirect: bool = False,
    strided: bool = False,
    fetch_interval: int = 0,
    is_plain: bool = False,
    panels: int = 1,
) -> c.Function:
    """Return a function multiplying rows by a panel: ``sums[j][n] = sum over k of a[j][k] * panel[k][n]``.

    A panel has ``vectors * lanes`` columns; the columns of one ``k`` lie side by side. All may lie at any address.
    Without vectors, some steps at a time are added in a loop over the columns, for a C compiler to vectorise.
    Parameters in C: ``a, a_row_step, panel, [panel_step,] depth, [ahead, ahead_at, ahead_step,] sums, pitch, adds``.
    Row ``j`` starts at ``a + j * a_row_step``. Steps of a strided panel lie ``panel_step`` elements apart. In each step
    ``ahead_step`` more elements behind ``ahead + ahead_at`` are prefetched, a line every ``fetch_interval`` steps; 0:
    none. Rows of sums are added to if ``adds`` is true, else overwritten.

    Indirect: ``rows, num_taps, first`` in place of ``a, a_row_step``; row ``j`` is ``num_taps`` runs of ``depth``
    factors, run ``t`` at ``rows[t * ROWS + j] + first``. A plain tile has no ``first``, ``pitch`` and ``adds``: they
    are constants, and a short sum need not wait for them. Rows of sums go over all ``panels``, each of ``depth`` steps,
    one behind the other.
    """
    lanes, type_, width = unit.lanes(dtype), c.CType(dtype), vectors * unit.lanes(dtype)
    a_row_step, num_taps, first, panel_step, depth = c.variables("a_row_step num_taps first panel_step depth")
    ahead_at, ahead_step, pitch, j, t, k = c.variables("ahead_at ahead_step pitch j t k")
    begin, end, room = c.variables("begin end room")
    adds, is_later, scale = c.Variable("adds", c.BOOL), c.Variable("is_later", c.BOOL), c.Variable("scale", type_)
    left = c.PointerArray("rows", dtype) if indirect else c.Buffer("a", dtype)
    panel, ahead, row = (c.Buffer(name, dtype) for name in ("panel", "ahead", "row"))
    acc = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, rows * panels * width)
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    # The numbers of the vectors' first elements, and the multiplicand of each vector in a step.
    parts = {n: c.Variable("part", type_.with_lanes(lanes)) for n in range(0, panels * width, lanes)}
    start = first if indirect and not is_plain else _ZERO

    def row_at(number: c.Expression) -> c.Expression:
        return t * rows + number if indirect else number * a_row_step

    def vector(of: c.Buffer, n: int | c.Expression) -> c.Load:
        apart = c.Size(panels * width) if of is acc or is_plain else pitch
        return c.Load(of, j * apart + n, lanes)

    def each(to: c.Buffer, value: Callable[[int], c.Expression], *before: c.Statement) -> c.For:
        """Return the loop over rows setting each vector of a row."""
        body = (*before, *(c.Store(to, vector(to, n).index, value(n)) for n in parts))
        return c.For(j, _ZERO, c.Size(rows), body, kind=c.LoopKind.UNROLLED)

    def each_sum(to: c.Buffer, value: Callable[[int | c.Expression], c.Expression]) -> c.For:
        """Return the loops over rows and columns setting all sums."""
        if unit.has_vectors:
            return each(to, value)
        n = c.Variable("n")
        columns = c.For(n, _ZERO, c.Size(panels * width), (c.Store(to, vector(to, n).index, value(n)),))
        return c.For(j, _ZERO, c.Size(rows), (columns,), kind=c.LoopKind.UNROLLED)

    nothing, factor = in_lanes(c.Literal(0, type_), lanes), in_lanes(scale, lanes)
    clear = each_sum(acc, lambda _: nothing)
    added = each_sum(sums, lambda n: vector(sums, n) + vector(acc, n))
    finish = c.If(is_later, (added,), (each_sum(sums, lambda n: vector(acc, n)),))

    def step_of(at: c.Expression) -> c.Expression:
        return t * depth + (at - start) if indirect else at

    def some_steps(count: int, at: c.Expression) -> c.Block:
        """Return the statements of some steps."""
        if not unit.has_vectors:
            return some_steps_by_column(count, at)
        u = c.Variable("u")
        index = at if count == 1 else at + u
        panels_at = {n: (step_of(index) + n // width * depth) * (panel_step if strided else width) for n in parts}
        single_step = (
            *(c.Let(part, c.Load(panel, panels_at[n] + n % width, lanes)) for n, part in parts.items()),
            each(
                acc,
                lambda n: vector(acc, n) + factor * parts[n],
                c.Alias(row, left, row_at(j)),
                c.Let(scale, row[index]),
            ),
        )
        offsets = (ahead_at + step_of(at + step) * ahead_step for step in range(0, count, fetch_interval or count))
        fetched = [fetch_line(ahead, index) for index in offsets] if fetch_interval else []
        return (
            *fetched,
            *(single_step if count == 1 else (c.For(u, _ZERO, c.Size(count), single_step, kind=c.LoopKind.UNROLLED),)),
        )

    def some_steps_by_column(count: int, at: c.Expression) -> c.Block:
        """Return the statements of some steps: the factors of all rows, and a loop over the columns of each panel."""
        block: list[c.Statement] = []
        factors: list[list[c.Variable]] = []
        for number in range(rows):
            own = replace(row)
            factors.append([replace(scale) for _ in range(count)])
            block.append(c.Alias(own, left, row_at(c.Size(number))))
            block += (c.Let(value, own[at + step]) for step, value in enumerate(factors[-1]))
        for number in range(panels):
            steps = (step_of(at + step) + number * depth for step in range(count))
            firsts = [step * (panel_step if strided else width) for step in steps]
            sums_at = [(of_row * panels + number) * width for of_row in range(rows)]
            block.append(_add_columns(acc, sums_at, factors, [panel[first] for first in firsts], width))
        return tuple(block)

    # Compilers load the vectors of the next step early, and without registers for these spill sums, or load each vector
    # of a panel once for each row.
    has_room = (rows + 2) * len(parts) + unit.factor_registers <= unit.registers
    steps_at_once = _STEPS if not unit.has_vectors or (fetch_interval and has_room) else 1
    chunk_ends = (finish, clear, c.Assign(room, c.Size(DEPTH_CHUNK)), c.Assign(is_later, c.Literal(True, c.BOOL)))
    chunk = (
        c.Let(end, c.index_min(start + depth, begin + room)),
        c.Assign(room, room - (end - begin)),
        *in_parts(k.name, end, steps_at_once, some_steps, begin),
        c.Assign(begin, end),
        c.If(room.compare("==", 0), chunk_ends),
    )
    run = (c.Declare(begin, start), c.While(begin.compare("<", start + depth), chunk))
    body = (
        c.LocalArray(acc, lanes=lanes),
        c.Declare(room, c.Size(DEPTH_CHUNK)),
        c.Declare(is_later, _FALSE if is_plain else adds),
        clear,
        *((c.For(t, _ZERO, num_taps, run),) if indirect else run),
        finish,
    )
    operands = (left, num_taps, *(() if is_plain else (first,))) if indirect else (left, a_row_step)
    steps, fetching = (panel_step,) if strided else (), (ahead, ahead_at, ahead_step) if fetch_interval else ()
    target = (sums,) if is_plain else (sums, pitch, adds)
    options = ("_strided" if strided else "") + (f"_fetching_{fetch_interval}" if fetch_interval else "")
    name = f"{'rows' if indirect else 'tile'}{options}_{c_suffix(dtype)}_{rows}x{panels * vectors}"
    return c.Function(name, (*operands, panel, *steps, depth, *fetching, *target), body, is_contracted=True)
