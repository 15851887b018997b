"""C functions that put the elements of a line in order, and that select the first ones.

A line is elements that stand ``apart`` in memory; the functions move their numbers, never the elements.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from byoc_core.authoring.c import (
    BOOL,
    INDEX,
    Address,
    Assign,
    Binary,
    Buffer,
    Call,
    Callee,
    CType,
    Declare,
    Evaluate,
    Expression,
    For,
    Function,
    If,
    Let,
    MemoryAccess,
    Return,
    Size,
    Store,
    Unary,
    Variable,
    While,
    index_min,
)

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
        self._type = CType(dtype)
        self._descending = descending
        self._keys, self._apart, self._size = Buffer("keys", dtype), Variable("apart"), Variable("size")

    def order(self, keys: Buffer, apart: Expression, size: Expression, places: Buffer) -> Expression:
        """Return where in scratch memory of twice as many numbers as a line has elements those in order begin."""
        return Call(self._order, (Address(keys, Size(0)), apart, size, Address(places, Size(0))), INDEX)

    def select(self, keys: Buffer, apart: Expression, size: Expression, count: Expression, heap: Buffer) -> Expression:
        """Return the call that makes a heap of the numbers of the first elements, the last of them on top."""
        return Call(self._select, (Address(keys, Size(0)), apart, size, count, Address(heap, Size(0))))

    def sink(self, keys: Buffer, apart: Expression, heap: Buffer, top: Expression, size: Expression) -> Expression:
        """Return the call that lets a number of a heap sink, until none of those below it stands behind it."""
        return Call(self._sink, (Address(keys, Size(0)), apart, Address(heap, Size(0)), top, size))

    def is_better(self, keys: Buffer, apart: Expression, one: Expression, other: Expression) -> Expression:
        """Return whether one element of a line is before another."""
        return Call(self._better, (Address(keys, Size(0)), apart, one, other), BOOL)

    def _element(self, number: Expression) -> Expression:
        return self._keys[number * self._apart]

    def _is_before(self, one: Expression, other: Expression) -> Expression:
        return Call(self._before, (one, other), BOOL)

    @cached_property
    def _before(self) -> Callee:
        """Whether one element stands before another that differs from it."""
        one, other = Variable("one", self._type), Variable("other", self._type)
        is_before = one.compare(">" if self._descending else "<", other)
        if self._type.is_float:
            nan, number = (one, other) if self._descending else (other, one)
            is_before = Binary("||", is_before, Binary("&&", nan.compare("!=", nan), number.compare("==", number)))
        return self._shared(Function("before", (one, other), (Return(is_before),), BOOL))

    @cached_property
    def _better(self) -> Callee:
        one, other = Variable("one"), Variable("other")
        left, right = self._element(one), self._element(other)
        is_first = Binary("&&", one.compare("<", other), Unary("!", self._is_before(right, left)))
        body = (Return(Binary("||", self._is_before(left, right), is_first)),)
        return self._shared(Function("is_better", (self._keys, self._apart, one, other), body, BOOL))

    @cached_property
    def _order(self) -> Callee:
        """Merges runs of doubling length, from one half of the memory to the other."""
        places = Buffer("places", "int64", MemoryAccess.WRITE)
        come, to, run, pair, k = map(Variable, ("from", "to", "run", "pair", "k"))
        begin, middle, end, left, right = map(Variable, ("begin", "middle", "end", "left", "right"))
        first, second = places[come + left], places[come + right]
        is_left = Binary(
            "||",
            right.compare(">=", end),
            Unary("!", self._is_before(self._element(second), self._element(first))),
        )
        merge = If(
            Binary("&&", left.compare("<", middle), is_left),
            (Store(places, to + k, first), Assign(left, left + 1)),
            (Store(places, to + k, second), Assign(right, right + 1)),
        )
        merge_pair = (
            Let(begin, pair * (run * 2)),
            Let(middle, index_min(begin + run, self._size)),
            Let(end, index_min(begin + run * 2, self._size)),
            Declare(left, begin),
            Declare(right, middle),
            For(k, begin, end, (merge,)),
        )
        pairs = (self._size + run * 2 - 1) // (run * 2)
        double = (
            Let(to, self._size - come),
            For(pair, Size(0), pairs, merge_pair),
            Assign(come, to),
            Assign(run, run * 2),
        )
        body = (
            For(k, Size(0), self._size, (Store(places, k, k),)),
            Declare(come, Size(0)),
            Declare(run, Size(1)),
            While(run.compare("<", self._size), double),
            Return(come),
        )
        return self._shared(Function("order", (self._keys, self._apart, self._size, places), body, INDEX), writes=(3,))

    @cached_property
    def _sink(self) -> Callee:
        heap = Buffer("heap", "int64", MemoryAccess.WRITE)
        first, top, child, moved = map(Variable, ("first", "top", "child", "moved"))

        def is_better(one: Expression, other: Expression) -> Expression:
            return self.is_better(self._keys, self._apart, heap[one], heap[other])

        has_worse = Binary("&&", (child + 1).compare("<", self._size), is_better(child, child + 1))
        sink = (
            If(has_worse, (Assign(child, child + 1),)),
            If(Unary("!", is_better(top, child)), (Return(),)),
            Let(moved, heap[top]),
            Store(heap, top, heap[child]),
            Store(heap, child, moved),
            Assign(top, child),
            Assign(child, top * 2 + 1),
        )
        body = (
            Declare(top, first),
            Declare(child, first * 2 + 1),
            While(child.compare("<", self._size), sink),
        )
        return self._shared(Function("sink", (self._keys, self._apart, heap, first, self._size), body), writes=(2,))

    @cached_property
    def _select(self) -> Callee:
        heap, count = Buffer("heap", "int64", MemoryAccess.WRITE), Variable("count")
        k, turn = Variable("k"), Variable("turn")

        def sink(top: Expression) -> Evaluate:
            return Evaluate(self.sink(self._keys, self._apart, heap, top, count))

        is_before = self._is_before(self._element(k), self._element(heap[0]))
        body = (
            For(k, Size(0), count, (Store(heap, k, k),)),
            For(turn, Size(0), count // 2, (sink(count // 2 - 1 - turn),)),
            For(
                k,
                count,
                self._size,
                (If(Binary("&&", count.compare(">", 0), is_before), (Store(heap, Size(0), k), sink(Size(0)))),),
            ),
        )
        parameters = (self._keys, self._apart, self._size, count, heap)
        return self._shared(Function("select", parameters, body), writes=(4,))

    def _shared(self, function: Function, writes: tuple[int, ...] = ()) -> Callee:
        return replace(self._kernel.shared_function(function), writes=writes)
