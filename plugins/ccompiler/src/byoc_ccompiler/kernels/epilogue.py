"""What follows a product or a convolution elementwise, computed while a tile of its sums is at hand.

The sums of a tile are rows x columns. Columns run along the last axis of the result, in which tensors lie without gaps;
rows run over some of the axes before. Loops go along the columns inside, so that a C compiler vectorises them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.errors import InternalError
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pointwise import element_statements, operand_dims
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["SumsTile", "collapsed_step", "epilogue", "index_term", "operand_strides", "result_place"]

_FIRST = c.Size(0)


@dataclass(frozen=True, slots=True)
class SumsTile:
    """A tile of sums: where it lies, and which part of the result it is.

    The axes of the result are the leading ones, each with an index of its own; then those that the rows run over, in
    row-major order; then the one of the columns.

    Attributes:
        sums: the array of the sums.
        row_step: elements from one row of sums to the next.
        first_row: the index of the first row.
        num_rows: how many rows there are.
        first_column: the index of the first column.
        num_columns: how many columns there are.
        full_columns: how many there are in most tiles, where that is known: the loop over so many is written apart.
        leading: the indices along the leading axes.
        has_columns: whether the result has an axis of columns; if not, there is one column.
        offset: the offset of the tile's first sum in the array.
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


def operand_strides(shape: Sequence[Dim], strides: Sequence[Dim], dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return an operand's strides along the axes of the space that it broadcasts to, 0 where it does.

    Args:
        shape: the operand's sizes.
        strides: its strides.
        dims: its sizes along the axes of the space.
    """
    rank, own = len(dims), len(shape)
    for front in range(rank - own, -1, -1):
        rest = (*dims[:front], *dims[front + own :])
        if tuple(dims[front : front + own]) == tuple(shape) and all(dim == 1 for dim in rest):
            aligned = (*(0,) * front, *strides, *(0,) * (rank - own - front))
            return tuple(0 if dim == 1 else step for dim, step in zip(dims, aligned, strict=True))
    raise InternalError("epilogue", "an operand does not fit its space", got=tuple(shape), expected=tuple(dims))


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
    if rest or not tile.has_columns:
        return None
    space, strides = shape_of(anchor.result), kernel.strides(anchor.result)
    first = len(tile.leading)
    step = collapsed_step(space[first:-1], space[first:-1], strides[first:-1])
    if step is None:
        return None
    leading = zip(tile.leading, space, strides, strict=False)
    terms = [index_term(index, size, size, stride) for index, size, stride in leading]
    return kernel.target(anchor.result), _sum([*terms, tile.first_row * step, tile.first_column]), step


class _Epilogue:
    """The statements of one epilogue: those before the rows, those of each row, and those of each column."""

    def __init__(self, kernel: Kernel, tile: SumsTile) -> None:
        self.kernel = kernel
        self.tile = tile
        anchor = kernel.group.steps[0]
        self.space = shape_of(anchor.result)
        end = len(self.space) - (1 if tile.has_columns else 0)
        self.row_axes = range(len(tile.leading), end)
        self.row, self.column = c.Variable("m"), c.Variable("j")
        self.axes = {axis: c.Variable(f"r{axis}") for axis in self.row_axes}
        self.sum = c.Variable("sum", c.CType(dtype_of(anchor.result)))
        self.per_tile: list[c.Statement] = []
        self.per_row: list[c.Statement] = []
        self.body: list[c.Statement] = []
        self._add_steps(anchor.result)

    def _add_steps(self, result: Value) -> None:
        kernel = self.kernel
        known: dict[Value, c.Expression] = {result: self.sum}
        loaded: dict[tuple[Value, tuple[Dim, ...]], c.Expression] = {}
        for step in kernel.group.steps[1:]:
            at_hand = dict(known)
            roles = step.binding.op.operand_names(len(step.operands))
            for operand, dims, role in zip(step.operands, operand_dims(step), roles, strict=True):
                if operand in at_hand or kernel.constant(operand) is not None:
                    continue
                key = (operand, dims)
                if key not in loaded:
                    loaded[key] = self._load(operand, dims, role)
                at_hand[operand] = loaded[key]
            self.body += element_statements(kernel, [step], _never, at_hand)
            known[step.result] = at_hand[step.result]
        for value in kernel.stored:
            place = self._place(value, shape_of(value), kernel.target(value))
            self.body.append(c.Store(place.buffer, place.index, known[value]))

    def _load(self, operand: Value, dims: tuple[Dim, ...], role: str) -> c.Variable:
        """Add the load of an operand, before the rows, in each row or in each column, and return its variable."""
        place = self._place(operand, dims, self.kernel.source(operand, role))
        value = c.Variable(f"{place.buffer.name}_value", place.type)
        is_single = not self.tile.has_columns or dims[-1] == 1
        (self._setup(place.index) if is_single else self.body).append(c.Let(value, place))
        return value

    def _place(self, value: Value, dims: tuple[Dim, ...], buffer: c.Buffer) -> c.Load:
        """Return a value's element; the pointer to a line of it is set up before the rows or in each row."""
        tile = self.tile
        strides = operand_strides(shape_of(value), self.kernel.strides(value), dims)
        offset = self._row_offset(dims, strides)
        if not tile.has_columns or dims[-1] == 1:
            return buffer[offset]
        offset = offset + self._column(dims, tile.first_column)
        line = c.Buffer(f"{buffer.name}_line", buffer.dtype, buffer.access)
        self._setup(offset).append(c.Alias(line, buffer, offset))
        return line[self._column(dims, self.column)]

    def _column(self, dims: tuple[Dim, ...], index: c.Expression) -> c.Expression:
        return index_term(index, dims[-1], self.space[-1], 1)

    def _setup(self, expression: c.Expression) -> list[c.Statement]:
        """Return the statements before the loop in which an expression is known."""
        is_of_row = any(item in (self.row, *self.axes.values()) for item in c.variables_in(expression))
        return self.per_row if is_of_row else self.per_tile

    def _row_offset(self, dims: tuple[Dim, ...], strides: tuple[Dim, ...]) -> c.Expression:
        """Return the offset of a row's first element."""
        leading = zip(self.tile.leading, dims, self.space, strides, strict=False)
        terms = [index_term(*term) for term in leading]
        axes = self.row_axes
        step = collapsed_step([self.space[axis] for axis in axes], [dims[a] for a in axes], [strides[a] for a in axes])
        if step is not None:
            return _sum([*terms, self.row * step])
        return _sum([*terms, *(index_term(self.axes[a], dims[a], self.space[a], strides[a]) for a in axes)])

    def block(self) -> c.Block:
        """Return all of it."""
        tile, i = self.tile, c.Variable("i")
        line = c.Buffer("line", tile.sums.dtype)
        places = c.unravelled(self.row, [self.space[axis] for axis in self.row_axes])
        row = (
            c.Let(self.row, tile.first_row + i),
            *(c.Let(index, place) for index, place in zip(self.axes.values(), places, strict=True)),
            *self.per_row,
            c.Alias(line, tile.sums, tile.offset + i * tile.row_step),
            *self._columns(line),
        )
        return c.drop_unused((*self.per_tile, c.For(i, c.Size(0), tile.num_rows, row)))

    def _columns(self, line: c.Buffer) -> c.Block:
        """Return the loop over the columns, and before it the one over a full number of them."""
        tile = self.tile
        body = (c.Let(self.sum, line[self.column]), *self.body)
        any_number = c.For(self.column, c.Size(0), tile.num_columns, body)
        if tile.full_columns is None or tile.num_columns == c.Size(tile.full_columns):
            return (any_number,)
        full = c.For(self.column, c.Size(0), c.Size(tile.full_columns), body)
        return (c.If(tile.num_columns.compare("==", tile.full_columns), (full,), (any_number,)),)


def _never(step: object, index: int) -> c.Expression:
    raise InternalError("epilogue", "an operand was not loaded", got=index)


def _sum(terms: Iterable[c.Expression]) -> c.Expression:
    whole: c.Expression = c.Size(0)
    for term in terms:
        whole = whole + term
    return whole


def index_term(index: c.Expression, dim: Dim, size: Dim, stride: Dim) -> c.Expression:
    """Return what an index adds to an offset, for an axis of ``dim`` elements beside ``size`` of the result."""
    if dim == 1 or stride == 0:
        return c.Size(0)
    term = index * stride
    # A symbolic size that is not the result's own may turn out to be 1: then it broadcasts.
    return term if dim == size else c.Select(c.Size(dim).compare("==", 1), c.Size(0), term)


def collapsed_step(space: Sequence[Dim], dims: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """Return the distance from row to row where all axes of the rows are as good as one; ``None`` otherwise."""
    step: Dim | None = None
    expected: Dim = 0
    for size, dim, stride in zip(reversed(space), reversed(dims), reversed(strides), strict=True):
        if size == 1:
            continue
        if dim != size and dim != 1:
            return None
        if step is None:
            step = stride
        elif stride != expected:
            return None
        expected = stride * size
    return 0 if step is None else step
