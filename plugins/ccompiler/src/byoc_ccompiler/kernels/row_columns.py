"""Row kernels across rows that lie side by side: a block of rows at once, their own values in arrays over it."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernels.pointwise import element_lines
from byoc_ccompiler.kernels.row_plan import Pass
from byoc_ccompiler.kernels.row_reducers import combine, start
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, RowWriter, fetch_loop
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["ColumnWriter"]

_COLUMNS = 512
"""Rows that are computed together."""

_KEPT_ELEMENTS = 1 << 12
"""Elements of a block whose values wait for a later pass: fewer rows are computed together where they are long."""

_LANES = 16
"""Rows that are computed together, at least: a register of them."""

_FETCHED_AHEAD = 4
"""Elements along a row that what is fetched lies ahead."""

_NEAR_NBYTES = 1 << 12
"""Bytes from one element of a row to the next up to which the processor itself fetches ahead."""

_ROUNDS = 64
"""Elements that are added up one after the other, before their sum is added to that of the others in float64."""


class ColumnWriter(RowWriter):
    """Writes row kernels that go across memory."""

    @property
    def row_width(self) -> int:
        """The number of columns in a block."""
        (size,) = self.columns.sizes
        most = _COLUMNS
        if isinstance(self.row_size, int) and self.row_size * _COLUMNS > _KEPT_ELEMENTS and self._has_passes:
            most = max(_LANES, _KEPT_ELEMENTS // self.row_size // _LANES * _LANES)
        if not isinstance(size, int):
            return most
        blocks = max(1, -(-size // most))
        return -(-size // blocks // _LANES) * _LANES if blocks > 1 else max(size, 1)

    @property
    def _has_passes(self) -> bool:
        """Whether something is made of a row's own values for each of its elements."""
        group = self.kernel.group
        elements = [step for step in group.steps if step.result not in group.row_axes]
        return any(operand in group.row_axes for step in elements for operand in step.operands)

    def buffer_index(self, *, start: str | None = None) -> str:
        """Gives the position in the block: rows of columns."""
        terms = []
        for loop, index in enumerate(self.inner.indices):
            step = product(self.inner.sizes[loop + 1 :]) * self.row_width
            terms.append(f"{index} * {c_dim(step)}")
        return " + ".join([*terms, start or self.column])

    def lends(self, result: Var) -> bool:
        """No result does: rows of it are not in the first cache together."""
        return False

    @property
    def column(self) -> str:
        """The C expression of the position in arrays over the columns of a block."""
        return f"({self._index} - c_first)"

    @property
    def _index(self) -> str:
        (index,) = self.columns.indices
        return index

    def write(self) -> None:
        """Writes the kernel: blocks of columns, inside the loops over what lies further apart."""
        lines = self.buffer_lines()
        for index, this in enumerate(self.passes):
            lines += self._between(index)
            lines += self._pass(this, self._fetch_lines() if index == 0 else [])
        lines += self._between(len(self.passes))
        (size,) = self.columns.sizes
        width = self.row_width
        blocks: Dim = (size + (width - 1)) // width
        apart = any(count != 1 for count in self.outer.sizes)
        first, end = ("0", c_dim(blocks)) if apart else (FIRST_ITEM, END_ITEM)
        block = [
            f"for (int64_t block = {first}; block < {end}; ++block) {{",
            f"  const int64_t c_first = block * {width}, c_end = byoc_min({c_dim(size)}, c_first + {width});",
            *(f"  {line}" for line in lines),
            "}",
        ]
        if apart:
            self.finish(block)
            return
        text = tuple(self.outer.wrap(block))
        self.kernel.finish([ParallelLoop(text, blocks, self.row_size * width * self.element_ps)])

    def _across(self, body: list[str]) -> list[str]:
        """Gives the loop over the columns of a block."""
        if not body:
            return []
        head = f"for (int64_t {self._index} = c_first; {self._index} < c_end; ++{self._index}) {{"
        return [head, *(f"  {line}" for line in body), "}"]

    def _between(self, index: int) -> list[str]:
        kernel, steps = self.kernel, self.between_steps(index)
        known = dict(self.row_values)
        body = element_lines(kernel, steps, self.row_place, known)
        declarations = []
        for step in steps:
            body += self._row_store(step, known[step.result])
            if not any(step.result in later.operands for later in kernel.group.steps if later not in steps):
                continue
            name = kernel.names.unique(f"{step.result.name}_columns")
            declarations.append(f"{kernel.ctype(step.result)} {name}[{self.row_width}];")
            body.append(f"{name}[{self.column}] = {known[step.result]};")
            self.row_values[step.result] = f"{name}[{self.column}]"
        return [*declarations, *self._across(body)]

    def _row_store(self, step: Step, value: str) -> list[str]:
        kernel = self.kernel
        if step.result not in kernel.stored:
            return []
        return [f"{kernel.output(step.result)}[{self.row_offset(step.result)}] = {value};"]

    def _fetch_lines(self) -> list[str]:
        """Gives statements that fetch what lies some elements further along the rows of a block."""
        if not self.inner.sizes or self.row_size == 1:
            return []
        loop, after = len(self.inner.sizes) - 1, f"({self.inner.indices[-1]} + {_FETCHED_AHEAD})"
        places = {}
        for key, operand in self.element_operands():
            itemsize, step = dtype_info(dtype_of(operand)).itemsize, self.inner.step(key, loop)[0]
            nbytes, is_far = self.row_width * itemsize, not isinstance(step, int) or step * itemsize > _NEAR_NBYTES
            if nbytes >= LONG_NBYTES and is_far and self.columns.step(key, 0) == (1, None):
                nests = (
                    self.outer.offset(key),
                    self.inner.offset(key, last=after),
                    self.columns.offset(key, last="c_first"),
                )
                places[operand, nests] = nbytes
        return [fetch_loop(self.kernel, operand, nests, nbytes) for (operand, nests), nbytes in places.items()]

    def _pass(self, this: Pass, fetch: list[str]) -> list[str]:
        totals = {step: _Totals(self, step) for step in this.reductions}
        lines = [line for total in totals.values() for line in total.declarations()]
        lines += self._across([total.start() for total in totals.values()])
        known: dict[Value, str] = {}
        body = self.element_body(this, known)
        body += [total.add(self.reduced_element(step, known)) for step, total in totals.items()]
        lines += self._rounds([*fetch, *self._across(body)], [total for total in totals.values() if total.is_in_rounds])
        ends = []
        for step, total in totals.items():
            ends += total.finish(c_dim(self.row_size))
            self.row_values[step.result] = total.expression
            ends += self._row_store(step, total.expression)
        return [*lines, *self._across(ends)]

    def _rounds(self, body: list[str], totals: list[_Totals]) -> list[str]:
        """Gives the loops along the rows; sums in rounds are added up whenever a round is over."""
        lines, depth = [], ""
        for loop, (size, index) in enumerate(zip(self.inner.sizes, self.inner.indices, strict=True)):
            if totals and loop == len(self.inner.sizes) - 1:
                lines.append(f"{depth}for (int64_t first = 0; first < {c_dim(size)}; first += {_ROUNDS}) {{")
                depth += "  "
                lines += [f"{depth}{line}" for line in self._across([total.start_round() for total in totals])]
                lines.append(f"{depth}const int64_t end = byoc_min({c_dim(size)}, first + {_ROUNDS});")
                lines.append(f"{depth}for (int64_t {index} = first; {index} < end; ++{index}) {{")
                lines += [f"{depth}  {line}" for line in body]
                lines.append(f"{depth}}}")
                lines += [f"{depth}{line}" for line in self._across([total.end_round() for total in totals])]
                body = []
                continue
            lines.append(f"{depth}for (int64_t {index} = 0; {index} < {c_dim(size)}; ++{index}) {{")
            depth += "  "
        lines += [f"{depth}{line}" for line in body]
        lines += ["  " * level + "}" for level in reversed(range(len(depth) // 2))]
        return lines


class _Totals:
    """The C arrays in which one reduction of a block of rows is collected."""

    def __init__(self, writer: ColumnWriter, step: Step) -> None:
        names = writer.kernel.names
        self._op, self._dtype = step.op, dtype_of(step.operands[0])
        self._ctype, self._width = writer.kernel.ctype(step.operands[0]), writer.row_width
        self._name = names.unique(f"{step.op}_totals")
        size = writer.row_size
        is_short = isinstance(size, int) and size <= 4 * _ROUNDS
        self.is_in_rounds = step.op in ("sum", "mean") and self._dtype.startswith("float") and not is_short
        self._whole = names.unique(f"{step.op}_sums") if self.is_in_rounds else ""
        self._column = writer.column
        self.expression = f"{self._name}[{self._column}]"

    def declarations(self) -> list[str]:
        """Gives the declarations of the arrays."""
        lines = [f"_Alignas(64) {self._ctype} {self._name}[{self._width}];"]
        return [*lines, f"_Alignas(64) double {self._whole}[{self._width}];"] if self.is_in_rounds else lines

    def start(self) -> str:
        """Gives the statement before the loops, for one column."""
        if self.is_in_rounds:
            return f"{self._whole}[{self._column}] = 0;"
        return f"{self.expression} = {start(self._op, self._dtype)};"

    def start_round(self) -> str:
        """Gives the statement before a round of a sum."""
        return f"{self.expression} = 0;"

    def end_round(self) -> str:
        """Gives the statement after a round of a sum."""
        return f"{self._whole}[{self._column}] += {self.expression};"

    def add(self, element: str) -> str:
        """Gives the statement that adds an element."""
        return f"{self.expression} = {combine(self._op, self._dtype, self.expression, element)};"

    def finish(self, count: str) -> list[str]:
        """Gives the statements after the loops, for one column."""
        whole = f"{self._whole}[{self._column}]" if self.is_in_rounds else self.expression
        wide = "double" if self.is_in_rounds else self._ctype
        if self._op == "mean":
            whole = f"{whole} / ({wide}){count}"
        elif not self.is_in_rounds:
            return []
        return [f"{self.expression} = ({self._ctype})({whole});"]
