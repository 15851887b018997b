"""Checks of index operands by generated C, as the reference makes them: before anything is read or written by them."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel

__all__ = ["index_check", "is_unsigned", "range_check", "resolved"]


def is_unsigned(integer: c.Expression) -> bool:
    """Return whether an integer has no sign."""
    return dtype_info(integer.type.dtype).kind == "uint"


def range_check(
    kernel: Kernel, op: str, problem: str, integers: c.Buffer, count: Dim, low: c.Expression, high: c.Expression
) -> c.Block:
    """Return the statements that fail where an integer lies outside of bounds; the first integer that does is named.

    Args:
        kernel: the kernel that they stand in.
        op: the op's name.
        problem: what is wrong with an integer outside.
        integers: the integers.
        count: how many there are.
        low: the least integer permitted, zero or less.
        high: the greatest one.
    """
    k, index = c.Variable("k"), _wide("index", integers)
    check = c.If(_is_outside(index, low, high), (_fail(kernel, op, problem, index, low, high),))
    return (c.For(k, c.Size(0), c.Size(count), (c.Let(index, c.Cast(integers[k], index.type)), check)),)


def index_check(
    kernel: Kernel, op: str, axis: int, size: Dim, indices: c.Buffer, shape: Sequence[Dim], *, place: int | None = None
) -> c.Block:
    """Return the statements that fail where an index lies outside an axis; negative ones count from its end.

    Args:
        kernel: the kernel that they stand in.
        op: the op's name.
        axis: the number of the axis, for the message.
        size: its size.
        indices: the indices.
        shape: their shape.
        place: the place along the last axis of the indices that is looked at; ``None`` for all.
    """
    k, index = c.Variable("k"), _wide("index", indices)
    count, at = (product(shape), k) if place is None else (product(shape[:-1]), k * shape[-1] + place)
    low, high, problem = c.Size(-size), c.Size(size - 1), f"an index lies outside axis {axis}"
    empty = c.Fail("IndexError", _message(kernel, op, problem, "no index at all: the axis is empty"), (index,))
    fail = c.If(c.Size(size).compare("==", 0), (empty,), (_fail(kernel, op, problem, index, low, high),))
    check = c.If(_is_outside(index, low, high), (fail,))
    return (c.For(k, c.Size(0), c.Size(count), (c.Let(index, c.Cast(indices[at], index.type)), check)),)


def resolved(index: c.Expression, size: Dim) -> c.Expression:
    """Return a checked index counted from the front of an axis of a size."""
    if is_unsigned(index):
        return c.Cast(index, c.INDEX)
    return c.Cast(index, c.INDEX) + c.Select(index.compare("<", 0), c.Size(size), c.Size(0))


def _wide(name: str, integers: c.Buffer) -> c.Variable:
    """Return a variable that holds any of the integers."""
    return c.Variable(name, c.CType("uint64" if is_unsigned(integers[0]) else "int64"))


def _is_outside(index: c.Variable, low: c.Expression, high: c.Expression) -> c.Expression:
    if is_unsigned(index):
        return c.Binary("||", high.compare("<", 0), index.compare(">", c.Cast(high, index.type)))
    return c.Binary("||", index.compare("<", low), index.compare(">", high))


def _fail(kernel: Kernel, op: str, problem: str, index: c.Variable, low: c.Expression, high: c.Expression) -> c.Fail:
    return c.Fail("IndexError", _message(kernel, op, problem, "{} to {}"), (index, low, high))


def _message(kernel: Kernel, op: str, problem: str, expected: str) -> str:
    return f"function `{kernel.scope.symbol}`, op `{op}`: {problem}; got {{}}, expected {expected}"
