"""Products by panels: the right operand rearranged once for register tiles, and read from the cache by all rows.

A panel holds the columns computed by a register tile at a time: the columns of a step of the sums lie side by side,
step after step. Constant weights are rearranged during code generation, others by each call, in scratch memory;
products of small matrices or few rows read the operand in place. Long sums are cut: a part of a panel stays in the
cache while many rows pass, and the partial sums wait in a small array. While rows pass, the next part is prefetched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim, ceildiv, product
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue, result_location
from byoc_ccompiler.kernels.panel_order import PanelOrder
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.kernels.product_schedules import PanelSchedule, RightOperand, check_laws
from byoc_ccompiler.kernels.tiles import in_lanes, multiply
from byoc_ccompiler.kernels.transposes import turn_function

__all__ = ["PanelKernel", "block_function", "pack_function", "packed_panels"]

_ZERO = c.Size(0)


def block_function(
    kernel: Kernel, dtype: str, vectors: int, num_rows: Collection[int], *, strided: bool, fetch_rows: int | None = 0
) -> c.Callee:
    """Return a function multiplying rows by a panel of ``vectors`` vectors, for the given row counts (else any).

    C signature: ``(a, a_row_step, panel, [panel_step,] depth, num_rows, sums, pitch, adds, [ahead, [ahead_rows]])``.
    The function sets ``sums[j * pitch + n]``, or adds to it if ``adds`` is true. Meanwhile the function prefetches the
    memory ``ahead`` elements behind the panel's beginning, as much as the panel takes over ``fetch_rows`` rows. If
    ``None``, the parameter ``ahead_rows`` is this number of rows, above 0; if 0, the function prefetches nothing.
    """
    width, rows = vectors * kernel.unit.lanes(dtype), kernel.unit.panel_rows(vectors)
    counts = {count for number in num_rows for count in (number % rows, rows if number >= rows else 0)} - {0}
    counts = counts or set(range(1, rows + 1))
    fewer = sorted(counts - {rows}, reverse=True)
    a, panel = c.Buffer("a", dtype), c.Buffer("panel", dtype)
    sums, adds = c.Buffer("sums", dtype, c.MemoryAccess.WRITE), c.Variable("adds", c.BOOL)
    a_row_step, panel_step, depth, row_count, pitch = c.variables("a_row_step panel_step depth num_rows pitch")
    ahead, ahead_rows, full_rows, row = c.variables("ahead ahead_rows full_rows row")

    def of_rows(count: int, first: c.Expression) -> c.Statement:
        left, panel_row = (c.Address(a, first * a_row_step), a_row_step), panel_step if strided else None
        at, first_sum = c.Address(panel, _ZERO), c.Address(sums, first * pitch)
        fetched: tuple[c.Expression, ...] = ()
        if fetch_rows is None:
            step = (ahead_rows + (count * width - 1)) // ahead_rows
            fetched = (at, ahead + first * (depth * width) // ahead_rows, step)
        elif fetch_rows:
            fetched = (at, ahead + first * (depth * width) // fetch_rows, c.Size(ceildiv(count * width, fetch_rows)))
        shape = (count, vectors)
        return multiply(
            kernel, shape, left, at, depth, first_sum, pitch=pitch, adds=adds, ahead=fetched, panel_step=panel_row
        )

    body = (
        c.Let(full_rows, row_count // rows * rows),
        *((c.For(row, _ZERO, full_rows, (of_rows(rows, row),), step=rows),) if rows in counts else ()),
        *(c.If((row_count - full_rows).compare("==", count), (of_rows(count, full_rows),)) for count in fewer),
    )
    source = (panel_step, depth) if strided else (depth,)
    fetching = (ahead, ahead_rows) if fetch_rows is None else (ahead,) if fetch_rows else ()
    parameters = (a, a_row_step, panel, *source, row_count, sums, pitch, adds, *fetching)
    kind = ("strided_" if strided else "") + (f"fetching_{fetch_rows or ''}_" if fetching else "")
    name = f"rows_{kind}{c_suffix(dtype)}_{width}"
    return kernel.shared_function(c.Function(name, parameters, body))


def pack_function(kernel: Kernel, dtype: str, width: int) -> c.Callee:
    """Return a function copying columns of a matrix into a panel of ``width``, padded with zeros.

    C signature: ``(from, row_step, column_step, depth, num_columns, panel)``.
    """
    lanes, turn = kernel.unit.lanes(dtype), kernel.shared_function(turn_function(kernel.unit, dtype))
    from_, panel = c.Buffer("from", dtype), c.Buffer("panel", dtype, c.MemoryAccess.WRITE)
    row_step, column_step, depth, num_columns = c.variables("row_step column_step depth num_columns")
    n, j, column, turned, end, row, k, rest = c.variables("n j column turned end k k k")
    zero = c.Literal(0, c.CType(dtype))
    copy = c.Copy(panel, row * width, from_, row * row_step, c.Size(width))
    padded = c.Select(column.compare("<", num_columns), from_[row * row_step + column], zero)
    few = c.For(column, _ZERO, c.Size(width), (c.Store(panel, row * width + column, padded),))
    lines = c.For(row, _ZERO, depth, (c.If(num_columns.compare("==", width), (copy,), (few,)),))
    turns = c.Binary("&&", row_step.compare("==", 1), (n + lanes).compare("<=", num_columns))
    square = (c.Address(from_, n * column_step + k), column_step, c.Address(panel, k * width + n), c.Size(width))
    element = from_[rest * row_step + j * column_step]
    columns = (
        c.Let(turned, c.Select(turns, depth // lanes * lanes, _ZERO)),
        c.For(k, _ZERO, turned, (c.Evaluate(c.Call(turn, square)),), step=lanes),
        c.Let(end, c.index_min(n + lanes, num_columns)),
        c.For(
            rest,
            turned,
            depth,
            (
                c.Store(panel, rest * width + n, in_lanes(zero, lanes)),
                c.For(j, n, end, (c.Store(panel, rest * width + j, element),)),
            ),
        ),
    )
    apart = c.For(n, _ZERO, c.Size(width), columns, step=lanes)
    body = (c.If(column_step.compare("==", 1), (lines,), (apart,)),)
    parameters = (from_, row_step, column_step, depth, num_columns, panel)
    return kernel.shared_function(c.Function(f"pack_{c_suffix(dtype)}_{width}", parameters, body))


def packed_panels(matrix: NDArray, width: int, lanes: int) -> NDArray:
    """Return a matrix ``(depth, columns)`` in successive panels; zeros fill the last up to a vector."""
    steps = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % lanes)))
    panels = [steps[:, n : n + width].reshape(-1) for n in range(0, steps.shape[1], width)]
    return np.concatenate(panels) if panels else np.zeros(0, matrix.dtype)


class PanelKernel:
    """A kernel of a product of floats with an elementwise epilogue: an item is a panel and its rows."""

    def __init__(self, kernel: Kernel, p: Product, schedule: PanelSchedule) -> None:
        right = schedule.right
        check_laws(schedule.laws(p, kernel.unit))
        self.kernel, self.p, self.schedule, self.lanes = kernel, p, schedule, kernel.unit.lanes(p.dtype)
        # Columns of a panel, of the panels of an item, and of a last item known to have fewer vectors; else 0.
        self.panel_width = schedule.vectors * self.lanes
        self.width = self.panel_width * schedule.panels_at_once
        self.tail = -(-(p.known_columns or 0) // self.lanes) * self.lanes % self.width
        self.num_panels = ceildiv(p.num_columns, self.width)
        self.item, self.b, self.n0, self.n_count = c.variables("item b n0 n_count")
        self.m_begin, self.m_end, self.panel_step = c.variables("m_begin m_end panel_step")
        self.rows, self.matrix, self.panel = (c.Buffer(name, p.dtype) for name in ("left", "right", "panel"))
        # The last columns may not fill a vector; a known tail has separate tiles.
        rest = self.n_count % self.lanes
        self.is_ragged = self.n_count.compare("<", self.width) if p.known_columns is None else rest.compare("!=", 0)
        self.is_in_place, self.left = right is RightOperand.IN_PLACE, kernel.source(p.left.value, "x")
        operand, weights = p.right.value, p.weight_matrix(kernel)
        if right is RightOperand.CONSTANT and weights is not None:
            operand = kernel.scope.constants.derive(packed_panels(weights, self.panel_width, self.lanes))
        elif right is RightOperand.CONSTANT:
            order = PanelOrder(int(str(p.depth)), int(str(p.num_columns)), self.panel_width, p.right.row_step == 1)
            kernel.context.panel_orders[operand] = order
        self.right = kernel.source(operand, "weights")

    def block(self) -> c.Block:
        """Return the loops."""
        p, outer, batch = self.p, self.schedule.outer, product(self.p.batch)
        num_outer, packs_apart = ceildiv(p.num_rows, outer), self.schedule.right is RightOperand.PACKED_APART
        scratch = None
        if packs_apart or self.schedule.packs_inside(p, self.kernel.unit):
            num_panels = 1 if self.is_in_place else self.num_panels
            scratch = self.kernel.scratch_memory(batch * num_panels * self.width * p.depth, p.dtype)
        position, indices = p.position(self.b)
        b, part, _ = c.unravelled(self.item, (batch, num_outer, self.num_panels))
        body = (
            c.Let(self.b, b),
            *position,
            c.Let(self.m_begin, part * outer),
            c.Let(self.m_end, c.index_min(self.m_begin + outer, p.num_rows)),
            c.Alias(self.rows, self.left, p.left.offset(p.batch, indices)),
            c.Alias(self.matrix, self.right, p.right.offset(p.batch, indices)),
            *self._panel(scratch),
            self._chunks(indices),
        )
        loop = self._loop(batch * num_outer * self.num_panels, body)
        if scratch is None or not packs_apart:
            return loop
        packing = (c.Alias(self.matrix, self.right, _ZERO), *self._pack(scratch, self.n0 * p.depth))
        return self._loop(self.num_panels, packing) + loop

    def _loop(self, count: Dim, body: c.Block) -> c.Block:
        """Return the loop over items, with the columns of the item's panel."""
        n_count = c.index_min(c.Size(self.width), c.Size(self.p.num_columns) - self.n0)
        columns = (c.Let(self.n0, self.item % self.num_panels * self.width), c.Let(self.n_count, n_count))
        return loops_around((*columns, *body), (self.item,), (count,), part=0)

    def _by_width(self, body: Callable[[int], c.Block]) -> c.Block:
        """Return the statements for the columns of a whole item, or of a narrower last item."""
        full, is_full = body(self.width), self.n_count.compare(">", self.tail)
        return (c.If(is_full, full, body(self.tail)),) if self.tail else full

    def _pack(self, to: c.Buffer, offset: c.Expression) -> c.Block:
        right = self.p.right
        steps = (c.Size(right.row_step), c.Size(right.column_step), c.Size(self.p.depth))
        operands = (c.Address(self.matrix, self.n0 * right.column_step), *steps, self.n_count, c.Address(to, offset))

        def pack(width: int) -> c.Block:
            return (c.Evaluate(c.Call(pack_function(self.kernel, to.dtype, width), operands)),)

        return self._by_width(pack)

    def _panel(self, scratch: c.Buffer | None) -> c.Block:
        """Return the statements locating the panel of an item, and packing the panel if needed."""
        p, right, row_step = self.p, self.schedule.right, c.Size(self.p.right.row_step)
        if right is RightOperand.CONSTANT:
            return (c.Alias(self.panel, self.right, self.n0 * p.depth),)
        if scratch is None:
            return (c.Alias(self.panel, self.matrix, self.n0), c.Let(self.panel_step, row_step))
        if not self.is_in_place:
            offset = (self.b * (self.num_panels * self.width) + self.n0) * p.depth
            pack = self._pack(scratch, offset) if right is RightOperand.PACKED else ()
            return (*pack, c.Alias(self.panel, scratch, offset))
        in_place, packed = c.Buffer("columns", p.dtype), c.Buffer("packed", p.dtype, c.MemoryAccess.WRITE)
        is_full, width = self.n_count.compare(">", self.tail), c.Size(self.width)
        step = c.Select(is_full, width, c.Size(self.tail)) if self.tail else width
        return (
            c.Alias(in_place, self.matrix, self.n0),
            c.Alias(packed, scratch, self.b * (p.depth * self.width)),
            c.If(self.is_ragged, self._pack(packed, _ZERO)),
            c.Alias(self.panel, packed, _ZERO, self.is_ragged, in_place),
            c.Let(self.panel_step, c.Select(self.is_ragged, step, row_step)),
        )

    def _chunks(self, indices: tuple[c.Variable, ...]) -> c.For:
        """Return the loop over the rows of an item: their sums, part by part, and the epilogue."""
        (m0, m_count), chunk = c.variables("m0 m_count"), self.schedule.chunk
        sums = c.Buffer("sums", self.p.dtype, c.MemoryAccess.WRITE, chunk * self.width)
        is_even = self.p.known_columns is not None and self.p.known_columns % self.width == 0
        fewer = None if self.p.known_columns is None else self.p.known_columns % self.width
        columns = (self.n0, c.Size(self.width) if is_even else self.n_count, self.width, fewer)
        tile = SumsTile(sums, self.width, m0, m_count, *columns, indices, self.p.has_columns)
        body: c.Block = (c.LocalArray(sums), *self._sums(m0, m_count, sums, _ZERO, self.width))
        body = (*body, *epilogue(self.kernel, tile))
        # Without an epilogue, whole vectors of sums go straight to the result, and stay there until complete.
        location = result_location(self.kernel, tile)
        if location is not None:
            direct = self._sums(m0, m_count, *location)
            body = (c.If(self.is_ragged, body, direct),) if self.p.has_ragged_columns(self.lanes) else direct
        body = (c.Let(m_count, c.index_min(c.Size(chunk), self.m_end - m0)), *body)
        return c.For(m0, self.m_begin, self.m_end, body, step=chunk)

    def _fetch_rows(self) -> int | None:
        """Return the rows that together prefetch the next part of a panel, 0 for no prefetching, ``None`` if not known.

        These are the rows of a chunk if a panel has several parts, else all rows of an item.
        """
        if not self.schedule.fetches:
            return 0
        most = self.schedule.outer if self.schedule.depth_block is None else self.schedule.chunk
        num_rows = self.p.known_rows
        return None if num_rows is None or not isinstance(most, int) else min(num_rows, most)

    def _sums(self, m0: c.Expression, m_count: c.Expression, to: c.Buffer, offset: c.Expression, pitch: Dim) -> c.Block:
        """Return the statements summing up a chunk of rows, into memory with rows ``pitch`` apart."""
        p, depth, chunk, block = self.p, c.Size(self.p.depth), self.schedule.chunk, self.schedule.depth_block
        rows: set[int] = set() if p.known_rows is None else {chunk, p.known_rows % chunk}
        strided, fetch_rows = (self.panel_step,) if self.is_in_place else (), self._fetch_rows()

        def of_panel(k0: c.Expression, k_count: c.Expression, width: int) -> c.Block:
            function = block_function(
                self.kernel, p.dtype, width // self.lanes, rows, strided=self.is_in_place, fetch_rows=fetch_rows
            )
            left = (c.Address(self.rows, m0 * p.left.row_step + k0), c.Size(p.left.row_step))
            panel = c.Address(self.panel, k0 * (self.panel_step if self.is_in_place else c.Size(width)))
            target = (c.Address(to, offset), c.Size(pitch), k0.compare(">", 0))
            ahead: tuple[c.Expression, ...] = ()
            if fetch_rows != 0:
                rows_at_once = self.m_end - self.m_begin if block is None else m_count
                share = rows_at_once if fetch_rows is None else c.Size(fetch_rows)
                # The rows of the item before the chunk have prefetched their share of a whole next panel.
                done = (m0 - self.m_begin) * (depth * width) // share if block is None else _ZERO
                ahead = (k_count * width + done, *((share,) if fetch_rows is None else ()))
            return (c.Evaluate(c.Call(function, (*left, panel, *strided, k_count, m_count, *target, *ahead))),)

        def of_panels(width: int) -> c.Block:
            """Return the products with all panels of an item: with the whole panels at once, then with a narrower."""
            full_panels = width // self.panel_width
            first_narrow = full_panels * self.panel_width
            left = (c.Address(self.rows, m0 * p.left.row_step), c.Size(p.left.row_step))

            def products(vectors: int, first: int, panels: int) -> c.Block:
                at, target = c.Address(self.panel, first * depth), c.Address(to, offset + first)
                if vectors * panels == 0:
                    return ()
                shape = (int(str(p.known_rows)), vectors)
                return (multiply(self.kernel, shape, left, at, depth, target, pitch=c.Size(pitch), panels=panels),)

            narrow = products((width - first_narrow) // self.lanes, first_narrow, 1)
            return (*products(self.schedule.vectors, 0, full_panels), *narrow)

        if self.schedule.panels_at_once > 1:
            return self._by_width(of_panels)
        if block is None:
            return self._by_width(partial(of_panel, _ZERO, depth))
        k0, k_count = c.variables("k0 k_count")
        count = c.Let(k_count, c.index_min(c.Size(block), depth - k0))
        steps = self._by_width(partial(of_panel, k0, k_count))
        return (c.For(k0, _ZERO, c.index_max(depth, 1), (count, *steps), step=block),)
