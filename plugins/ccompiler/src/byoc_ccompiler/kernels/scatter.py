"""Ops that give a copy of a tensor with elements written at places that a tensor of indices gives.

Updates count in row-major order, one after another, so that those that meet give what the reference gives.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.arithmetic import element_product, element_sum
from byoc_ccompiler.kernels.copies import BYTE_PS, MOVE_PS, copy_axes, copy_block
from byoc_ccompiler.kernels.index_checks import index_check, is_unsigned, range_check
from byoc_ccompiler.kernels.indexing import element_loops, tuple_place
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILIES"]


def _whole(kernel: Kernel, step: Step) -> c.Block:
    """Return the statements that copy the operand to the result."""
    x = step.operands[0]
    return copy_block(copy_axes([product(shape_of(x))], [1], [1]), kernel.target(step.result), kernel.source(x))


def _combined(step: Step, old: c.Expression, new: c.Expression) -> c.Expression:
    """Return what stands at a place when an update has come in."""
    reduction = str(step.binding.attrs["reduction"])
    if reduction == "update":
        return new
    if old.type.dtype == "bool":
        return c.Binary("|" if reduction in ("add", "max") else "&", old, new)
    if reduction in ("min", "max"):  # what is there stays only if it is smaller (larger): a NaN does not
        return c.Select(old.compare("<" if reduction == "min" else ">", new), old, new)
    return element_sum(old, new) if reduction == "add" else element_product(old, new)


def _scatter_elements(kernel: Kernel, step: Step) -> c.Block:
    _, indices, updates = step.operands
    kernel.source(indices, "indices")
    news, out = kernel.source(updates, "updates"), kernel.target(step.result)

    def update(k: c.Expression, place: c.Expression) -> c.Block:
        to = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
        return (c.Alias(to, out, place), c.Store(to, c.Size(0), _combined(step, to[0], news[k])))

    checks, loops = element_loops(kernel, step, update)
    return (checks, *_whole(kernel, step), loops)


def _scatter_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices, updates = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    depth = int(str(counts[-1]))
    inner = product(shape[depth:])
    places, news = kernel.source(indices, "indices"), kernel.source(updates, "updates")
    out = kernel.target(step.result)
    checks: c.Block = ()
    for place in range(depth):
        checks += index_check(kernel, step.op, place, shape[place], places, counts, place=place)
    row, k = c.Variable("row"), c.Variable("k")
    to, come = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE), c.Buffer("from", news.dtype)
    body = (
        c.Alias(to, out, tuple_place(step, places, row, 0) * inner),
        c.Alias(come, news, row * inner),
        c.For(k, c.Size(0), c.Size(inner), (c.Store(to, k, _combined(step, to[k], come[k])),)),
    )
    return (*checks, *_whole(kernel, step), c.For(row, c.Size(0), c.Size(product(counts[:-1])), body))


def _scatter_slice(kernel: Kernel, step: Step) -> c.Block:
    x, updates, starts = step.operands
    shape = shape_of(x)
    axis = axis_of(step.binding, len(shape))
    size, length, inner = shape[axis], shape_of(updates)[axis], product(shape[axis + 1 :])
    news, begins = kernel.source(updates, "updates"), kernel.source(starts, "starts")
    out = kernel.target(step.result)
    row, at = c.Variable("row"), c.Variable("at")
    start = begins[row // product(shape[1:axis]) if shape_of(starts) else 0]
    target, source = (row * size + at) * inner, row * (length * inner)
    checks: c.Block = ()
    if step.binding.attrs["mode"] == "circular":
        place, front = _wrapped(start, size), c.Variable("front")
        moved: c.Block = (
            c.Let(front, c.index_min(c.Size(length), c.Size(size) - at)),
            c.Copy(out, target, news, source, front * inner),
            c.Copy(out, row * (size * inner), news, source + front * inner, (length - front) * inner),
        )
    else:
        place = c.Cast(start, c.INDEX)
        problem = f"the updates do not fit axis {axis} from a start on"
        count = product(shape_of(starts))
        checks = range_check(kernel, step.op, problem, begins, count, c.Size(0), c.Size(size - length))
        moved = (c.Copy(out, target, news, source, c.Size(length * inner)),)
    row_ps = length * inner * (dtype_info(out.dtype).itemsize * BYTE_PS) + MOVE_PS
    rows = c.For(
        row,
        c.Size(0),
        c.Size(product(shape[:axis])),
        (c.Let(at, place), *moved),
        kind=c.LoopKind.PARALLEL,
        round_ps=row_ps,
    )
    return (*checks, *_whole(kernel, step), *(() if length == 0 or size == 0 else (rows,)))


def _wrapped(start: c.Expression, size: Dim) -> c.Expression:
    """Return a start on an axis that goes round."""
    if not is_unsigned(start):
        return c.index_mod(c.Cast(start, c.INDEX), size)
    wide = c.CType("uint64")
    return c.Cast(c.Binary("%", c.Cast(start, wide), c.Cast(c.Size(size), wide)), c.INDEX)


_WRITERS: dict[str, Callable[[Kernel, Step], c.Block]] = {
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "scatter_slice": _scatter_slice,
}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that writes at indices."""
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shapes = [shape_of(operand) for operand in step.operands]
    if step.op == "scatter_nd":
        depth = int(str(shapes[1][-1]))
        require_equal_sizes(scope, step, 2, shapes[2], (*shapes[1][:-1], *shapes[0][depth:]))
        return
    axis = axis_of(step.binding, len(shapes[0]))
    if step.op == "scatter_elements":
        require_equal_sizes(scope, step, 2, shapes[2], shapes[1])
        least = [0 if place == axis else count for place, count in enumerate(shapes[1])]
        scope.require_at_least(step.op, "operand `x`", shapes[0], least)
        return
    x, updates, starts = shapes
    require_equal_sizes(scope, step, 1, updates, (*x[:axis], updates[axis], *x[axis + 1 :]))
    require_equal_sizes(scope, step, 2, starts, x[: len(starts)])
    scope.require_at_least(step.op, "operand `x`", x, [0] * axis + [updates[axis]] + [0] * (len(x) - axis - 1))


FAMILIES = (
    KernelFamily(frozenset({"scatter_elements", "scatter_nd"}), reject_nothing, _write, require=_require),
    KernelFamily(frozenset({"scatter_slice"}), reject_nothing, _write, takes_halves=True, require=_require),
)
"""Ops that write elements at indices."""
