"""The indices of the largest elements of windows, in row-major order; a NaN is the largest.

Planes of known size are searched row by row: first the rows of a window in each column, then the columns. Each loop
compares neighbouring windows side by side, values and indices. Of equal elements the lower index counts, so the order
of the search does not matter. A tap beyond the plane looks at the last tap inside once more. Other windows are searched
one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.authoring.csource import C_TYPES
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info, is_integer
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import loops_around, offset_along, share_nest
from byoc_ccompiler.kernels.plane_pooling import PlaneSizes
from byoc_ccompiler.kernels.pooling_windows import PooledAxis, Pooling, require_windows
from byoc_ccompiler.rejections import FLOATS, operand_type
from byoc_ccompiler.steps import dtype_of

__all__ = ["FAMILY"]

_START = c.Size(0)


def _write(kernel: Kernel) -> None:
    """Write the kernel of the indices of largest elements."""
    (step,) = kernel.group.steps
    pooling = replace(Pooling.of_step(step), type=c.CType(dtype_of(step.operands[0])))
    planes, plane = pooling.batch * pooling.channels, c.Variable("plane")
    size = product(axis.size for axis in pooling.axes)
    source, out = kernel.source(step.operands[0]), kernel.target(step.result)
    x, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    search = _Search(pooling, x, to, plane * size, is_column_major=flag_of(step.binding, "column_major"))
    plane_sizes, right = None, pooling.axes[-1]
    if len(pooling.axes) == 2 and right.window > 1 and all(map(_windows_inside, pooling.axes)):
        plane_sizes = PlaneSizes.of(*pooling.axes, dtype_info(pooling.type.dtype).itemsize)
    body = search.by_window() if plane_sizes is None else search.by_row(plane_sizes)
    results = product(axis.out_size for axis in pooling.axes)
    pointers = (c.Alias(x, source, plane * size), c.Alias(to, out, plane * results))
    kernel.finish_block(share_nest(kernel, [c.Axis(plane, planes)], (*pointers, *body)))


def _windows_inside(axis: PooledAxis) -> range:
    """Return the numbers of the windows along an axis of known size with all taps inside the image."""
    if not isinstance(axis.size, int) or not isinstance(axis.out_size, int):
        return range(0)
    room = axis.size - 1 - (axis.window - 1) * axis.dilation + axis.begin
    return range(-(-axis.begin // axis.stride), min(room // axis.stride + 1, axis.out_size))


class _Search:
    """The search in a plane.

    Args:
        pooling: the windows; the type is the type of the elements.
        x: the plane.
        to: the result.
        first: the number of the plane's first element.
        is_column_major: whether the elements of a plane are counted in column-major order.
    """

    def __init__(
        self, pooling: Pooling, x: c.Buffer, to: c.Buffer, first: c.Expression, *, is_column_major: bool
    ) -> None:
        self.pooling, self.type, self.x, self.to, self.first = pooling, pooling.type, x, to, first
        self.sizes, self.is_column_major = [axis.size for axis in pooling.axes], is_column_major

    def result(self, index: c.Expression) -> c.Expression:
        """Return an element of the result for a row-major index in the plane."""
        index = c.Cast(index, c.INDEX) if index.type != c.INDEX else index
        if self.is_column_major:
            index = offset_along(c.unravelled(index, self.sizes), compact_strides(self.sizes[::-1])[::-1])
        return index + self.first

    def is_larger(self, value: c.Expression, largest: c.Expression) -> c.Expression:
        """Return whether an element, a variable, is larger than another; a NaN is the largest."""
        is_larger = value.compare(">", largest)
        if not self.type.is_float:
            return is_larger
        is_nan = c.Binary("&", value.compare("!=", value), largest.compare("==", largest))
        return c.Binary("|", is_larger, is_nan)

    def is_equal(self, value: c.Expression, largest: c.Expression) -> c.Expression:
        """Return whether two elements, variables, are equal, or both NaN."""
        is_equal = value.compare("==", largest)
        if not self.type.is_float:
            return is_equal
        return c.Binary("|", is_equal, c.Binary("&", value.compare("!=", value), largest.compare("!=", largest)))

    def by_window(self) -> c.Block:
        """Return the search window by window, for images of any rank and size."""
        indices = [c.Variable(f"o_{axis.name}") for axis in self.pooling.axes]
        outs = [axis.out_size for axis in self.pooling.axes]
        window, found, at = self.pooling.window(indices), c.Variable("found"), c.Variable("at")
        largest, value = c.Variable("largest", self.type), c.Variable("value", self.type)
        is_first = found.compare("<", 0)
        look: c.Block = (
            c.Let(at, offset_along(window.positions, compact_strides(self.sizes))),
            c.Let(value, self.x[at]),
            c.If(
                c.Binary("|", is_first, self.is_larger(value, largest)), (c.Assign(largest, value), c.Assign(found, at))
            ),
        )
        body = (
            *window.statements,
            c.Declare(largest, self.pooling.start),
            c.Declare(found, c.Size(-1)),
            *loops_around(look, window.taps, window.counts),
            c.Store(
                self.to,
                offset_along(indices, compact_strides(outs)),
                c.Select(is_first, c.Size(-1), self.result(found)),
            ),
        )
        return loops_around(body, indices, outs)

    def by_row(self, sizes: PlaneSizes) -> c.Block:
        """Return the search row by row in a plane of known size."""
        down, right = self.pooling.axes
        is_narrow = sizes.height * sizes.width < 2**31 and self.type.nbytes <= 4
        index_type = c.CType("int32" if is_narrow else "int64")
        values = c.Buffer("values", self.type.dtype, c.MemoryAccess.WRITE, sizes.width)
        found = c.Buffer("found", index_type.dtype, c.MemoryAccess.WRITE, sizes.width)
        at, column = c.Variable("at"), c.Variable("column")
        top, count, _, counted = down.taps(at)
        rows = [top + c.index_min(c.Size(tap), count - 1) * down.dilation for tap in range(down.window)]
        starts = [c.Variable("start") for _ in rows]
        pairs: list[tuple[c.Expression, c.Expression]] = [
            (self.x[start + column], c.Cast(start + column, index_type)) for start in starts
        ]
        body, value, index = self._largest(pairs, index_type, is_ordered=True)
        store = (c.Store(values, column, value), c.Store(found, column, index))
        row = c.For(column, _START, c.Size(sizes.width), (*body, *store), kind=c.LoopKind.VECTOR)
        line = c.Buffer("line", self.to.dtype, c.MemoryAccess.WRITE)
        inside: c.Block = (
            *(c.Let(start, y * sizes.width) for start, y in zip(starts, rows, strict=True)),
            row,
            *self._columns(sizes, right, values, found, line),
        )
        if not down.is_inside:
            k = c.Variable("k")
            nothing = c.For(k, _START, c.Size(sizes.out_width), (c.Store(line, k, c.Size(-1)),))
            inside = (c.If(count.compare(">", 0), inside, (nothing,)),)
        block = (*counted, c.Alias(line, self.to, at * sizes.out_width), *inside)
        arrays = (c.LocalArray(values, alignment=64), c.LocalArray(found, alignment=64))
        return (*arrays, c.For(at, _START, c.Size(sizes.out_height), block))

    def _columns(
        self, sizes: PlaneSizes, right: PooledAxis, values: c.Buffer, found: c.Buffer, line: c.Buffer
    ) -> c.Block:
        """Return the loops over the windows of a row: windows inside side by side, others one by one."""
        index_type = c.CType(found.dtype)
        inside = _windows_inside(right)
        first, end = inside.start, inside.stop
        loops: list[c.Statement] = []
        for begin, stop, is_inside in ((0, first, False), (first, end, True), (end, sizes.out_width, False)):
            if begin == stop:
                continue
            column = c.Variable("column")
            if is_inside:
                positions = [
                    column * right.stride + (tap * right.dilation - right.begin) for tap in range(right.window)
                ]
                body, _, index = self._largest([(values[at], found[at]) for at in positions], index_type)
                body = (*body, c.Store(line, column, self.result(index)))
                loops.append(c.For(column, c.Size(begin), c.Size(stop), body, kind=c.LoopKind.VECTOR))
                continue
            left, count, _, counted = right.taps(column)
            positions = [left + c.index_min(c.Size(tap), count - 1) * right.dilation for tap in range(right.window)]
            body, _, index = self._largest([(values[at], found[at]) for at in positions], index_type)
            body = (*body, c.Store(line, column, self.result(index)))
            body = (*counted, c.If(count.compare(">", 0), body, (c.Store(line, column, c.Size(-1)),)))
            loops.append(c.For(column, c.Size(begin), c.Size(stop), body))
        return tuple(loops)

    def _largest(
        self, pairs: Sequence[tuple[c.Expression, c.Expression]], index_type: c.CType, *, is_ordered: bool = False
    ) -> tuple[c.Block, c.Expression, c.Expression]:
        """Return the statements finding the largest of some elements with their indices, the element and the index.

        ``is_ordered``: the indices ascend, or repeat an element.
        """
        body: list[c.Statement] = []
        largest = index = None
        for value, at in pairs:
            element, number = c.Variable("element", self.type), c.Variable("index", index_type)
            body += (c.Let(element, value), c.Let(number, at))
            if largest is None or index is None:
                largest, index = element, number
                continue
            is_next = self.is_larger(element, largest)
            if not is_ordered:
                is_earlier = c.Binary("&", self.is_equal(element, largest), number.compare("<", index))
                is_next = c.Binary("|", is_next, is_earlier)
            condition, new, new_index = c.Variable("is_next", c.BOOL), replace(element, name="largest"), replace(index)
            body += (
                c.Let(condition, is_next),
                c.Let(new, c.Select(condition, element, largest)),
                c.Let(new_index, c.Select(condition, number, index)),
            )
            largest, index = new, new_index
        assert largest is not None
        assert index is not None
        return tuple(body), largest, index


def _reject(binding: Binding) -> Rejection | None:
    dtype = operand_type(binding, 0).dtype
    if dtype in FLOATS or (dtype in C_TYPES and is_integer(dtype)):
        return None
    return Rejection("dtype", f"{binding.op.name} is compiled for {', '.join(FLOATS)} and integers, not for {dtype}")


FAMILY = KernelFamily(
    frozenset(f"nn.argmax_pool{rank}d" for rank in (1, 2, 3)), _reject, _write, require=require_windows
)
"""The indices of the largest elements of windows."""
