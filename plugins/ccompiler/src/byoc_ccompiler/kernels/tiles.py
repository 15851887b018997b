"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Products and sums are contracted (fused multiply-add).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.fetching import fetch_line
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH_CHUNK", "multiply", "tile_function"]

DEPTH_CHUNK = 512
"""Products that are added up one after another in a register; longer sums are sums of such sums."""

_FALSE = c.Literal(False, c.BOOL)


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
    """Return the call of a :func:`tile_function` that all kernels of the source share.

    Args:
        kernel: where the call stands.
        shape: the rows of the tile, and the vectors in a row of a panel.
        left: the rows: the first one and the distance to the next; or pointers, how many runs a row has, and where in
            each it starts.
        panel: the panel.
        depth: steps of the sums, in each run.
        sums: the first sum.
        pitch: elements from one row of sums to the next, where they do not lie side by side.
        adds: whether the sums are added to what is there.
        ahead: memory to fetch meanwhile: an address, elements behind it, and elements in each step; empty for none.
        panel_step: elements from one step of the panel to the next, where they do not lie side by side.
        panels: how many panels, one behind the other.
    """
    rows, vectors = shape
    indirect = isinstance(left[0], c.Address) and isinstance(left[0].buffer, c.PointerArray)
    is_plain = pitch is None and adds == _FALSE and left[2:] in ((), (c.Size(0),))
    function = tile_function(
        *(kernel.unit, sums.buffer.dtype, rows, vectors),
        indirect=indirect,
        strided=panel_step is not None,
        fetches=bool(ahead),
        is_plain=is_plain,
        panels=panels,
    )
    if pitch is None:
        pitch = c.Size(panels * vectors * kernel.unit.lanes(sums.buffer.dtype))
    steps = () if panel_step is None else (panel_step,)
    places = (*left[:2], panel) if is_plain else (*left, panel)
    arguments = (*places, *steps, depth, *ahead, sums, *(() if is_plain else (pitch, adds)))
    return c.Evaluate(c.Call(kernel.shared_function(function), arguments))


@cache
def tile_function(
    unit: VectorUnit,
    dtype: str,
    rows: int,
    vectors: int,
    *,
    indirect: bool = False,
    strided: bool = False,
    fetches: bool = False,
    is_plain: bool = False,
    panels: int = 1,
) -> c.Function:
    """Return a function that multiplies rows by a panel: ``sums[j][n] = sum over k of a[j][k] * panel[k][n]``.

    A panel has ``vectors * lanes`` columns; those of one ``k`` lie side by side, and so do the sums of one row. The
    factors of a row lie side by side too. All may lie at any address.

    Parameters in C: ``a, a_row_step, panel, [panel_step,] depth, [ahead, ahead_at, ahead_step,] sums, pitch, adds``.
    Row ``j`` starts at ``a + j * a_row_step``. In each step ``ahead_step`` more elements behind ``ahead + ahead_at``
    are brought into the second-level cache. Rows of sums lie ``pitch`` elements apart. They are added to where ``adds``
    is true, else overwritten. Indirect: ``rows, num_taps, first`` in place of ``a, a_row_step``; row ``j`` is
    ``num_taps`` runs of ``depth`` factors, run ``t`` at ``rows[t * ROWS + j] + first``, and the panel has
    ``num_taps * depth`` steps. A plain tile has no ``first``, ``pitch`` and ``adds``: they are numbers, and a short sum
    need not wait for them.

    Args:
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row of a panel.
        indirect: whether rows are found through pointers.
        strided: whether steps of the panel lie ``panel_step`` elements apart, and not side by side.
        fetches: whether it fetches.
        is_plain: whether runs start at 0, sums lie side by side, and what is there is overwritten.
        panels: how many panels of ``depth`` steps, one behind the other, it reads at a time: rows of sums go over all.
    """
    lanes, type_, width, zero = unit.lanes(dtype), c.CType(dtype), vectors * unit.lanes(dtype), c.Size(0)
    names = ("a_row_step", "num_taps", "first", "panel_step", "depth", "ahead_at", "ahead_step", "pitch")
    a_row_step, num_taps, first, panel_step, depth, ahead_at, ahead_step, pitch = map(c.Variable, names)
    j, t, k, begin, end, room = map(c.Variable, ("j", "t", "k", "begin", "end", "room"))
    adds, is_later = c.Variable("adds", c.BOOL), c.Variable("is_later", c.BOOL)
    own, begins, was_there = (c.Size(panels * width), zero, _FALSE) if is_plain else (pitch, first, adds)
    left = c.PointerArray("rows", dtype) if indirect else c.Buffer("a", dtype)
    panel, ahead, row = (c.Buffer(name, dtype) for name in ("panel", "ahead", "row"))
    acc = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, rows * panels * width)
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    scale = c.Variable("scale", type_)
    parts = {n: c.Variable("part", type_.with_lanes(lanes)) for n in range(0, panels * width, lanes)}
    operands = (left, num_taps, *(() if is_plain else (first,))) if indirect else (left, a_row_step)
    row_at = t * rows + j if indirect else j * a_row_step
    start, step = (begins, t * depth + (k - begins)) if indirect else (zero, k)

    def each(statement: Callable[[c.Load, c.Load, c.Variable], c.Statement], *before: c.Statement) -> c.For:
        """Return the loop over rows with a statement for each vector: of its sum, its place and its part of a step."""
        held = {n: c.Load(acc, j * (panels * width) + n, lanes) for n in parts}
        body = (*before, *(statement(held[n], c.Load(sums, j * own + n, lanes), part) for n, part in parts.items()))
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
        *((fetch_line(ahead, ahead_at + step * ahead_step),) if fetches else ()),
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
    body = (
        c.LocalArray(acc, lanes=lanes),
        c.Declare(room, c.Size(DEPTH_CHUNK)),
        c.Declare(is_later, was_there),
        clear,
        *((c.For(t, zero, num_taps, run),) if indirect else run),
        finish,
    )
    steps, fetching = (panel_step,) if strided else (), (ahead, ahead_at, ahead_step) if fetches else ()
    target = (sums,) if is_plain else (sums, pitch, adds)
    options = "".join(f"_{name}" for name, has in (("strided", strided), ("fetching", fetches)) if has)
    name = f"{'rows' if indirect else 'tile'}{options}_{c_suffix(dtype)}_{rows}x{panels * vectors}"
    return c.Function(name, (*operands, panel, *steps, depth, *fetching, *target), body, is_contracted=True)
