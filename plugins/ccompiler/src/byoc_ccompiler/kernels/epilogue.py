"""What follows a product or a convolution elementwise, computed while a tile of its sums is at hand.

The sums of a tile are rows x columns. Columns run along the last axis of the result, in which tensors lie without gaps;
rows run over some of the axes before. Loops go along the columns inside, so that a C compiler vectorises them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource import c_dim
from byoc_core.dims import Dim, product
from byoc_core.errors import InternalError
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pointwise import operand_dims, pointwise_lines
from byoc_ccompiler.steps import shape_of

__all__ = [
    "SumsTile",
    "collapsed_step",
    "epilogue_lines",
    "index_term",
    "operand_strides",
    "reserve_epilogue_names",
    "result_place",
    "unravel",
]


@dataclass(frozen=True, slots=True)
class SumsTile:
    """A tile of sums, in C: where it lies, and which part of the result it is.

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
    """

    sums: str
    row_step: str
    first_row: str
    num_rows: str
    first_column: str
    num_columns: str
    full_columns: int | None = None
    leading: tuple[str, ...] = ()
    has_columns: bool = True


def operand_strides(shape: Sequence[Dim], strides: Sequence[Dim], dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Gives an operand's strides along the axes of the space that it broadcasts to, 0 where it does.

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


def unravel(index: str, sizes: Sequence[Dim]) -> list[str]:
    """Gives the position along each axis from a row-major index."""
    expressions = []
    for axis in range(len(sizes)):
        inner = product(sizes[axis + 1 :])
        text = index if inner == 1 else f"{index} / {c_dim(inner)}"
        if axis == 0:
            expressions.append(text if inner == 1 else f"({text})")
        else:
            expressions.append("0" if sizes[axis] == 1 else f"({text} % {c_dim(sizes[axis])})")
    return expressions


def reserve_epilogue_names(kernel: Kernel) -> None:
    """Keeps the C names of an epilogue from a kernel's pointers; called before the first of them gets its name."""
    rank = len(shape_of(kernel.group.steps[0].result))
    kernel.names.reserve(["i", "j", "m", "sum", "line", *(f"r{axis}" for axis in range(rank))])


def epilogue_lines(kernel: Kernel, tile: SumsTile, indent: str = "") -> list[str]:
    """Gives the loops that compute what follows the anchor on a tile of its sums, and store what is needed.

    They declare variables beside the outermost loop, and so want a block of their own. Operands and results may lie in
    rows (:attr:`~byoc_ccompiler.family.Access.ROWS`).
    """
    return [indent + line for line in _Epilogue(kernel, tile).lines()]


def result_place(kernel: Kernel, tile: SumsTile) -> tuple[str, str] | None:
    """Gives the C expression of where a tile's first sum belongs, and of the distance from row to row.

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
    row = "" if step == 0 else tile.first_row if step == 1 else f"{tile.first_row} * {c_dim(step)}"
    terms += [row, "" if tile.first_column == "0" else tile.first_column]
    return " + ".join([kernel.output(anchor.result), *(term for term in terms if term)]), c_dim(step)


class _Epilogue:
    """The text of one epilogue: what is set up for all rows, what for each row, and what is done in each column."""

    def __init__(self, kernel: Kernel, tile: SumsTile) -> None:
        self.kernel = kernel
        self.tile = tile
        anchor = kernel.group.steps[0]
        self.space = shape_of(anchor.result)
        end = len(self.space) - (1 if tile.has_columns else 0)
        self.row_axes = range(len(tile.leading), end)
        self.per_tile: list[str] = []
        self.per_row: list[str] = []
        self.body: list[str] = []
        self._places: dict[tuple[Value, tuple[Dim, ...]], str] = {}
        self._known: dict[Value, str] = {anchor.result: "sum"}
        self._add_steps()

    def _add_steps(self) -> None:
        kernel = self.kernel
        loaded: dict[tuple[Value, tuple[Dim, ...]], str] = {}
        for step in kernel.group.steps[1:]:
            at_hand = dict(self._known)
            roles = step.binding.op.operand_names(len(step.operands))
            for operand, dims, role in zip(step.operands, operand_dims(step), roles, strict=True):
                if operand in at_hand or kernel.literal(operand) is not None:
                    continue
                key = (operand, dims)
                if key not in loaded:
                    loaded[key] = self._load(operand, dims, role)
                at_hand[operand] = loaded[key]
            self.body += pointwise_lines(kernel, [step], _never, at_hand)
            self._known[step.result] = at_hand[step.result]
        for value in kernel.stored:
            place = self._place(value, shape_of(value), kernel.output(value), is_stored=True)
            self.body.append(f"{place} = {self._known[value]};")

    def _load(self, operand: Value, dims: tuple[Dim, ...], role: str) -> str:
        """Adds the load of an operand, for each row or each column, and gives its name."""
        pointer = self.kernel.input(operand, role)
        name = self.kernel.names.unique(f"{pointer}_value")
        place = self._place(operand, dims, pointer, is_stored=False)
        lines = self.body if place.endswith("]") else self._setup(place)
        lines.append(f"const {self.kernel.ctype(operand)} {name} = {place};")
        return name

    def _place(self, value: Value, dims: tuple[Dim, ...], pointer: str, *, is_stored: bool) -> str:
        """Gives the C expression of a value's element; what it needs is set up for the row or the tile."""
        kernel, tile = self.kernel, self.tile
        strides = operand_strides(shape_of(value), kernel.strides(value), dims)
        offset = self._row_offset(dims, strides)
        is_single = not tile.has_columns or dims[-1] == 1
        if not is_single and tile.first_column != "0":
            first = self._column(dims, tile.first_column)
            offset = f"{offset} + {first}" if offset else first
        if is_single and not is_stored:
            return f"*({pointer} + {offset})" if offset else f"*{pointer}"
        line = kernel.names.unique(f"{pointer}_line")
        const = "" if is_stored else "const "
        place = f"{pointer} + {offset}" if offset else pointer
        self._setup(offset).append(f"{const}{kernel.ctype(value)} *{line} = {place};")
        return f"{line}[{'0' if is_single else self._column(dims, 'j')}]"

    def _column(self, dims: tuple[Dim, ...], index: str) -> str:
        # A symbolic size that is not the result's own may turn out to be 1: then it broadcasts.
        return index if dims[-1] == self.space[-1] else f"({c_dim(dims[-1])} == 1 ? 0 : {index})"

    def _setup(self, expression: str) -> list[str]:
        """Gives the lines before the loop in which an expression is known."""
        return self.per_row if re.search(r"\b(m|r\d+)\b", expression) else self.per_tile

    def _row_offset(self, dims: tuple[Dim, ...], strides: tuple[Dim, ...]) -> str:
        """Gives the offset of a row's first element, empty for 0."""
        axes = self.row_axes
        terms = [
            index_term(index, dims[axis], self.space[axis], strides[axis])
            for axis, index in enumerate(self.tile.leading)
        ]
        step = collapsed_step([self.space[axis] for axis in axes], [dims[a] for a in axes], [strides[a] for a in axes])
        if step is not None:
            terms.append("" if step == 0 else "m" if step == 1 else f"m * {c_dim(step)}")
        else:
            terms += [index_term(f"r{axis}", dims[axis], self.space[axis], strides[axis]) for axis in axes]
        return " + ".join(term for term in terms if term)

    def lines(self) -> list[str]:
        """Gives all of it."""
        tile = self.tile
        ctype = self.kernel.ctype(self.kernel.group.steps[0].result)
        words = set(re.findall(r"\w+", " ".join(self.per_row)))
        sizes = [self.space[axis] for axis in self.row_axes]
        indices = {f"r{axis}": text for axis, text in zip(self.row_axes, unravel("m", sizes), strict=True)}
        unravelled = [f"  const int64_t {name} = {text};" for name, text in indices.items() if name in words]
        needs_row = "m" in words or unravelled
        return [
            *self.per_tile,
            f"for (int64_t i = 0; i < {tile.num_rows}; ++i) {{",
            *([f"  const int64_t m = {_sum(tile.first_row, 'i')};"] if needs_row else []),
            *unravelled,
            *(f"  {line}" for line in self.per_row),
            f"  const {ctype} *line = {tile.sums} + i * {tile.row_step};",
            *(f"  {line}" for line in self._columns(ctype)),
            "}",
        ]

    def _columns(self, ctype: str) -> list[str]:
        tile = self.tile
        lines = [f"  const {ctype} sum = line[j];", *(f"  {line}" for line in self.body), "}"]
        any_number = [f"for (int64_t j = 0; j < {tile.num_columns}; ++j) {{", *lines]
        if tile.full_columns is None or tile.num_columns == str(tile.full_columns):
            return any_number
        full = [f"for (int64_t j = 0; j < {tile.full_columns}; ++j) {{", *lines]
        return [
            f"if ({tile.num_columns} == {tile.full_columns}) {{",
            *(f"  {line}" for line in full),
            "} else {",
            *(f"  {line}" for line in any_number),
            "}",
        ]


def _never(dims: tuple[Dim, ...]) -> str:
    raise InternalError("epilogue", "an operand was not loaded", got=dims)


def _sum(left: str, right: str) -> str:
    return right if left == "0" else f"{left} + {right}"


def index_term(index: str, dim: Dim, size: Dim, stride: Dim) -> str:
    """Gives what an index adds to an offset, empty for nothing."""
    if dim == 1 or stride == 0 or index == "0":
        return ""
    term = index if stride == 1 else f"{index} * {c_dim(stride)}"
    # A symbolic size that is not the result's own may turn out to be 1: then it broadcasts.
    return term if dim == size else f"({c_dim(dim)} == 1 ? 0 : {term})"


def collapsed_step(space: Sequence[Dim], dims: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """Gives the distance from row to row where all axes of the rows are as good as one; ``None`` where they are not."""
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
