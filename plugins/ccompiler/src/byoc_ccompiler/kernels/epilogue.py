"""The elementwise epilogue of a product or a convolution, computed while a tile of sums is at hand.

The sums of a tile are rows x columns. Columns run along the last axis of the result, contiguous in all tensors; rows
run over some of the axes before. The inner loops run along the columns, for vectorisation by a C compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout, index_term
from byoc_ccompiler.kernels.pointwise import operand_layout, step_statement
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["SumsTile", "collapsed_step", "epilogue", "result_location"]

_FIRST = c.Size(0)


@dataclass(frozen=True, slots=True)
class SumsTile:
    """A tile of sums: its memory, and its part of the result.

    The axes of the result are first the leading axes, each with a separate index; then the row axes, in row-major
    order; then the column axis, if any: else there is one column. The loop over a full number of columns, if known, is
    written separately; any other tile has ``fewer_columns``, if known. The first sum lies at ``offset`` in the array,
    and rows of sums lie ``row_step`` elements apart.
    """

    sums: c.Buffer
    row_step: Dim
    first_row: c.Expression
    num_rows: c.Expression
    first_column: c.Expression
    num_columns: c.Expression
    full_columns: int | None = None
    fewer_columns: int | None = None
    leading: tuple[c.Expression, ...] = ()
    has_columns: bool = True
    offset: c.Expression = _FIRST


def epilogue(kernel: Kernel, tile: SumsTile) -> c.Block:
    """Return the loops computing the epilogue of the anchor on a tile of sums, and storing the needed values.

    Operands and results may lie in rows (:attr:`~byoc_ccompiler.family.Access.ROWS`).
    """
    anchor, *steps = kernel.group.steps
    space, line = shape_of(anchor.result), c.Buffer("line", tile.sums.dtype)
    rows = slice(len(tile.leading), len(space) - tile.has_columns)
    axes = [c.Variable(f"r{axis}") for axis in range(len(space))[rows]]
    i, row, column = map(c.Variable, ("i", "m", "j"))
    total = c.Variable("sum", c.CType(dtype_of(anchor.result)))
    expressions: dict[Value, c.Expression] = {anchor.result: total}
    loaded: dict[tuple[Value, Layout], c.Variable] = {}
    per_row: list[c.Statement] = []
    body: list[c.Statement] = [c.Let(total, line[column])]

    def locate_element(layout: Layout, buffer: c.Buffer) -> c.Load:
        """Return a value's element; the pointer to a line is set up in each row."""
        dims, strides = layout
        terms = [*map(index_term, (*tile.leading, *axes), dims, space, strides)]
        step = collapsed_step(space[rows], dims[rows], strides[rows])
        if step is not None:
            terms[rows] = [row * step]
        offset = sum(terms, _FIRST)
        if not tile.has_columns or dims[-1] == 1:
            return buffer[offset]
        first, at = (index_term(index, dims[-1], space[-1], 1) for index in (tile.first_column, column))
        part = c.Buffer(f"{buffer.name}_line", buffer.dtype, buffer.access)
        per_row.append(c.Alias(part, buffer, offset + first))
        return part[at]

    def load(step: Step, index: int, buffer: c.Buffer) -> c.Variable:
        """Add the load of an operand, in each row or in each column, and return the variable of the load."""
        key = (step.operands[index], operand_layout(kernel, step, index))
        if key not in loaded:
            element = locate_element(key[1], buffer)
            loaded[key] = c.Variable(f"{element.buffer.name}_value", element.type)
            (per_row if element.buffer is buffer else body).append(c.Let(loaded[key], element))
        return loaded[key]

    for step in steps:
        # The loads of a step stand before the step.
        statement = step_statement(kernel, step, expressions, load)
        body.append(statement)
    for stored in kernel.stored:
        element = locate_element(Layout(shape_of(stored), kernel.strides(stored)), kernel.target(stored))
        body.append(c.Store(element.buffer, element.index, expressions[stored]))
    lets = (c.Let(row, tile.first_row + i), *map(c.Let, axes, c.unravelled(row, space[rows])), *per_row)

    def each_row(num_columns: c.Expression, kind: c.LoopKind = c.LoopKind.SERIAL) -> c.For:
        columns = c.For(column, _FIRST, num_columns, tuple(body), kind=kind)
        line_of_row = c.Alias(line, tile.sums, tile.offset + i * tile.row_step)
        return c.For(i, _FIRST, tile.num_rows, (*lets, line_of_row, columns))

    return c.drop_unused(_by_columns(tile, each_row))


def _by_columns(tile: SumsTile, each_row: Callable[..., c.For]) -> c.Block:
    """Return the loops over the rows of a full tile and of any other; a compiler sees known numbers of columns.

    Of two loops over columns in one loop over rows, gcc vectorises neither. A short loop is marked: gcc would unroll
    the loop first.
    """
    if tile.full_columns is None or tile.num_columns == c.Size(tile.full_columns):
        return (each_row(tile.num_columns),)
    full = each_row(c.Size(tile.full_columns))
    if tile.fewer_columns is None:
        fewer = each_row(tile.num_columns)
    elif tile.fewer_columns == 0:
        return (full,)
    else:
        fewer = each_row(c.Size(tile.fewer_columns), c.LoopKind.VECTOR)
    return (c.If(tile.num_columns.compare("==", tile.full_columns), (full,), (fewer,)),)


def result_location(kernel: Kernel, tile: SumsTile) -> tuple[c.Buffer, c.Expression, Dim] | None:
    """Return the buffer and the offset of a tile's first sum in the result, and the distance from row to row.

    ``None`` if the sums have an epilogue, or the rows of the result do not lie at equal distances.
    """
    (anchor, *rest) = kernel.group.steps
    space, strides, first = shape_of(anchor.result), kernel.strides(anchor.result), len(tile.leading)
    step = collapsed_step(space[first:-1], space[first:-1], strides[first:-1])
    if rest or not tile.has_columns or step is None:
        return None
    leading = sum(map(index_term, tile.leading, space, space, strides), _FIRST)
    return kernel.target(anchor.result), leading + tile.first_row * step + tile.first_column, step


def collapsed_step(space: Sequence[Dim], dims: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """Return the distance from row to row if all row axes are equivalent to a single axis; ``None`` otherwise."""
    step: Dim | None = None
    expected: Dim | None = None
    for size, dim, stride in zip(reversed(space), reversed(dims), reversed(strides), strict=True):
        if size == 1:
            continue
        own = 0 if dim == 1 else stride
        if dim not in (1, size) or expected not in (None, own):
            return None
        step, expected = own if step is None else step, own * size
    return 0 if step is None else step
