"""Ordering ops: sort, argsort, topk. The lower index comes first among equals; a NaN is the largest.

A line is a run of elements ``apart`` from each other in memory. C functions shared by kernels move the numbers of the
elements, never the elements: a merge sort of runs of doubling length, and a heap of the first elements for ``topk``.
"""

from __future__ import annotations

from functools import cached_property

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope

from byoc_ccompiler.attributes import dim_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import require_along, view_of, write_lines
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["FAMILY"]

_COMPARISON_PS, _DEPTH = 5_000, 16
"""Estimated picoseconds of a comparison with the following moves; comparisons of an element, about, in a long axis."""


def _call(callee: c.Callee, *arguments: c.Expression | c.Buffer) -> c.Call:
    """Return a call of a function given as data; a buffer stands for its address."""
    expressions = (c.Address(item, c.Size(0)) if isinstance(item, c.Buffer) else item for item in arguments)
    return c.Call(callee, tuple(expressions), callee.function.result if callee.function is not None else None)


class _Ordering:
    """A kernel under construction; the functions on lines take ``(keys, apart, ...)``."""

    def __init__(self, kernel: Kernel) -> None:
        (step,) = kernel.group.steps
        self.kernel, self.step, self.view, self.is_topk = kernel, step, view_of(step), step.op == "topk"
        self.source, self.type = kernel.source(step.operands[0]), c.CType(dtype_of(step.operands[0]))
        self.is_descending = flag_of(step.binding, "largest" if self.is_topk else "descending")
        self.keys, self.apart, self.size = c.Buffer("keys", self.source.dtype), c.Variable("apart"), c.Variable("size")
        self.elements, self.heap = (self.keys, self.apart), c.Buffer("heap", "int64", c.MemoryAccess.WRITE)

    def sorted_line(self, line: c.Expression, line_memory: c.Buffer) -> c.Block:
        """Return the statements of ``sort`` and ``argsort`` for a line, with memory for the numbers twice."""
        view, out, order, k = self.view, self.kernel.target(self.step.result), c.Variable("order"), c.Variable("k")
        keys, to = c.Buffer("keys", self.source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
        number = line_memory[order + k]
        element = keys[number * view.inner] if self.step.op == "sort" else number
        return (
            *(c.Alias(keys, self.source, view.start(line)), c.Alias(to, out, view.start(line))),
            c.Let(order, _call(self.order, keys, c.Size(view.inner), c.Size(view.size), line_memory)),
            c.For(k, c.Size(0), c.Size(view.size), (c.Store(to, k * view.inner, element),)),
        )

    def selected_line(self, line: c.Expression, line_memory: c.Buffer) -> c.Block:
        """Return the statements of ``topk`` for a line, with memory for a heap of numbers."""
        view, keys, (values, numbers) = self.view, c.Buffer("keys", self.source.dtype), self.step.binding.results
        count, inner = dim_of(self.step.binding, "k"), c.Size(view.inner)
        k, turn, found, at = map(c.Variable, ("k", "turn", "found", "at"))
        elements = {values: keys[found * inner], numbers: found}
        outputs = [
            (self.kernel.target(result), element)
            for result, element in elements.items()
            if result in self.kernel.stored
        ]
        declaration = c.Let(at, (line // view.inner * count + k) * inner + line % view.inner)
        store = (declaration, *(c.Store(target, at, element) for target, element in outputs))
        heap = c.Evaluate(_call(self.select, keys, inner, c.Size(view.size), c.Size(count), line_memory))
        selected = (c.Alias(keys, self.source, view.start(line)), heap)
        if flag_of(self.step.binding, "sorted"):
            # The last number stands on top of the heap.
            take = (
                c.Let(k, count - 1 - turn),
                c.Let(found, line_memory[0]),
                c.Store(line_memory, c.Size(0), line_memory[k]),
                c.Evaluate(_call(self.sink, keys, inner, line_memory, c.Size(0), k)),
                *store,
            )
            return (*selected, c.For(turn, c.Size(0), c.Size(count), take))
        is_taken = c.Binary(
            "||", found.compare("==", line_memory[0]), _call(self.is_better, keys, inner, found, line_memory[0])
        )
        next_one = c.If(c.Binary("&&", k.compare("<", count), is_taken), (*store, c.Assign(k, k + 1)))
        return (*selected, c.Declare(k, c.Size(0)), c.For(found, c.Size(0), c.Size(view.size), (next_one,)))

    def is_before(self, left: c.Expression, right: c.Expression) -> c.Expression:
        """Return whether an element, given by number, stands before a different element."""
        return _call(self.before, self.keys[left * self.apart], self.keys[right * self.apart])

    @cached_property
    def before(self) -> c.Callee:
        """``(left, right)``: whether an element stands before a different element."""
        left, right = c.Variable("left", self.type), c.Variable("right", self.type)
        is_before = left.compare(">" if self.is_descending else "<", right)
        if self.type.is_float:
            nan, number = (left, right) if self.is_descending else (right, left)
            is_before = c.Binary("||", is_before, c.Binary("&&", nan.compare("!=", nan), number.compare("==", number)))
        return self.kernel.shared_function(c.Function("before", (left, right), (c.Return(is_before),), c.BOOL))

    @cached_property
    def is_better(self) -> c.Callee:
        """``(keys, apart, left, right)``: whether an element of a line is before another, by number."""
        left, right = c.Variable("left"), c.Variable("right")
        is_first = c.Binary("&&", left.compare("<", right), c.Unary("!", self.is_before(right, left)))
        body = (c.Return(c.Binary("||", self.is_before(left, right), is_first)),)
        return self.kernel.shared_function(c.Function("is_better", (*self.elements, left, right), body, c.BOOL))

    @cached_property
    def order(self) -> c.Callee:
        """``(keys, apart, size, numbers)``: the start of the ordered numbers, in memory of twice a line's size.

        The function merges runs of doubling length, between the halves of the memory.
        """
        numbers, size = c.Buffer("numbers", "int64", c.MemoryAccess.WRITE), self.size
        source_half, target_half, run, pair, k = map(c.Variable, ("from", "to", "run", "pair", "k"))
        begin, middle, end, left, right = map(c.Variable, ("begin", "middle", "end", "left", "right"))
        first, second = numbers[source_half + left], numbers[source_half + right]
        is_left = c.Binary("||", right.compare(">=", end), c.Unary("!", self.is_before(second, first)))
        merge = c.If(
            c.Binary("&&", left.compare("<", middle), is_left),
            (c.Store(numbers, target_half + k, first), c.Assign(left, left + 1)),
            (c.Store(numbers, target_half + k, second), c.Assign(right, right + 1)),
        )
        merge_pair = (
            c.Let(begin, pair * (run * 2)),
            c.Let(middle, c.index_min(begin + run, size)),
            c.Let(end, c.index_min(begin + run * 2, size)),
            *(c.Declare(left, begin), c.Declare(right, middle)),
            c.For(k, begin, end, (merge,)),
        )
        double = (
            c.Let(target_half, size - source_half),
            c.For(pair, c.Size(0), (size + run * 2 - 1) // (run * 2), merge_pair),
            *(c.Assign(source_half, target_half), c.Assign(run, run * 2)),
        )
        body = (
            c.For(k, c.Size(0), size, (c.Store(numbers, k, k),)),
            *(c.Declare(source_half, c.Size(0)), c.Declare(run, c.Size(1))),
            c.While(run.compare("<", size), double),
            c.Return(source_half),
        )
        return self.kernel.shared_function(c.Function("order", (*self.elements, size, numbers), body, c.INDEX))

    @cached_property
    def sink(self) -> c.Callee:
        """``(keys, apart, heap, top, size)``: lets a number sink until no number below stands behind it."""
        heap, size = self.heap, self.size
        first, top, child, moved = map(c.Variable, ("first", "top", "child", "moved"))

        def is_better(left: c.Expression, right: c.Expression) -> c.Expression:
            return _call(self.is_better, *self.elements, heap[left], heap[right])

        has_worse = c.Binary("&&", (child + 1).compare("<", size), is_better(child, child + 1))
        sink = (
            c.If(has_worse, (c.Assign(child, child + 1),)),
            c.If(c.Unary("!", is_better(top, child)), (c.Return(),)),
            c.Let(moved, heap[top]),
            *(c.Store(heap, top, heap[child]), c.Store(heap, child, moved)),
            *(c.Assign(top, child), c.Assign(child, top * 2 + 1)),
        )
        loop = c.While(child.compare("<", size), sink)
        body = (c.Declare(top, first), c.Declare(child, first * 2 + 1), loop)
        return self.kernel.shared_function(c.Function("sink", (*self.elements, heap, first, size), body))

    @cached_property
    def select(self) -> c.Callee:
        """``(keys, apart, size, count, heap)``: makes a heap of the first elements' numbers, the last on top."""
        heap, count, k, turn = self.heap, *map(c.Variable, ("count", "k", "turn"))

        def sink(top: c.Expression) -> c.Evaluate:
            return c.Evaluate(_call(self.sink, *self.elements, heap, top, count))

        is_before = c.Binary("&&", count.compare(">", 0), self.is_before(k, heap[0]))
        take = c.If(is_before, (c.Store(heap, c.Size(0), k), sink(c.Size(0))))
        body = (
            c.For(k, c.Size(0), count, (c.Store(heap, k, k),)),
            c.For(turn, c.Size(0), count // 2, (sink(count // 2 - 1 - turn),)),
            c.For(k, count, self.size, (take,)),
        )
        return self.kernel.shared_function(c.Function("select", (*self.elements, self.size, count, heap), body))


def _write(kernel: Kernel) -> None:
    """Write the kernel of an ordering op, line by line."""
    ordering = _Ordering(kernel)
    line_ps = ordering.view.size * _COMPARISON_PS
    if ordering.is_topk:
        count = dim_of(ordering.step.binding, "k")
        write_lines(kernel, ordering.selected_line, scratch=count, dtype="int64", line_ps=line_ps)
    else:
        scratch = 2 * ordering.view.size
        write_lines(kernel, ordering.sorted_line, scratch=scratch, dtype="int64", line_ps=line_ps * _DEPTH)


def _require(scope: FunctionScope, step: Step) -> None:
    """Require as many elements on the axis as taken by ``topk``."""
    if step.op == "topk":
        require_along(scope, step, dim_of(step.binding, "k"))


FAMILY = KernelFamily(frozenset({"sort", "argsort", "topk"}), reject_nothing, _write, require=_require)
"""Ordering ops."""
