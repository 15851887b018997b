"""What the two forms of row kernels share: how tensors lie along the space, and the passes in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence

from byoc_core.authoring.csource import ParallelLoop, c_dim
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pointwise import element_lines, operand_axes
from byoc_ccompiler.kernels.row_plan import Pass, plan_rows
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest, spread
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["LONG_NBYTES", "RowWriter", "fetch_loop", "row_array", "row_layouts"]

_STEP_PS = 50
"""Estimated picoseconds of one step on one element, and of moving the element."""

LONG_NBYTES = 1 << 10
"""Bytes side by side from which on it pays to fetch what is needed next."""

_LINE_NBYTES = 64

_BUFFER_NBYTES = 1 << 15
"""Bytes of all buffers in which values of a row wait for a later pass: they stay in the first cache."""


def row_layouts(kernel: Kernel) -> dict[Hashable, Layout]:
    """Gives how tensors lie along the space: operands by step and number, stored values by themselves."""
    group, rank = kernel.group, len(kernel.group.space or ())
    every = tuple(range(rank))
    found: dict[Hashable, Layout] = {}

    def lay(key: Hashable, value: Value, axes: Sequence[int]) -> None:
        found[key] = Layout(spread(shape_of(value), axes, rank, 1), spread(kernel.strides(value), axes, rank, 0))

    for step in group.steps:
        level = group.row_axes.get(step.result, every)
        along = [every] if step.op in REDUCTIONS else [tuple(level[a] for a in axes) for axes in operand_axes(step)]
        for index, (operand, axes) in enumerate(zip(step.operands, along, strict=True)):
            if operand not in group.results and kernel.literal(operand) is None:
                lay((step, index), operand, axes)
    for value in kernel.stored:
        lay(value, value, group.row_axes.get(value, every))
    return found


def _total(offsets: Iterable[str]) -> str:
    """Gives the C expression of a sum of offsets."""
    return " + ".join(offset for offset in offsets if offset != "0") or "0"


def row_array(ctype: str, name: str, size: int) -> str:
    """Gives the declaration of an array for elements of a row; of an empty row it is one zero, which nothing reads."""
    return f"_Alignas(64) {ctype} {name}[{size}];" if size else f"_Alignas(64) {ctype} {name}[1] = {{0}};"


def fetch_loop(kernel: Kernel, operand: Value, offsets: Iterable[str], nbytes: int) -> str:
    """Gives a C statement that fetches bytes of an operand, from a sum of offsets on that may lie behind its end."""
    itemsize = dtype_info(dtype_of(operand)).itemsize
    address = f"(uintptr_t){kernel.input(operand)} + {itemsize} * (uintptr_t)({_total(offsets)})"
    head = f"for (int line = 0; line < {nbytes // _LINE_NBYTES}; ++line)"
    return f"{head} __builtin_prefetch((const char *)({address} + {_LINE_NBYTES} * (uintptr_t)line));"


class RowWriter(ABC):
    """Writes one row kernel.

    Args:
        kernel: the kernel.
        layouts: those of :func:`row_layouts`.
        columns: the axes of rows that are computed together, side by side.

    Attributes:
        kernel: the kernel.
        space: the shape of the iteration space.
        outer: the loops over rows, or over blocks of them.
        inner: the loops along a row.
        columns: the loop over rows that are computed together.
        passes: what is done in each pass over a row.
        row_values: C expressions of the row's own values known so far.
    """

    def __init__(self, kernel: Kernel, layouts: Mapping[Hashable, Layout], columns: Sequence[int] = ()) -> None:
        self.kernel = kernel
        self.space = kernel.group.space or ()
        reduced = kernel.group.reduced or frozenset()
        kept = [axis for axis in range(len(self.space)) if axis not in reduced and axis not in columns]
        self.outer = StridedNest(self.space, layouts, kept)
        self.inner = StridedNest(self.space, layouts, sorted(reduced), prefix="r")
        self.columns = StridedNest(self.space, layouts, columns, prefix="c")
        kernel.names.reserve([*self.outer.indices, *self.inner.indices, *self.columns.indices])
        kernel.names.reserve(["r", "c", "block", "first", "end", "next", "stop", "line", "c_first", "c_end", "whole"])
        self.row_size: Dim = product(self.inner.sizes)
        self._buffers: dict[Var, str] = {}
        self._buffered_nbytes = 0
        self._plan = plan_rows(kernel, self._take_buffer, self.lends)
        self.passes = self._plan.passes
        self.row_values: dict[Value, str] = {}

    @abstractmethod
    def write(self) -> None:
        """Writes the kernel."""

    @property
    @abstractmethod
    def row_width(self) -> int:
        """How many rows are computed together, at most."""

    @abstractmethod
    def buffer_index(self, *, start: str | None = None) -> str:
        """Gives where in a buffer the current element lies; ``start`` stands for the innermost variable."""

    @abstractmethod
    def lends(self, result: Var) -> bool:
        """Tells whether another value had better wait in a result's memory than in a buffer."""

    def _take_buffer(self, value: Var) -> bool:
        """Reserves a buffer for a value of every element of a row, where the row is known to be short enough."""
        if not isinstance(self.row_size, int):
            return False
        nbytes = self.row_size * self.row_width * dtype_info(dtype_of(value)).itemsize
        if self._buffered_nbytes + nbytes > _BUFFER_NBYTES:
            return False
        self._buffered_nbytes += nbytes
        self._buffers[value] = self.kernel.names.unique(f"{value.name}_row")
        return True

    def offset(self, key: Hashable, *, start: str | None = None) -> str:
        """Gives the C expression of where a tensor's current element lies; ``start`` as for :meth:`buffer_index`."""
        innermost = self.columns if self.columns.indices else self.inner
        nests = (self.outer, self.inner, self.columns)
        return _total(nest.offset(key, last=start if nest is innermost else None) for nest in nests)

    def row_offset(self, value: Var) -> str:
        """Gives the C expression of where a row's own value lies in memory."""
        return _total(nest.offset(value) for nest in (self.outer, self.columns))

    def place(self, step: Step, index: int) -> str:
        """Gives the C expression of where the current element of a step's operand lies."""
        return self.offset((step, index))

    def row_place(self, step: Step, index: int) -> str:
        """Gives what :meth:`place` gives for a step on a row's own values."""
        return _total(nest.offset((step, index)) for nest in (self.outer, self.columns))

    def home(self, value: Var, *, start: str | None = None) -> tuple[str, str] | None:
        """Gives pointer and offset of where a value of every element waits or is stored; ``None``: nowhere."""
        if value in self.kernel.stored:
            return self.kernel.output(value), self.offset(value, start=start)
        lender = self._plan.borrowed.get(value)
        if lender is not None:
            return self.kernel.output(lender), self.offset(lender, start=start)
        if value in self._buffers:
            return self._buffers[value], self.buffer_index(start=start)
        return None

    def lies_side_by_side(self, key: Hashable) -> bool:
        """Tells whether a tensor's elements lie side by side along the innermost loop of a row."""
        return not self.inner.sizes or self.inner.step(key, len(self.inner.sizes) - 1) == (1, None)

    def home_key(self, value: Var) -> Hashable:
        """Gives the key of the memory in which a value waits, ``None`` for a buffer."""
        return value if value in self.kernel.stored else self._plan.borrowed.get(value)

    def buffer_lines(self) -> list[str]:
        """Gives the declarations of the buffers."""
        size = c_dim(self.row_size * self.row_width)
        return [row_array(self.kernel.ctype(value), name, int(size)) for value, name in self._buffers.items()]

    def element_operands(self) -> list[tuple[tuple[Step, int], Value]]:
        """Gives the tensors that are read for every element, under their keys."""
        group = self.kernel.group
        return [
            ((step, index), operand)
            for step in group.steps
            if step.op in REDUCTIONS or step.result not in group.row_axes
            for index, operand in enumerate(step.operands)
            if operand not in group.results and self.kernel.literal(operand) is None
        ]

    def element_body(self, this: Pass, known: dict[Value, str]) -> list[str]:
        """Gives the lines of one pass for one element: reads, steps, stores; ``known`` grows by what they make."""
        kernel = self.kernel
        known.update(self.row_values)
        lines = []
        for value in this.read:
            home = self.home(value)
            assert home is not None
            known[value] = kernel.names.unique(value.name)
            lines.append(f"const {kernel.ctype(value)} {known[value]} = {home[0]}[{home[1]}];")
        lines += element_lines(kernel, this.steps, self.place, known)
        for value in (*this.stored, *this.kept):
            home = self.home(value)
            assert home is not None
            lines.append(f"{home[0]}[{home[1]}] = {known[value]};")
        return lines

    def reduced_element(self, step: Step, known: dict[Value, str]) -> str:
        """Gives the C expression of the element that a reduction combines next."""
        (operand,) = step.operands
        if operand in known:
            return known[operand]
        literal = self.kernel.literal(operand)
        if literal is not None:
            return literal
        return f"{self.kernel.input(operand)}[{self.place(step, 0)}]"

    def between_steps(self, index: int) -> list[Step]:
        """Gives the steps on a row's own values before a pass, or after the last one."""
        return self._plan.between[index]

    @property
    def element_ps(self) -> int:
        """Estimated picoseconds for one element of the space."""
        return (len(self.kernel.group.steps) + 1) * _STEP_PS

    def finish(self, row: Sequence[str]) -> None:
        """Declares the kernel: the lines for one row or block of rows, inside the loops over them."""
        part = next((loop for loop, size in enumerate(self.outer.sizes) if size != 1), None)
        text = self.outer.wrap(row, part=part)
        if part is None:
            self.kernel.finish(text)
            return
        inside = product(self.outer.sizes[part + 1 :]) * self.row_size * product(self.columns.sizes)
        self.kernel.finish([ParallelLoop(tuple(text), self.outer.sizes[part], inside * self.element_ps)])
