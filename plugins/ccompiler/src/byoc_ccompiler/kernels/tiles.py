"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Products and sums are contracted (fused multiply-add).
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.fetching import fetch_line
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH_CHUNK", "Tile", "block_tile", "chunk_function", "panel_function", "panel_tile"]

DEPTH_CHUNK = 512
"""Products that are added up one after another in a register; longer sums are sums of such sums."""

_AT_ONCE = 4
"""Steps of a block's tile between two lines that are fetched; they are written out."""

_ZERO = c.Size(0)


class Tile:
    """Statements of a tile: ``sums[j][n] = sum over k of left[j][k] * panel[k][n]``.

    A panel has ``vectors * lanes`` columns; those of one ``k`` lie side by side, and so do the sums of one row. The
    factors of a row lie side by side too.

    Args:
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row.
        at_once: steps of the sums that are written out.
    """

    def __init__(self, unit: VectorUnit, dtype: str, rows: int, vectors: int, at_once: int = 1) -> None:
        self.lanes = unit.lanes(dtype)
        self.width = vectors * self.lanes
        self._type, self._rows, self._at_once = c.CType(dtype), rows, at_once
        self._sums = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, rows * self.width)
        self.declaration = c.LocalArray(self._sums, lanes=self.lanes)

    def _each(self, statement: Callable[[c.Expression, int], c.Statement]) -> c.For:
        """Return the loop over rows with a statement for each vector of a row."""
        j = c.Variable("j")
        body = tuple(statement(j, n) for n in range(0, self.width, self.lanes))
        return c.For(j, _ZERO, c.Size(self._rows), body, kind=c.LoopKind.UNROLLED)

    def _sum(self, j: c.Expression, n: int) -> c.Load:
        return c.Load(self._sums, j * self.width + n, self.lanes)

    def clear(self) -> c.Statement:
        """Return the statement that sets all sums to 0."""
        zero = c.Broadcast(c.Literal(0, self._type), self.lanes)
        return self._each(lambda j, n: c.Store(self._sums, self._sum(j, n).index, zero))

    def store(self, to: c.Buffer, pitch: c.Expression, adds: c.Expression) -> c.Statement:
        """Return the statement that stores all sums, rows ``pitch`` elements apart, or adds them to what is there."""

        def stores(*, adds: bool) -> c.Block:
            def store(j: c.Expression, n: int) -> c.Store:
                old, new = c.Load(to, j * pitch + n, self.lanes), self._sum(j, n)
                return c.Store(to, old.index, old + new if adds else new)

            return (self._each(store),)

        return c.If(adds, stores(adds=True), stores(adds=False))

    def steps(
        self,
        left: c.Buffer,
        row_at: Callable[[c.Expression], c.Expression],
        span: tuple[c.Expression, c.Expression],
        panel: c.Buffer,
        panel_at: Callable[[c.Expression], c.Expression],
        fetch_at: Callable[[c.Expression], c.Block] = lambda _: (),
    ) -> c.Block:
        """Return the loops over some steps of the sums.

        Args:
            left: the factors of the rows, or pointers to them.
            row_at: the offset of a row, or the number of its pointer.
            span: the first step, and the end.
            panel: the panel.
            panel_at: the offset of a step's columns.
            fetch_at: statements that fetch other memory meanwhile.
        """
        start, stop = span

        def step(k: c.Expression) -> c.Block:
            j, row, scale = c.Variable("j"), c.Buffer("row", left.dtype), c.Variable("scale", self._type)
            places = range(0, self.width, self.lanes)
            parts = {n: c.Variable("part", self._type.with_lanes(self.lanes)) for n in places}
            products = (
                c.Store(self._sums, self._sum(j, n).index, self._sum(j, n) + c.Broadcast(scale, self.lanes) * part)
                for n, part in parts.items()
            )
            body = (c.Alias(row, left, row_at(j)), c.Let(scale, row[k]), *products)
            return (
                *(c.Let(part, c.Load(panel, panel_at(k) + n, self.lanes)) for n, part in parts.items()),
                c.For(j, _ZERO, c.Size(self._rows), body, kind=c.LoopKind.UNROLLED),
            )

        k = c.Variable("k")
        if self._at_once == 1:
            return (c.For(k, start, stop, (*fetch_at(k), *step(k))),)
        u, rest, whole = c.Variable("u"), c.Variable("k"), c.Variable("whole")
        written_out = c.For(u, _ZERO, c.Size(self._at_once), step(k + u), kind=c.LoopKind.UNROLLED)
        return (
            c.Let(whole, start + (stop - start) // self._at_once * self._at_once),
            c.For(k, start, whole, (*fetch_at(k), written_out), step=self._at_once),
            c.For(rest, whole, stop, step(rest)),
        )


def block_tile(unit: VectorUnit, dtype: str, rows: int, vectors: int, *, strided: bool) -> c.Function:
    """Return a function that multiplies rows by a panel, a block of rows at a time; see :func:`panel_tile`.

    C signature: ``(a, a_row_step, panel, [panel_step,] depth, sums, pitch, adds, ahead, stride)``. Rows of sums lie
    ``pitch`` elements apart, and are added to where ``adds`` is true. In each step of the sums the memory ``stride``
    elements further is fetched, from ``ahead`` elements behind the panel's beginning on.

    Args:
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row.
        strided: whether the panel's steps lie ``panel_step`` elements apart, and not side by side.
    """
    tile = Tile(unit, dtype, rows, vectors, _AT_ONCE)
    panel_step, pitch, adds = c.Variable("panel_step"), c.Variable("pitch"), c.Variable("adds", c.BOOL)
    ahead, stride = c.Variable("ahead"), c.Variable("stride")
    a, a_row_step, panel, depth, sums = _operands(dtype)
    body = _long_sums(
        tile,
        (a, a_row_step, panel, panel_step if strided else c.Size(tile.width), depth),
        lambda begin: tile.store(sums, pitch, c.Binary("||", adds, begin.compare(">", 0))),
        lambda k: (fetch_line(panel, ahead + k * stride),),
    )
    steps = (panel_step,) if strided else ()
    parameters = (a, a_row_step, panel, *steps, depth, sums, pitch, adds, ahead, stride)
    name = f"tile_{'strided_' if strided else ''}{c_suffix(dtype)}_{rows}x{tile.width}"
    return c.Function(name, parameters, body, is_contracted=True)


def panel_tile(
    unit: VectorUnit, dtype: str, rows: int, vectors: int, *, indirect: bool = False, fetches: bool = False
) -> c.Function:
    """Return a function that multiplies rows by a panel: ``sums[j][n] = sum over k of a[j][k] * panel[k][n]``.

    Sums are overwritten; they may lie at any address, like the panel.

    C signature: ``(a, a_row_step, panel, depth, sums)``; row ``j`` starts at ``a + j * a_row_step`` and has ``depth``
    factors. Indirect: ``(rows, num_taps, depth, panel, sums)``; row ``j`` is ``num_taps`` runs of ``depth`` factors,
    run ``t`` at ``rows[t * ROWS + j]``, and the panel has ``num_taps * depth`` steps. Where it fetches, ``ahead`` and
    ``ahead_step`` stand before ``sums``: memory wanted soon, and how many of its elements to fetch in each step.

    Args:
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row.
        indirect: whether rows are found through pointers.
        fetches: whether other memory is brought into the second-level cache meanwhile.
    """
    tile = Tile(unit, dtype, rows, vectors)
    ahead, ahead_step = c.Buffer("ahead", dtype), c.Variable("ahead_step")
    a, a_row_step, panel, depth, sums = _operands(dtype)
    name = f"{'rows' if indirect else 'tile'}{'_fetching' if fetches else ''}_{c_suffix(dtype)}_{rows}x{vectors}"
    more = (ahead, ahead_step) if fetches else ()

    def fetch_at(k: c.Expression) -> c.Block:
        return (fetch_line(ahead, k * ahead_step),) if fetches else ()

    width = c.Size(tile.width)
    if not indirect:
        operands = (a, a_row_step, panel, width, depth)
        body = _long_sums(tile, operands, lambda begin: tile.store(sums, width, begin.compare(">", 0)), fetch_at)
        return c.Function(name, (a, a_row_step, panel, depth, *more, sums), body, is_contracted=True)
    pointers, num_taps, t = c.PointerArray("rows", dtype), c.Variable("num_taps"), c.Variable("t")
    room, is_later = c.Variable("room"), c.Variable("is_later", c.BOOL)
    begin, end = c.Variable("begin"), c.Variable("end")
    stored: c.Block = (tile.store(sums, width, is_later),)
    renew = (tile.clear(), c.Assign(room, c.Size(DEPTH_CHUNK)), c.Assign(is_later, c.Literal(True, c.BOOL)))
    run = (
        c.Declare(begin, _ZERO),
        c.While(
            begin.compare("<", depth),
            (
                c.Let(end, c.index_min(depth, begin + room)),
                c.Assign(room, room - (end - begin)),
                *tile.steps(
                    pointers,
                    lambda j: t * rows + j,
                    (begin, end),
                    panel,
                    lambda k: (t * depth + k) * tile.width,
                    lambda k: fetch_at(t * depth + k),
                ),
                c.Assign(begin, end),
                c.If(room.compare("==", 0), (*stored, *renew)),
            ),
        ),
    )
    body = (
        tile.declaration,
        c.Declare(room, c.Size(DEPTH_CHUNK)),
        c.Declare(is_later, c.Literal(False, c.BOOL)),
        tile.clear(),
        c.For(t, _ZERO, num_taps, run),
        tile.store(sums, width, is_later),
    )
    return c.Function(name, (pointers, num_taps, depth, panel, *more, sums), body, is_contracted=True)


def chunk_tile(unit: VectorUnit, dtype: str, rows: int, vectors: int) -> c.Function:
    """Return a function that multiplies a chunk of rows by a chunk of a panel, fetching meanwhile.

    C signature: ``(rows, begin, depth, panel, ahead, ahead_step, sums, adds)``; row ``j`` has its factors at
    ``rows[j] + begin``, ``depth`` of them, at most :data:`DEPTH_CHUNK`. Sums are added to where ``adds`` is true. The
    rest is as in :func:`panel_tile`.
    """
    tile = Tile(unit, dtype, rows, vectors)
    pointers, begin, adds = c.PointerArray("rows", dtype), c.Variable("begin"), c.Variable("adds", c.BOOL)
    ahead, ahead_step = c.Buffer("ahead", dtype), c.Variable("ahead_step")
    _, _, panel, depth, sums = _operands(dtype)
    body = (
        tile.declaration,
        tile.clear(),
        *tile.steps(
            pointers,
            lambda j: j,
            (begin, begin + depth),
            panel,
            lambda k: (k - begin) * tile.width,
            lambda k: (fetch_line(ahead, (k - begin) * ahead_step),),
        ),
        tile.store(sums, c.Size(tile.width), adds),
    )
    parameters = (pointers, begin, depth, panel, ahead, ahead_step, sums, adds)
    return c.Function(f"chunk_{c_suffix(dtype)}_{rows}x{vectors}", parameters, body, is_contracted=True)


def panel_function(
    kernel: Kernel, dtype: str, rows: int, vectors: int, *, indirect: bool = False, fetches: bool = False
) -> str:
    """Return the C name of a :func:`panel_tile` that all kernels of the source share."""
    tile = panel_tile(kernel.unit, dtype, rows, vectors, indirect=indirect, fetches=fetches)
    return kernel.shared_name(tile)


def chunk_function(kernel: Kernel, dtype: str, rows: int, vectors: int) -> str:
    """Return the C name of a :func:`chunk_tile` that all kernels of the source share."""
    return kernel.shared_name(chunk_tile(kernel.unit, dtype, rows, vectors))


_Operands = tuple[c.Buffer, c.Variable, c.Buffer, c.Variable, c.Buffer]


def _operands(dtype: str) -> _Operands:
    """Return the rows, how far apart they lie, a panel, the depth, and the sums."""
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    return c.Buffer("a", dtype), c.Variable("a_row_step"), c.Buffer("panel", dtype), c.Variable("depth"), sums


def _long_sums(
    tile: Tile,
    operands: tuple[c.Buffer, c.Expression, c.Buffer, c.Expression, c.Expression],
    store: Callable[[c.Expression], c.Statement],
    fetch_at: Callable[[c.Expression], c.Block],
) -> c.Block:
    """Return the loop over parts of sums of any length; there is one part where they have no steps."""
    a, a_row_step, panel, panel_step, depth = operands
    begin, end = c.Variable("begin"), c.Variable("end")
    body = (
        c.Let(end, c.index_min(begin + DEPTH_CHUNK, depth)),
        tile.clear(),
        *tile.steps(a, lambda j: j * a_row_step, (begin, end), panel, lambda k: k * panel_step, fetch_at),
        store(begin),
    )
    return (tile.declaration, c.For(begin, _ZERO, c.index_max(depth, 1), body, step=DEPTH_CHUNK))
