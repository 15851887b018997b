"""C functions that put the elements of a line in order, and that select the first ones.

A line is elements that stand ``apart`` in memory; the functions move their numbers, never the elements.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from byoc_core.authoring import c

from byoc_ccompiler.kernel import Kernel

__all__ = ["OrderFunctions"]


class OrderFunctions:
    """Functions on lines of one dtype, in one direction. Among equals the lower number is first; a NaN is the largest.

    Args:
        kernel: the kernel that calls them.
        dtype: the dtype of the elements.
        descending: whether the largest element is first.
    """

    def __init__(self, kernel: Kernel, dtype: str, *, descending: bool) -> None:
        self._kernel = kernel
        self._type = c.CType(dtype)
        self._descending = descending
        self._keys, self._apart, self._size = c.Buffer("keys", dtype), c.Variable("apart"), c.Variable("size")

    def order(self, keys: c.Buffer, apart: c.Expression, size: c.Expression, places: c.Buffer) -> c.Expression:
        """Return where in scratch memory of twice as many numbers as a line has elements those in order begin."""
        return c.Call(self._order, (c.Address(keys, c.Size(0)), apart, size, c.Address(places, c.Size(0))), c.INDEX)

    def select(
        self, keys: c.Buffer, apart: c.Expression, size: c.Expression, count: c.Expression, heap: c.Buffer
    ) -> c.Expression:
        """Return the call that makes a heap of the numbers of the first elements, the last of them on top."""
        return c.Call(self._select, (c.Address(keys, c.Size(0)), apart, size, count, c.Address(heap, c.Size(0))))

    def sink(
        self, keys: c.Buffer, apart: c.Expression, heap: c.Buffer, top: c.Expression, size: c.Expression
    ) -> c.Expression:
        """Return the call that lets a number of a heap sink, until none of those below it stands behind it."""
        return c.Call(self._sink, (c.Address(keys, c.Size(0)), apart, c.Address(heap, c.Size(0)), top, size))

    def is_better(self, keys: c.Buffer, apart: c.Expression, one: c.Expression, other: c.Expression) -> c.Expression:
        """Return whether one element of a line is before another."""
        return c.Call(self._better, (c.Address(keys, c.Size(0)), apart, one, other), c.BOOL)

    def _element(self, number: c.Expression) -> c.Expression:
        return self._keys[number * self._apart]

    def _is_before(self, one: c.Expression, other: c.Expression) -> c.Expression:
        return c.Call(self._before, (one, other), c.BOOL)

    @cached_property
    def _before(self) -> c.Callee:
        """Whether one element stands before another that differs from it."""
        one, other = c.Variable("one", self._type), c.Variable("other", self._type)
        is_before = one.compare(">" if self._descending else "<", other)
        if self._type.is_float:
            nan, number = (one, other) if self._descending else (other, one)
            is_before = c.Binary("||", is_before, c.Binary("&&", nan.compare("!=", nan), number.compare("==", number)))
        return self._shared(c.Function("before", (one, other), (c.Return(is_before),), c.BOOL))

    @cached_property
    def _better(self) -> c.Callee:
        one, other = c.Variable("one"), c.Variable("other")
        left, right = self._element(one), self._element(other)
        is_first = c.Binary("&&", one.compare("<", other), c.Unary("!", self._is_before(right, left)))
        body = (c.Return(c.Binary("||", self._is_before(left, right), is_first)),)
        return self._shared(c.Function("is_better", (self._keys, self._apart, one, other), body, c.BOOL))

    @cached_property
    def _order(self) -> c.Callee:
        """Merges runs of doubling length, from one half of the memory to the other."""
        places = c.Buffer("places", "int64", c.MemoryAccess.WRITE)
        come, to, run, pair, k = map(c.Variable, ("from", "to", "run", "pair", "k"))
        begin, middle, end, left, right = map(c.Variable, ("begin", "middle", "end", "left", "right"))
        first, second = places[come + left], places[come + right]
        is_left = c.Binary(
            "||",
            right.compare(">=", end),
            c.Unary("!", self._is_before(self._element(second), self._element(first))),
        )
        merge = c.If(
            c.Binary("&&", left.compare("<", middle), is_left),
            (c.Store(places, to + k, first), c.Assign(left, left + 1)),
            (c.Store(places, to + k, second), c.Assign(right, right + 1)),
        )
        merge_pair = (
            c.Let(begin, pair * (run * 2)),
            c.Let(middle, c.index_min(begin + run, self._size)),
            c.Let(end, c.index_min(begin + run * 2, self._size)),
            c.Declare(left, begin),
            c.Declare(right, middle),
            c.For(k, begin, end, (merge,)),
        )
        pairs = (self._size + run * 2 - 1) // (run * 2)
        double = (
            c.Let(to, self._size - come),
            c.For(pair, c.Size(0), pairs, merge_pair),
            c.Assign(come, to),
            c.Assign(run, run * 2),
        )
        body = (
            c.For(k, c.Size(0), self._size, (c.Store(places, k, k),)),
            c.Declare(come, c.Size(0)),
            c.Declare(run, c.Size(1)),
            c.While(run.compare("<", self._size), double),
            c.Return(come),
        )
        return self._shared(
            c.Function("order", (self._keys, self._apart, self._size, places), body, c.INDEX), writes=(3,)
        )

    @cached_property
    def _sink(self) -> c.Callee:
        heap = c.Buffer("heap", "int64", c.MemoryAccess.WRITE)
        first, top, child, moved = map(c.Variable, ("first", "top", "child", "moved"))

        def is_better(one: c.Expression, other: c.Expression) -> c.Expression:
            return self.is_better(self._keys, self._apart, heap[one], heap[other])

        has_worse = c.Binary("&&", (child + 1).compare("<", self._size), is_better(child, child + 1))
        sink = (
            c.If(has_worse, (c.Assign(child, child + 1),)),
            c.If(c.Unary("!", is_better(top, child)), (c.Return(),)),
            c.Let(moved, heap[top]),
            c.Store(heap, top, heap[child]),
            c.Store(heap, child, moved),
            c.Assign(top, child),
            c.Assign(child, top * 2 + 1),
        )
        body = (
            c.Declare(top, first),
            c.Declare(child, first * 2 + 1),
            c.While(child.compare("<", self._size), sink),
        )
        return self._shared(c.Function("sink", (self._keys, self._apart, heap, first, self._size), body), writes=(2,))

    @cached_property
    def _select(self) -> c.Callee:
        heap, count = c.Buffer("heap", "int64", c.MemoryAccess.WRITE), c.Variable("count")
        k, turn = c.Variable("k"), c.Variable("turn")

        def sink(top: c.Expression) -> c.Evaluate:
            return c.Evaluate(self.sink(self._keys, self._apart, heap, top, count))

        is_before = self._is_before(self._element(k), self._element(heap[0]))
        body = (
            c.For(k, c.Size(0), count, (c.Store(heap, k, k),)),
            c.For(turn, c.Size(0), count // 2, (sink(count // 2 - 1 - turn),)),
            c.For(
                k,
                count,
                self._size,
                (
                    c.If(
                        c.Binary("&&", count.compare(">", 0), is_before), (c.Store(heap, c.Size(0), k), sink(c.Size(0)))
                    ),
                ),
            ),
        )
        parameters = (self._keys, self._apart, self._size, count, heap)
        return self._shared(c.Function("select", parameters, body), writes=(4,))

    def _shared(self, function: c.Function, writes: tuple[int, ...] = ()) -> c.Callee:
        return replace(self._kernel.shared_function(function), writes=writes)
