"""Row kernels along rows whose elements lie side by side: a row's own values are scalars."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernels.pointwise import element_lines
from byoc_ccompiler.kernels.row_plan import Pass
from byoc_ccompiler.kernels.row_reducers import PIECE, combine, row_function, start
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, RowWriter, fetch_loop, row_array
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["LineWriter"]

_FETCH_NBYTES = 1 << 18
"""Bytes of a row up to which the next one is fetched meanwhile."""

_FETCHED = 128
"""Elements of the next row that are fetched at a time."""

_BLOCK = 1 << 15
"""Elements of a whole tensor that one thread reduces at a time."""


class LineWriter(RowWriter):
    """Writes row kernels that go along memory."""

    @property
    def row_width(self) -> int:
        """One."""
        return 1

    @property
    def _is_one_piece(self) -> bool:
        return len(self.inner.sizes) <= 1 and isinstance(self.row_size, int) and self.row_size <= PIECE

    def buffer_index(self, *, start: str | None = None) -> str:
        """Gives the position in the row."""
        terms = []
        for loop, index in enumerate(self.inner.indices):
            name = start if start is not None and loop == len(self.inner.indices) - 1 else index
            step = product(self.inner.sizes[loop + 1 :])
            terms.append(name if step == 1 else f"{name} * {c_dim(step)}")
        return " + ".join(terms) or "0"

    def lends(self, result: Var) -> bool:
        """Those with long rows do: so their memory is in the cache when the result is written."""
        return self._row_nbytes(result) >= LONG_NBYTES and self.lies_side_by_side(result)

    def _row_nbytes(self, value: Value) -> int:
        """Gives the bytes of a row of as many elements as the space has along one; 0 where that is not known."""
        return self.row_size * dtype_info(dtype_of(value)).itemsize if isinstance(self.row_size, int) else 0

    def write(self) -> None:
        """Writes the kernel: rows one after the other, or where there is one large one, blocks of it."""
        if self._is_in_blocks:
            self._write_blocks()
            return
        lines = self.buffer_lines()
        for index, this in enumerate(self.passes):
            lines += self._between(index)
            lines += self._pass(this, self._fetch_lines() if index == 1 else [])
        self.finish([*lines, *self._between(len(self.passes))])

    def _between(self, index: int) -> list[str]:
        steps = self.between_steps(index)
        lines = element_lines(self.kernel, steps, self.row_place, self.row_values)
        return [*lines, *self._row_stores([step.result for step in steps])]

    def _row_stores(self, values: Sequence[Var]) -> list[str]:
        kernel = self.kernel
        return [
            f"{kernel.output(value)}[{self.row_offset(value)}] = {self.row_values[value]};"
            for value in values
            if value in kernel.stored
        ]

    def _fetch_lines(self) -> list[str]:
        """Gives statements that fetch some of what the first pass over the next row reads."""
        if not self.outer.sizes or len(self.inner.sizes) != 1:
            return []
        depth, after = len(self.outer.sizes) - 1, f"({self.outer.indices[-1]} + 1)"
        places = {}
        for key, operand in self.element_operands():
            is_next = self.outer.step(key, depth)[0] != 0 and self.inner.step(key, 0) == (1, None)
            if is_next and LONG_NBYTES <= self._row_nbytes(operand) <= _FETCH_NBYTES:
                nbytes = _FETCHED * dtype_info(dtype_of(operand)).itemsize
                places[operand, self.outer.offset(key, last=after)] = nbytes
        return [fetch_loop(self.kernel, operand, (row, "next"), nbytes) for (operand, row), nbytes in places.items()]

    def _pass(self, this: Pass, fetch: Sequence[str] = ()) -> list[str]:
        totals = {step: _Total(self, step, is_one_piece=self._is_one_piece) for step in this.reductions}
        lines = [line for total in totals.values() for line in total.declaration()]
        depth = ""
        for size, index in zip(self.inner.sizes[:-1], self.inner.indices[:-1], strict=True):
            lines.append(f"{depth}for (int64_t {index} = 0; {index} < {c_dim(size)}; ++{index}) {{")
            depth += "  "
        size = self.inner.sizes[-1] if self.inner.sizes else 1
        lines += [f"{depth}{line}" for line in self._pieces(this, totals, "0", c_dim(size), fetch)]
        lines += ["  " * level + "}" for level in reversed(range(len(self.inner.sizes[:-1])))]
        for step, total in totals.items():
            name = self.kernel.names.unique(step.result.name)
            count = c_dim(self.row_size) if step.op == "mean" else None
            lines.append(f"const {self.kernel.ctype(step.result)} {name} = {total.whole(count)};")
            self.row_values[step.result] = name
        return [*lines, *self._row_stores([step.result for step in this.reductions])]

    def _pieces(
        self, this: Pass, totals: dict[Step, _Total], first: str, end: str, fetch: Sequence[str] = ()
    ) -> list[str]:
        """Gives one walk along the innermost loop of a pass, in pieces where it is not known to be short."""
        if self._is_one_piece:
            return self._piece(this, totals, first, end, fetch)
        return [
            f"for (int64_t first = {first}; first < {end}; first += {PIECE}) {{",
            f"  const int64_t end = byoc_min({end}, first + {PIECE});",
            *(f"  {line}" for line in self._piece(this, totals, "first", "end", fetch)),
            "}",
        ]

    def _piece(self, this: Pass, totals: dict[Step, _Total], first: str, end: str, fetch: Sequence[str]) -> list[str]:
        known: dict[Value, str] = {}
        body = self.element_body(this, known)
        variable = self.inner.indices[-1] if self.inner.indices else "r"
        count = end if first == "0" else f"{end} - {first}"
        declarations, calls = [], []
        tiles: dict[Value, str] = {}
        for step, total in totals.items():
            source = self._side_by_side(step, first)
            operand = step.operands[0]
            if source is None and operand not in tiles:
                tiles[operand] = self.kernel.names.unique("piece")
                length = int(end) if self._is_one_piece else PIECE
                declarations.append(row_array(self.kernel.ctype(operand), tiles[operand], length))
                at = variable if first == "0" else f"{variable} - {first}"
                body.append(f"{tiles[operand]}[{at}] = {self.reduced_element(step, known)};")
            calls.append(total.add(source or tiles[operand], count))
        loop: list[str] = []
        if body and fetch:
            loop = [
                f"for (int64_t next = {first}; next < {end}; next += {_FETCHED}) {{",
                *(f"  {line}" for line in fetch),
                f"  const int64_t stop = byoc_min({end}, next + {_FETCHED});",
                f"  for (int64_t {variable} = next; {variable} < stop; ++{variable}) {{",
                *(f"    {line}" for line in body),
                "  }",
                "}",
            ]
        elif body:
            head = f"for (int64_t {variable} = {first}; {variable} < {end}; ++{variable}) {{"
            loop = [head, *(f"  {line}" for line in body), "}"]
        return [*declarations, *loop, *calls]

    def _side_by_side(self, step: Step, first: str) -> str | None:
        """Gives a pointer to the elements that a reduction combines, where memory has them side by side."""
        (operand,) = step.operands
        if operand not in self.kernel.group.results:
            if self.kernel.literal(operand) is not None or not self.lies_side_by_side((step, 0)):
                return None
            pointer, offset = self.kernel.input(operand), self.offset((step, 0), start=first)
        else:
            assert isinstance(operand, Var)
            home = self.home(operand, start=first)
            key = self.home_key(operand)
            if home is None or (key is not None and not self.lies_side_by_side(key)):
                return None
            pointer, offset = home
        terms = [term for term in offset.split(" + ") if term != "0"]
        return " + ".join([pointer, *terms])

    @property
    def _is_in_blocks(self) -> bool:
        """Whether all of the tensor is one row so large that threads may share it."""
        one = len(self.passes) == 1 and not self.outer.sizes and len(self.inner.sizes) == 1
        if not one or (isinstance(self.row_size, int) and self.row_size < 2 * _BLOCK):
            return False
        dtype = dtype_of(self.kernel.stored[0])
        return all(dtype_of(step.result) == dtype for step in self.passes[0].reductions)

    def _write_blocks(self) -> None:
        """Writes the kernel of a large tensor that is one row: the results of blocks first, then those together."""
        (this,), (size,) = self.passes, self.inner.sizes
        blocks = (size + (_BLOCK - 1)) // _BLOCK
        self.kernel.scratch = blocks * (2 * len(this.reductions))
        totals = {step: _Total(self, step, is_one_piece=False) for step in this.reductions}
        body = [
            f"const int64_t block_end = byoc_min({c_dim(size)}, (block + 1) * {_BLOCK});",
            *(line for total in totals.values() for line in total.declaration()),
            *self._pieces(this, totals, f"block * {_BLOCK}", "block_end"),
        ]
        after: list[str] = []
        for index, (step, total) in enumerate(totals.items()):
            high, low = (f"scratch[{c_dim(blocks * (2 * index + half))} + block]" for half in (0, 1))
            whole = _Total(self, step, is_one_piece=False)
            body += total.save(high, low)
            after += whole.declaration()
            after.append(f"for (int64_t block = 0; block < {c_dim(blocks)}; ++block) {{")
            after += [*(f"  {line}" for line in whole.load(high, low)), "}"]
            name = self.kernel.names.unique(step.result.name)
            count = c_dim(size) if step.op == "mean" else None
            after.append(f"const {self.kernel.ctype(step.result)} {name} = {whole.whole(count)};")
            self.row_values[step.result] = name
        after += self._row_stores([step.result for step in this.reductions])
        after += self._between(1)
        loop = [f"  for (int64_t block = {FIRST_ITEM}; block < {END_ITEM}; ++block) {{"]
        loop += [f"    {line}" for line in body]
        item_ps = _BLOCK * self.element_ps
        self.kernel.finish([ParallelLoop((*loop, "  }"), blocks, item_ps), *(f"  {line}" for line in after)])


class _Total:
    """The C variable in which one reduction of a row is collected."""

    def __init__(self, writer: RowWriter, step: Step, *, is_one_piece: bool) -> None:
        self._op, self._dtype = step.op, dtype_of(step.operands[0])
        self._ctype = writer.kernel.ctype(step.operands[0])
        self._name = writer.kernel.names.unique(f"{step.op}_total")
        self._is_one_piece = is_one_piece
        self._is_sum = step.op in ("sum", "mean") and self._dtype.startswith("float")

    def declaration(self) -> list[str]:
        """Gives the declaration that stands before the loops."""
        if self._is_one_piece:
            return []
        if not self._is_sum:
            return [f"{self._ctype} {self._name} = {start(self._op, self._dtype)};"]
        return [f"double {self._name}{'[2] = {0, 0}' if self._dtype == 'float64' else ' = 0'};"]

    def add(self, source: str, count: str) -> str:
        """Gives the statement that adds the elements at a pointer."""
        call = f"{row_function(self._op, self._dtype)}({source}, {count})"
        if self._is_one_piece:
            return f"const {self._ctype} {self._name} = {call};"
        if not self._is_sum:
            return f"{self._name} = {combine(self._op, self._dtype, self._name, call)};"
        return f"vec_add_piece({self._name}, {call});" if self._dtype == "float64" else f"{self._name} += {call};"

    def save(self, high: str, low: str) -> list[str]:
        """Gives the statements that keep what was collected in two places."""
        if not self._is_sum:
            return [f"{high} = {self._name};"]
        if self._dtype == "float64":
            lost = f"{self._name}[1]"
            return [f"{high} = {self._name}[0];", f"{low} = isfinite({lost}) ? {lost} : 0.0;"]
        rest = f"isfinite({high}) ? (float)({self._name} - {high}) : 0.0f"
        return [f"{high} = (float){self._name};", f"{low} = {rest};"]

    def load(self, high: str, low: str) -> list[str]:
        """Gives the statements that add what :meth:`save` kept."""
        if not self._is_sum:
            return [f"{self._name} = {combine(self._op, self._dtype, self._name, high)};"]
        if self._dtype == "float64":
            return [f"vec_add_piece({self._name}, {part});" for part in (high, low)]
        return [f"{self._name} += (double){high} + (double){low};"]

    def whole(self, count: str | None) -> str:
        """Gives the expression of the whole, divided by the number of elements where one is given."""
        if self._is_one_piece or not self._is_sum:
            return self._name if count is None else f"{self._name} / ({self._ctype}){count}"
        total = f"vec_whole_sum({self._name})" if self._dtype == "float64" else self._name
        divided = total if count is None else f"({total} / (double){count})"
        return divided if self._dtype == "float64" else f"({self._ctype}){divided}"
