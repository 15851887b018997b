"""Ops that put elements in order: sort, argsort, topk. The lower index first among equals; a NaN is the largest."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import product

from byoc_ccompiler.attributes import axis_of, dim_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import AxisView, line_loop, view_along
from byoc_ccompiler.kernels.order_functions import OrderFunctions
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_COMPARISON_PS = 5_000
"""Estimated picoseconds of one comparison and what follows from it."""

_DEPTH = 16
"""How often an element is compared, about, in an axis of tens of thousands."""


def _line_start(line: c.Expression, view: AxisView) -> c.Expression:
    """Return the offset of a line's first element."""
    return line // view.inner * (view.size * view.inner) + line % view.inner


def _sort(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, out = kernel.source(x), kernel.target(step.result)
    functions = OrderFunctions(kernel, source.dtype, descending=flag_of(step.binding, "descending"))
    keys, to = c.Buffer("keys", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    order, k = c.Variable("order"), c.Variable("k")

    def sort(line: c.Expression, mine: c.Buffer) -> c.Block:
        start = _line_start(line, view)
        place = mine[order + k]
        element = keys[place * view.inner] if step.op == "sort" else place
        return (
            c.Alias(keys, source, start),
            c.Alias(to, out, start),
            c.Let(order, functions.order(keys, c.Size(view.inner), c.Size(view.size), mine)),
            c.For(k, c.Size(0), c.Size(view.size), (c.Store(to, k * view.inner, element),)),
        )

    line_ps = view.size * (_COMPARISON_PS * _DEPTH)
    return (line_loop(kernel, sort, view.outer * view.inner, line_ps, scratch=2 * view.size, dtype="int64"),)


def _topk(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    count, inner = dim_of(step.binding, "k"), c.Size(view.inner)
    source = kernel.source(x)
    values, numbers = step.binding.results
    functions = OrderFunctions(kernel, source.dtype, descending=flag_of(step.binding, "largest"))
    keys, k, turn, found, at = c.Buffer("keys", source.dtype), *map(c.Variable, ("k", "turn", "found", "at"))

    def select(line: c.Expression, mine: c.Buffer) -> c.Block:
        stores: list[c.Statement] = []
        if values in kernel.stored:
            stores.append(c.Store(kernel.target(values), at, keys[found * inner]))
        if numbers in kernel.stored:
            stores.append(c.Store(kernel.target(numbers), at, found))
        store = (c.Let(at, (line // view.inner * count + k) * inner + line % view.inner), *stores)
        selected = (
            c.Alias(keys, source, _line_start(line, view)),
            c.Evaluate(functions.select(keys, inner, c.Size(view.size), c.Size(count), mine)),
        )
        if flag_of(step.binding, "sorted"):
            # The last one stands on top of the heap.
            take = (
                c.Let(k, count - 1 - turn),
                c.Let(found, mine[0]),
                c.Store(mine, c.Size(0), mine[k]),
                c.Evaluate(functions.sink(keys, inner, mine, c.Size(0), k)),
                *store,
            )
            return (*selected, c.For(turn, c.Size(0), c.Size(count), take))
        last = mine[0]
        is_taken = c.Binary("||", found.compare("==", last), functions.is_better(keys, inner, found, last))
        next_one = c.If(c.Binary("&&", k.compare("<", count), is_taken), (*store, c.Assign(k, k + 1)))
        return (*selected, c.Declare(k, c.Size(0)), c.For(found, c.Size(0), c.Size(view.size), (next_one,)))

    line_ps = view.size * _COMPARISON_PS
    return (line_loop(kernel, select, view.outer * view.inner, line_ps, scratch=count, dtype="int64"),)


_WRITERS: dict[str, Callable[[Kernel, Step], c.Block]] = {"sort": _sort, "argsort": _sort, "topk": _topk}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that puts elements in order."""
    (step,) = kernel.group.steps
    is_empty = product(shape_of(step.binding.results[0])) == 0
    kernel.finish_block(() if is_empty else _WRITERS[step.op](kernel, step))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the axis checked to have as many elements as ``topk`` takes."""
    if step.op == "topk":
        shape = shape_of(step.operands[0])
        axis = axis_of(step.binding, len(shape))
        least = [dim_of(step.binding, "k") if place == axis else 0 for place in range(len(shape))]
        scope.require_at_least(step.op, "operand `x`", shape, least)


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, require=_require)
"""Ops that put elements in order."""
