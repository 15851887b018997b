"""What the two forms of row kernels share: how tensors lie along the space, and the passes in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.loads import element_in_space, is_moved, load_statements
from byoc_ccompiler.kernels.pointwise import element_statements, operand_axes
from byoc_ccompiler.kernels.row_plan import Pass, plan_rows
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest, rows_apart, spread
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["LONG_NBYTES", "RowWriter", "row_array", "row_layouts", "variable_of"]

Place = Callable[[Step, int], c.Expression]

_STEP_PS = 50
"""Estimated picoseconds of one step on one element, and of moving the element."""

LONG_NBYTES = 1 << 10
"""Bytes side by side from which on it pays to fetch what is needed next."""

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
            if operand not in group.results and kernel.constant(operand) is None:
                lay((step, index), operand, axes)
    for value in kernel.stored:
        lay(value, value, group.row_axes.get(value, every))
    if group.loads:
        found[None] = rows_apart(group.space or ())
    return found


def variable_of(value: Var) -> c.Variable:
    """Return a variable for an element of a value."""
    return c.Variable(value.name, c.CType(dtype_of(value)))


def row_array(name: str, dtype: str, size: int) -> c.LocalArray:
    """Return an array for elements of a row; of an empty row it is one zero, which nothing reads."""
    return c.LocalArray(c.Buffer(name, dtype, c.MemoryAccess.WRITE, size or 1), is_zeroed=size == 0, alignment=64)


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
        row_values: the row's own values known so far: variables, or elements of arrays.
    """

    def __init__(self, kernel: Kernel, layouts: Mapping[Hashable, Layout], columns: Sequence[int] = ()) -> None:
        self.kernel = kernel
        self.space = kernel.group.space or ()
        reduced = kernel.group.reduced or frozenset()
        kept = [axis for axis in range(len(self.space)) if axis not in reduced and axis not in columns]
        self.outer = StridedNest(self.space, layouts, kept)
        self.inner = StridedNest(self.space, layouts, sorted(reduced), prefix="r")
        self.columns = StridedNest(self.space, layouts, columns, prefix="c")
        self.row_size: Dim = product(self.inner.sizes)
        self._buffers: dict[Var, c.LocalArray] = {}
        self._buffered_nbytes = 0
        self._plan = plan_rows(kernel, self._take_buffer, self.lends)
        self.passes = self._plan.passes
        self.row_values: dict[Value, c.Expression] = {}

    @abstractmethod
    def write(self) -> None:
        """Writes the kernel."""

    @property
    @abstractmethod
    def row_width(self) -> int:
        """How many rows are computed together, at most."""

    @abstractmethod
    def buffer_index(self, *, start: c.Expression | None = None) -> c.Expression:
        """Return where in a buffer the current element lies; ``start`` stands for the innermost variable."""

    @abstractmethod
    def lends(self, result: Var) -> bool:
        """Tells whether another value had better wait in a result's memory than in a buffer."""

    def _take_buffer(self, value: Var) -> bool:
        """Reserves a buffer for a value of every element of a row, where the row is known to be short enough."""
        if not isinstance(self.row_size, int):
            return False
        size = self.row_size * self.row_width
        nbytes = size * dtype_info(dtype_of(value)).itemsize
        if self._buffered_nbytes + nbytes > _BUFFER_NBYTES:
            return False
        self._buffered_nbytes += nbytes
        self._buffers[value] = row_array(f"{value.name}_row", dtype_of(value), size)
        return True

    def offset(self, key: Hashable, *, start: c.Expression | None = None) -> c.Expression:
        """Return where a tensor's current element lies; ``start`` as for :meth:`buffer_index`."""
        innermost = self.columns if self.columns.sizes else self.inner
        place: c.Expression = c.Size(0)
        for nest in (self.outer, self.inner, self.columns):
            place = nest.position(key, start=place, last=start if nest is innermost else None)
        return place

    def row_offset(self, key: Hashable) -> c.Expression:
        """Return where a row's own value lies in memory."""
        return self.columns.position(key, start=self.outer.position(key))

    def place(self, step: Step, index: int) -> c.Expression:
        """Return where the current element of a step's operand lies."""
        return self.offset((step, index))

    def row_place(self, step: Step, index: int) -> c.Expression:
        """Return what :meth:`place` returns for a step on a row's own values."""
        return self.row_offset((step, index))

    def home(self, value: Var, *, start: c.Expression | None = None) -> tuple[c.Buffer, c.Expression] | None:
        """Return buffer and offset of where a value of every element waits or is stored; ``None``: nowhere."""
        key = self.home_key(value)
        if key is not None:
            return self.kernel.target(key), self.offset(key, start=start)
        if value in self._buffers:
            return self._buffers[value].buffer, self.buffer_index(start=start)
        return None

    def home_key(self, value: Var) -> Var | None:
        """Return the result in whose memory a value waits, ``None`` for a buffer."""
        return value if value in self.kernel.stored else self._plan.borrowed.get(value)

    def lies_side_by_side(self, key: Hashable) -> bool:
        """Tells whether a tensor's elements lie side by side along the innermost loop of a row."""
        return not self.inner.sizes or self.inner.step(key, len(self.inner.sizes) - 1) == (1, None)

    @property
    def buffer_arrays(self) -> c.Block:
        """The declarations of the buffers."""
        return tuple(self._buffers.values())

    def element_operands(self) -> list[tuple[tuple[Step, int], Value]]:
        """Gives the tensors that are read for every element, under their keys."""
        group = self.kernel.group
        return [
            ((step, index), operand)
            for step in group.steps
            if step.op in REDUCTIONS or step.result not in group.row_axes
            for index, operand in enumerate(step.operands)
            if operand not in group.results and self.kernel.constant(operand) is None
        ]

    def element_body(self, this: Pass, known: dict[Value, c.Expression]) -> c.Block:
        """Return the statements of one pass for one element: reads, steps, stores.

        Args:
            this: the pass.
            known: grows by the values that the statements make.
        """
        reading = (*this.steps, *(step for step in this.reductions if not is_moved(self.kernel, step.operands[0])))
        before = (*self._reads(this, known), *load_statements(self.kernel, reading, self._indices(), known))
        body = self.known_steps(this.steps, self.place, known, before)
        for value in (*this.stored, *this.kept):
            home = self.home(value)
            assert home is not None
            body += (c.Store(*home, known[value]),)
        return body

    def _indices(self) -> dict[int, c.Expression]:
        """Return the position along each axis of the space that has more than one."""
        return {**self.outer.indices(), **self.inner.indices(), **self.columns.indices()}

    def loaded(self, value: Value, start: c.Expression | None = None) -> c.Expression:
        """Return the current element of a load that moves; ``start`` stands for the variable along a row."""
        indices = self._indices()
        if start is not None:
            indices[self.inner.groups[-1][0]] = start
        return element_in_space(self.kernel, value, indices, [])

    def _reads(self, this: Pass, known: dict[Value, c.Expression]) -> c.Block:
        """Return the statements that read values of earlier passes."""
        reads: c.Block = ()
        for value in this.read:
            home = self.home(value)
            assert home is not None
            known[value] = variable = variable_of(value)
            reads += (c.Let(variable, c.Load(*home)),)
        return reads

    def known_steps(
        self, steps: Sequence[Step], place: Place, known: dict[Value, c.Expression], before: c.Block = ()
    ) -> c.Block:
        """Return statements, and those that compute steps behind them; those read the row's own values first.

        Args:
            steps: elementwise steps.
            place: returns the offset of a step's operand.
            known: values at hand; grows by the results.
            before: the statements in front.
        """
        for value in dict.fromkeys(operand for step in steps for operand in step.operands):
            found = self.row_values.get(value)
            if isinstance(found, c.Load):
                known[value] = variable = c.Variable(found.buffer.name, found.type)
                before += (c.Let(variable, found),)
            elif found is not None:
                known[value] = found
        return (*before, *element_statements(self.kernel, steps, place, known))

    def reduced_element(self, step: Step, known: Mapping[Value, c.Expression]) -> c.Expression:
        """Return the element that a reduction combines next."""
        (operand,) = step.operands
        found = known.get(operand) or self.row_values.get(operand) or self.kernel.constant(operand)
        if found is None and is_moved(self.kernel, operand):
            return self.loaded(operand)
        return self.kernel.source(operand)[self.place(step, 0)] if found is None else found

    def row_stores(self, values: Iterable[Var]) -> c.Block:
        """Return the stores of those among the row's own values that must reach memory."""
        stored = [value for value in values if value in self.kernel.stored]
        return tuple(
            c.Store(self.kernel.target(value), self.row_offset(value), self.row_values[value]) for value in stored
        )

    def between_steps(self, index: int) -> list[Step]:
        """Gives the steps on a row's own values before a pass, or after the last one."""
        return self._plan.between[index]

    @property
    def element_ps(self) -> int:
        """Estimated picoseconds for one element of the space."""
        return (len(self.kernel.group.steps) + 1) * _STEP_PS

    def finish(self, row: c.Block) -> None:
        """Finish the kernel: the statements for one row or block of rows, inside the loops over them."""
        part = next((loop for loop, size in enumerate(self.outer.sizes) if size != 1), None)
        kinds = {} if part is None else {part: c.LoopKind.PARALLEL}
        inside = (
            product(self.outer.sizes[0 if part is None else part + 1 :]) * self.row_size * product(self.columns.sizes)
        )
        self.kernel.finish_block(self.outer.loops(row, kinds, round_ps=inside * self.element_ps))
