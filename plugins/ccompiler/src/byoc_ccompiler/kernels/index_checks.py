"""Checks of index operands by generated C, as the reference makes them: before anything is read or written by them."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["index_check", "is_unsigned", "range_check", "resolved"]


def is_unsigned(integer: c.Expression) -> bool:
    """Return whether an integer has no sign."""
    return dtype_info(integer.type.dtype).kind == "uint"


def range_check(
    kernel: Kernel, op: str, problem: str, integers: c.Buffer, count: Dim, low: c.Expression, high: c.Expression
) -> c.Block:
    """Return the statements that fail where one of so many integers lies outside of bounds; the first one is named.

    The lower bound is zero or less.
    """
    return _check(integers, (count, 1, 0), low, high, _message(kernel, op, problem))


def index_check(kernel: Kernel, step: Step, axis: int, place: int | None = None) -> c.Block:
    """Return the statements that fail where an index of operand 1 lies outside an axis of operand 0.

    All are looked at, or only those at a place along the last axis; negative ones count from the axis's end.
    """
    x, indices = step.operands[:2]
    size, shape = shape_of(x)[axis], shape_of(indices)
    where = (product(shape), 1, 0) if place is None else (product(shape[:-1]), shape[-1], place)
    integers, message = (
        kernel.source(indices, "indices"),
        _message(kernel, step.op, f"an index lies outside axis {axis}"),
    )
    return _check(integers, where, c.Size(-size), c.Size(size - 1), message, axis_size=size)


def resolved(index: c.Expression, size: Dim) -> c.Expression:
    """Return a checked index counted from the front of an axis of a size."""
    front = c.Cast(index, c.INDEX)
    return front if is_unsigned(index) else front + c.Select(index.compare("<", 0), c.Size(size), c.Size(0))


def _message(kernel: Kernel, op: str, problem: str) -> str:
    return f"function `{kernel.scope.symbol}`, op `{op}`: {problem}; got {{}}, expected "


def _check(
    integers: c.Buffer,
    where: tuple[Dim, Dim, int],
    low: c.Expression,
    high: c.Expression,
    message: str,
    axis_size: Dim | None = None,
) -> c.Block:
    """Return the loop over integers, so many, so far apart and from a place on; an empty axis has no bounds to name."""
    count, apart, first = where
    k, index = c.Variable("k"), c.Variable("index", c.CType("uint64" if is_unsigned(integers[0]) else "int64"))
    if is_unsigned(index):
        is_outside = c.Binary("||", high.compare("<", 0), index.compare(">", c.Cast(high, index.type)))
    else:
        is_outside = c.Binary("||", index.compare("<", low), index.compare(">", high))
    fail: c.Statement = c.Fail("IndexError", message + "{} to {}", (index, low, high))
    if axis_size is not None:
        empty = c.Fail("IndexError", message + "no index at all: the axis is empty", (index,))
        fail = c.If(c.Size(axis_size).compare("==", 0), (empty,), (fail,))
    body = (c.Let(index, c.Cast(integers[k * apart + first], index.type)), c.If(is_outside, (fail,)))
    return (c.For(k, c.Size(0), c.Size(count), body),)
