"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Products and sums are contracted (fused multiply-add).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.fetching import fetch_line
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH_CHUNK", "Factors", "chunk_function", "panel_function", "tile_function"]

DEPTH_CHUNK = 512
"""Products that are added up one after another in a register; longer sums are sums of such sums."""


class Factors(Enum):
    """Where a tile finds the factors of its rows.

    Attributes:
        ROWS: ``a, a_row_step, panel, [panel_step,] depth``: row ``j`` starts at ``a + j * a_row_step``.
        RUNS: ``rows, num_taps, depth, panel``: row ``j`` is ``num_taps`` runs of ``depth`` factors, run ``t`` at
            ``rows[t * ROWS + j]``, and the panel has ``num_taps * depth`` steps.
        POINTERS: ``rows, begin, depth, panel``: row ``j`` starts at ``rows[j] + begin``.
    """

    ROWS = "tile"
    RUNS = "rows"
    POINTERS = "chunk"


def tile_function(
    unit: VectorUnit,
    dtype: str,
    rows: int,
    vectors: int,
    factors: Factors = Factors.ROWS,
    *,
    strided: bool = False,
    placed: bool = False,
    fetches: bool = False,
    panels: int = 1,
) -> c.Function:
    """Return a function that multiplies rows by a panel: ``sums[j][n] = sum over k of a[j][k] * panel[k][n]``.

    A panel has ``vectors * lanes`` columns; those of one ``k`` lie side by side, and so do the sums of one row. The
    factors of a row lie side by side too. All may lie at any address.

    Parameters in C: those of the factors, ``[ahead, [ahead_at,] ahead_step,] sums, [pitch,] [adds]``. In each step
    ``ahead_step`` more elements behind ``ahead + ahead_at`` are brought into the second-level cache. Rows of sums lie
    ``pitch`` elements apart, else side by side. They are added to where ``adds`` is true, else overwritten.

    Args:
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row.
        factors: where it finds the factors; pointers have ``adds``.
        strided: whether steps of the panel lie ``panel_step`` elements apart, and not side by side.
        placed: whether it has ``ahead_at``, ``pitch`` and ``adds``.
        fetches: whether it fetches.
        panels: how many panels of ``depth`` steps, one behind the other, it reads at a time: rows of sums go over all.
    """
    lanes, type_, width = unit.lanes(dtype), c.CType(dtype), vectors * unit.lanes(dtype)
    names = ("a_row_step", "num_taps", "first", "panel_step", "depth", "ahead_at", "ahead_step", "pitch")
    a_row_step, num_taps, first, panel_step, depth, ahead_at, ahead_step, pitch = map(c.Variable, names)
    j, t, k, begin, end, room = map(c.Variable, ("j", "t", "k", "begin", "end", "room"))
    adds, is_later = c.Variable("adds", c.BOOL), c.Variable("is_later", c.BOOL)
    left = c.Buffer("a", dtype) if factors is Factors.ROWS else c.PointerArray("rows", dtype)
    panel, ahead, row = (c.Buffer(name, dtype) for name in ("panel", "ahead", "row"))
    acc = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, rows * panels * width)
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    scale = c.Variable("scale", type_)
    parts = {n: c.Variable("part", type_.with_lanes(lanes)) for n in range(0, panels * width, lanes)}
    zero = c.Size(0)
    forms = {
        Factors.ROWS: ((a_row_step, panel, *((panel_step,) if strided else ()), depth), j * a_row_step, zero, k),
        Factors.RUNS: ((num_taps, depth, panel), t * rows + j, zero, t * depth + k),
        Factors.POINTERS: ((first, depth, panel), j, first, k - first),
    }
    operands, row_at, start, step = forms[factors]

    def each(statement: Callable[[c.Load, c.Load, c.Variable], c.Statement], *before: c.Statement) -> c.For:
        """Return the loop over rows with a statement for each vector: of its sum, its place and its part of a step."""
        own, apart = panels * width, pitch if placed else panels * width
        sums_of = {n: (c.Load(acc, j * own + n, lanes), c.Load(sums, j * apart + n, lanes)) for n in parts}
        body = (*before, *(statement(*sums_of[n], part) for n, part in parts.items()))
        return c.For(j, zero, c.Size(rows), body, kind=c.LoopKind.UNROLLED)

    def store(to: c.Load, value: c.Expression) -> c.Store:
        return c.Store(to.buffer, to.index, value)

    nothing, factor = c.Broadcast(c.Literal(0, type_), lanes), c.Broadcast(scale, lanes)
    clear = each(lambda held, *_: store(held, nothing))
    finish = c.If(
        is_later,
        (each(lambda held, place, _: store(place, place + held)),),
        (each(lambda held, place, _: store(place, held)),),
    )
    columns_at = {n: (step + n // width * depth) * (panel_step if strided else width) + n % width for n in parts}
    loop = (
        *((fetch_line(ahead, (ahead_at if placed else zero) + step * ahead_step),) if fetches else ()),
        *(c.Let(part, c.Load(panel, columns_at[n], lanes)) for n, part in parts.items()),
        each(lambda held, _, part: store(held, held + factor * part), c.Alias(row, left, row_at), c.Let(scale, row[k])),
    )
    chunk = (
        c.Let(end, c.index_min(start + depth, begin + room)),
        c.Assign(room, room - (end - begin)),
        c.For(k, begin, end, loop),
        c.Assign(begin, end),
        c.If(
            room.compare("==", 0),
            (finish, clear, c.Assign(room, c.Size(DEPTH_CHUNK)), c.Assign(is_later, c.Literal(True, c.BOOL))),
        ),
    )
    run = (c.Declare(begin, start), c.While(begin.compare("<", start + depth), chunk))
    has_adds = placed or factors is Factors.POINTERS
    body = (
        c.LocalArray(acc, lanes=lanes),
        c.Declare(room, c.Size(DEPTH_CHUNK)),
        c.Declare(is_later, adds if has_adds else c.Literal(False, c.BOOL)),
        clear,
        *((c.For(t, zero, num_taps, run),) if factors is Factors.RUNS else run),
        finish,
    )
    fetching = (ahead, *((ahead_at,) if placed else ()), ahead_step) if fetches else ()
    target = (sums, *((pitch,) if placed else ()), *((adds,) if has_adds else ()))
    options = f"{'_strided' if strided else ''}{'_placed' if placed else ''}{'_fetching' if fetches else ''}"
    name = f"{factors.value}{options}_{c_suffix(dtype)}_{rows}x{panels * vectors}"
    return c.Function(name, (left, *operands, *fetching, *target), body, is_contracted=True)


def panel_function(
    kernel: Kernel, dtype: str, rows: int, vectors: int, *, indirect: bool = False, fetches: bool = False
) -> str:
    """Return the C name of a :func:`tile_function` of rows, or of runs, that all kernels of the source share."""
    factors = Factors.RUNS if indirect else Factors.ROWS
    return kernel.shared_name(tile_function(kernel.unit, dtype, rows, vectors, factors, fetches=fetches))


def chunk_function(kernel: Kernel, dtype: str, rows: int, vectors: int) -> str:
    """Return the C name of a :func:`tile_function` behind pointers that all kernels of the source share."""
    return kernel.shared_name(tile_function(kernel.unit, dtype, rows, vectors, Factors.POINTERS, fetches=True))
