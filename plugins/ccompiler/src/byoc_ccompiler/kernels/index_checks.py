"""Checks of index operands by generated C, as the reference makes them: before anything is read or written by them."""

from __future__ import annotations

from byoc_core.authoring.csource import c_dim
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["index_check", "range_check", "resolved"]


def range_check(kernel: Kernel, op: str, problem: str, pointer: str, indices: Value, low: str, high: str) -> list[str]:
    """Gives the lines that fail where an integer lies outside of bounds; the first that does is named.

    Args:
        kernel: what they stand in; from now on it can fail.
        op: the op's name.
        problem: what is wrong with an integer outside.
        pointer: the C name of the pointer to the integers.
        indices: the value that they are.
        low: the least one permitted, zero or less; a C expression of type int64_t without effects.
        high: the greatest one, the same.
    """
    return _check(kernel, op, problem, f"{pointer}[k]", indices, (low, high), product(shape_of(indices)))


def index_check(
    kernel: Kernel, op: str, axis: int, size: Dim, pointer: str, indices: Value, *, place: int | None = None
) -> list[str]:
    """Gives the lines that fail where an index lies outside an axis; negative ones count from its end.

    Args:
        kernel: what they stand in; from now on it can fail.
        op: the op's name.
        axis: the number of the axis, for the message.
        size: its size.
        pointer: the C name of the pointer to the indices.
        indices: the value that they are.
        place: the place along the last axis of the indices that is looked at; ``None`` for all.
    """
    shape = shape_of(indices)
    count, element = product(shape), f"{pointer}[k]"
    if place is not None:
        count, element = product(shape[:-1]), f"{pointer}[k * {c_dim(shape[-1])} + {place}]"
    bounds = (f"-{c_dim(size)}", f"{c_dim(size)} - 1")
    return _check(kernel, op, f"an index lies outside axis {axis}", element, indices, bounds, count, size)


def resolved(element: str, indices: Value, size: Dim) -> str:
    """Gives the C expression of a checked index counted from the front.

    Args:
        element: the C expression of the index, without effects.
        indices: the value that it is one of.
        size: the size of the axis.
    """
    if _is_unsigned(indices):
        return f"(int64_t){element}"
    return f"((int64_t){element} + ({element} < 0 ? {c_dim(size)} : 0))"


def _is_unsigned(indices: Value) -> bool:
    return dtype_info(dtype_of(indices)).kind == "uint"


def _check(
    kernel: Kernel,
    op: str,
    problem: str,
    element: str,
    indices: Value,
    bounds: tuple[str, str],
    count: Dim,
    size: Dim | None = None,
) -> list[str]:
    kernel.can_fail = True
    low, high = bounds
    if _is_unsigned(indices):
        ctype, outside = "uint64_t", f"{high} < 0 || index > (uint64_t)({high})"
        got, shown = "%llu", "(unsigned long long)index"
    else:
        ctype, outside = "int64_t", f"index < {low} || index > {high}"
        got, shown = "%lld", "(long long)index"
    start = (
        f'return byoc_fail("IndexError", "function `{kernel.scope.symbol}`, op `{op}`: {problem}; got {got}, expected'
    )
    lines = [f"    if ({outside}) {{"]
    if size is not None and (size == 0 or not isinstance(size, int)):
        lines.append(f'      if ({c_dim(size)} == 0) {start} no index at all: the axis is empty", {shown});')
    lines += [f'      {start} %lld to %lld", {shown}, (long long)({low}), (long long)({high}));', "    }"]
    head = f"  for (int64_t k = 0; k < {c_dim(count)}; ++k) {{"
    return [head, f"    const {ctype} index = ({ctype}){element};", *lines, "  }"]
