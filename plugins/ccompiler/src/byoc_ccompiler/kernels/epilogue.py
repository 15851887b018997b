"""What follows a product or a convolution elementwise, computed while a tile of its sums is at hand.

The sums of a tile are rows x columns. Columns run along the last axis of the result, in which tensors lie without gaps;
rows run over some of the axes before. Loops go along the columns inside, so that a C compiler vectorises them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout, index_term
from byoc_ccompiler.kernels.pointwise import element_of, operand_layout
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["SumsTile", "collapsed_step", "epilogue", "result_place"]

_FIRST = c.Size(0)


@dataclass(frozen=True, slots=True)
class SumsTile:
    """A tile of sums: where it lies, and which part of the result it is.

    The axes of the result are the leading ones, each with an index of its own; then those that the rows run over, in
    row-major order; then the one of the columns, where it has one: else there is one column. The loop over a full
    number of columns, where that is known, is written apart. The first sum lies at ``offset`` in the array, and rows of
    sums lie ``row_step`` elements apart.
    """

    sums: c.Buffer
    row_step: Dim
    first_row: c.Expression
    num_rows: c.Expression
    first_column: c.Expression
    num_columns: c.Expression
    full_columns: int | None = None
    leading: tuple[c.Expression, ...] = ()
    has_columns: bool = True
    offset: c.Expression = _FIRST


def epilogue(kernel: Kernel, tile: SumsTile) -> c.Block:
    """Return the loops that compute what follows the anchor on a tile of its sums, and store what is needed.

    Operands and results may lie in rows (:attr:`~byoc_ccompiler.family.Access.ROWS`).
    """
    return _Epilogue(kernel, tile).block()


def result_place(kernel: Kernel, tile: SumsTile) -> tuple[c.Buffer, c.Expression, Dim] | None:
    """Return the buffer and the offset of where a tile's first sum belongs, and the distance from row to row.

    ``None`` where something follows the sums, or the rows of the result do not lie at equal distances.
    """
    (anchor, *rest) = kernel.group.steps
    space, strides, first = shape_of(anchor.result), kernel.strides(anchor.result), len(tile.leading)
    step = collapsed_step(space[first:-1], space[first:-1], strides[first:-1])
    if rest or not tile.has_columns or step is None:
        return None
    leading = zip(tile.leading, space, space, strides, strict=False)
    offset = sum((index_term(*term) for term in leading), _FIRST) + tile.first_row * step + tile.first_column
    return kernel.target(anchor.result), offset, step


class _Epilogue:
    """The statements of one epilogue: those of each row, and those of each column."""

    def __init__(self, kernel: Kernel, tile: SumsTile) -> None:
        anchor, *steps = kernel.group.steps
        self.tile, self.space = tile, shape_of(anchor.result)
        self.rows = slice(len(tile.leading), len(self.space) - tile.has_columns)
        self.axes = [c.Variable(f"r{axis}") for axis in range(len(self.space))[self.rows]]
        self.row, self.column = c.Variable("m"), c.Variable("j")
        self.sum = c.Variable("sum", c.CType(dtype_of(anchor.result)))
        self.per_row: list[c.Statement] = []
        self.body: list[c.Statement] = []
        known: dict[Value, c.Variable] = {anchor.result: self.sum}
        loaded: dict[tuple[Value, Layout], c.Variable] = {}
        for step in steps:
            values: list[c.Expression] = []
            roles = step.binding.op.operand_names(len(step.operands))
            for index, (operand, role) in enumerate(zip(step.operands, roles, strict=True)):
                value = known.get(operand) or kernel.constant(operand)
                if value is None:
                    key = (operand, operand_layout(kernel, step, index))
                    value = loaded[key] = loaded.get(key) or self._load(key[1], kernel.source(operand, role))
                values.append(value)
            known[step.result] = c.Variable(step.result.name, c.CType(dtype_of(step.result)))
            self.body.append(c.Let(known[step.result], element_of(step, values)))
        for stored in kernel.stored:
            place = self._place(Layout(shape_of(stored), kernel.strides(stored)), kernel.target(stored))
            self.body.append(c.Store(place.buffer, place.index, known[stored]))

    def _load(self, layout: Layout, buffer: c.Buffer) -> c.Variable:
        """Add the load of an operand, in each row or in each column, and return its variable."""
        place = self._place(layout, buffer)
        value = c.Variable(f"{place.buffer.name}_value", place.type)
        (self.per_row if place.buffer is buffer else self.body).append(c.Let(value, place))
        return value

    def _place(self, layout: Layout, buffer: c.Buffer) -> c.Load:
        """Return a value's element; the pointer to a line of it is set up in each row."""
        dims, strides = layout
        axes = zip((*self.tile.leading, *self.axes), dims, self.space, strides, strict=False)
        terms = [index_term(*axis) for axis in axes]
        step = collapsed_step(self.space[self.rows], dims[self.rows], strides[self.rows])
        if step is not None:
            terms[self.rows] = [self.row * step]
        offset = sum(terms, _FIRST)
        if not self.tile.has_columns or dims[-1] == 1:
            return buffer[offset]
        first, column = (index_term(at, dims[-1], self.space[-1], 1) for at in (self.tile.first_column, self.column))
        line = c.Buffer(f"{buffer.name}_line", buffer.dtype, buffer.access)
        self.per_row.append(c.Alias(line, buffer, offset + first))
        return line[column]

    def block(self) -> c.Block:
        """Return the loop over the rows; in each a loop over the columns, one over a full number of them apart."""
        tile, i = self.tile, c.Variable("i")
        line = c.Buffer("line", tile.sums.dtype)
        body = (c.Let(self.sum, line[self.column]), *self.body)
        columns: c.Block = (c.For(self.column, _FIRST, tile.num_columns, body),)
        if tile.full_columns is not None and tile.num_columns != c.Size(tile.full_columns):
            full = c.For(self.column, _FIRST, c.Size(tile.full_columns), body)
            columns = (c.If(tile.num_columns.compare("==", tile.full_columns), (full,), columns),)
        row = (
            c.Let(self.row, tile.first_row + i),
            *map(c.Let, self.axes, c.unravelled(self.row, self.space[self.rows])),
            *self.per_row,
            c.Alias(line, tile.sums, tile.offset + i * tile.row_step),
            *columns,
        )
        return c.drop_unused((c.For(i, _FIRST, tile.num_rows, row),))


def collapsed_step(space: Sequence[Dim], dims: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """Return the distance from row to row where all axes of the rows are as good as one; ``None`` otherwise."""
    step: Dim | None = None
    expected: Dim | None = None
    for size, dim, stride in zip(reversed(space), reversed(dims), reversed(strides), strict=True):
        if size == 1:
            continue
        own = 0 if dim == 1 else stride
        if dim not in (1, size) or (expected is not None and own != expected):
            return None
        step = own if step is None else step
        expected = own * size
    return 0 if step is None else step
