"""Ops that read or write elements at places that a tensor of indices gives, or mark them.

Updates count in row-major order, one after another, so that those that meet give what the reference gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, dim_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.arithmetic import element_product, element_sum
from byoc_ccompiler.kernels.copies import BYTE_PS, MOVE_PS, copy_axes, copy_block, copy_run, loops_around, offset_along
from byoc_ccompiler.kernels.index_checks import index_check, is_unsigned, range_check, resolved
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILIES", "taken_place"]

_WIDE = c.CType("uint64")


def _run_ps(buffer: c.Buffer, count: Dim) -> Dim:
    return count * (dtype_info(buffer.dtype).itemsize * BYTE_PS) + MOVE_PS


def _take(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    shape, count = shape_of(x), product(shape_of(indices))
    axis = axis_of(step.binding, len(shape))
    size, inner = shape[axis], product(shape[axis + 1 :])
    source, places, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    row, at = c.Variable("row"), c.Variable("at")
    checks, place = taken_place(kernel, step, places[row % count if axis else row])
    outer = row // count * size if axis else c.Size(0)
    body = (c.Let(at, place), *copy_run(out, row * inner, source, (outer + at) * inner, inner))
    rows = product(shape[:axis]) * count
    return (*checks, *loops_around(body, [row], [rows], part=0, round_ps=_run_ps(out, inner)))


def taken_place(kernel: Kernel, step: Step, index: c.Expression) -> tuple[c.Block, c.Expression]:
    """Return the checks of all indices of a ``take``, and the place on its axis that one of them means."""
    shape = shape_of(step.operands[0])
    axis = axis_of(step.binding, len(shape))
    size, checks = shape[axis], index_check(kernel, step, axis)
    if step.binding.attrs["mode"] != "clip":
        return checks, resolved(index, size)
    if is_unsigned(index):
        last = c.Size(size - 1)
        is_inside = c.Cast(index, _WIDE).compare("<", c.Cast(last, _WIDE))
        clipped: c.Expression = c.Select(is_inside, c.Cast(index, c.INDEX), last)
    else:
        clipped = c.index_max(c.index_min(c.Cast(index, c.INDEX), size - 1), 0)
    is_full = isinstance(size, int) and size > 0
    return () if is_full else (c.If(c.Size(size).compare("==", 0), checks),), clipped


def _element_loops(
    kernel: Kernel, step: Step, body: Callable[[c.Expression, c.Expression], c.Block], *, part: int | None = None
) -> c.Block:
    """Return the checks of indices that are paired with elements, and the loops over them, which threads may share.

    The body takes the number of an index, row-major, and the offset of its element in operand 0.
    """
    x, indices = step.operands[:2]
    shape, counts, places = shape_of(x), shape_of(indices), kernel.source(indices, "indices")
    axis = axis_of(step.binding, len(shape))
    loops = [c.Variable(f"i{number}") for number in range(len(counts))]
    k, at = c.Variable("k"), c.Variable("at")
    element = offset_along([*loops[:axis], at, *loops[axis + 1 :]], compact_strides(shape))
    number, place = offset_along(loops, compact_strides(counts)), resolved(places[k], shape[axis])
    statements = (c.Let(k, number), c.Let(at, place), *body(k, element))
    checks = index_check(kernel, step, axis)
    return (*checks, *loops_around(statements, loops, counts, part=part, round_ps=product(counts[1:]) * MOVE_PS))


def _gather_elements(kernel: Kernel, step: Step) -> c.Block:
    source, out = kernel.source(step.operands[0]), kernel.target(step.result)
    return _element_loops(kernel, step, lambda k, place: (c.Store(out, k, source[place]),), part=0)


def _tuple_place(kernel: Kernel, step: Step, row: c.Expression, first: int) -> tuple[c.Block, c.Expression]:
    """Return the checks of all tuples of indices, and the number, row-major, of the slice that a row's tuple means.

    They lie along the last axis of operand 1, and mean axes of operand 0 from a first one on.
    """
    x, indices = step.operands[:2]
    counts, places = shape_of(indices), kernel.source(indices, "indices")
    depth = int(str(counts[-1]))
    sizes = shape_of(x)[first : first + depth]
    checks = [check for place in range(depth) for check in index_check(kernel, step, first + place, place)]
    along = [resolved(places[row * depth + place], size) for place, size in enumerate(sizes)]
    return tuple(checks), offset_along(along, compact_strides(sizes))


def _gather_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    counts, batch, source = shape_of(indices), int_of(step.binding, "batch_dims"), kernel.source(x)
    axes = shape_of(x)[batch:]
    depth = int(str(counts[-1]))
    inner, row, at = product(axes[depth:]), c.Variable("row"), c.Variable("at")
    checks, place = _tuple_place(kernel, step, row, batch)
    if batch:
        place = row // product(counts[batch:-1]) * product(axes[:depth]) + place
    body = (c.Let(at, place), *copy_run(kernel.target(step.result), row * inner, source, at * inner, inner))
    return (*checks, *loops_around(body, [row], [product(counts[:-1])], part=0, round_ps=_run_ps(source, inner)))


def _one_hot(kernel: Kernel, step: Step) -> c.Block:
    indices, *ends = step.operands
    shape = shape_of(step.result)
    axis = axis_of(step.binding, len(shape))
    depth, inner = dim_of(step.binding, "depth"), product(shape[axis + 1 :])
    places, out = kernel.source(indices, "indices"), kernel.target(step.result)
    on, off = (
        kernel.constant(end) or kernel.source(end, role)[0] for end, role in zip(ends, ("on", "off"), strict=True)
    )
    row, k = c.Variable("row"), c.Variable("k")
    is_here = resolved(places[row // depth * inner + k], depth).compare("==", row % depth)
    columns = loops_around((c.Store(out, row * inner + k, c.Select(is_here, on, off)),), [k], [inner])
    return loops_around(columns, [row], [product(shape[: axis + 1])], part=0, round_ps=inner * MOVE_PS)


def _whole(kernel: Kernel, step: Step) -> c.Block:
    """Return the statements that copy operand 0 to the result."""
    x = step.operands[0]
    return copy_block(copy_axes([product(shape_of(x))], [1], [1]), kernel.target(step.result), kernel.source(x))


def _combined(step: Step, old: c.Expression, new: c.Expression) -> c.Expression:
    """Return the element of a place when an update has come in."""
    reduction = str(step.binding.attrs["reduction"])
    if reduction == "update":
        return new
    if old.type.dtype == "bool":
        return c.Binary("|" if reduction in ("add", "max") else "&", old, new)
    if reduction in ("min", "max"):  # what is there stays only if it is smaller (larger): a NaN does not
        return c.Select(old.compare("<" if reduction == "min" else ">", new), old, new)
    return element_sum(old, new) if reduction == "add" else element_product(old, new)


def _scatter_elements(kernel: Kernel, step: Step) -> c.Block:
    kernel.source(step.operands[1], "indices")
    news, out = kernel.source(step.operands[2], "updates"), kernel.target(step.result)

    def update(k: c.Expression, place: c.Expression) -> c.Block:
        to = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
        return (c.Alias(to, out, place), c.Store(to, c.Size(0), _combined(step, to[0], news[k])))

    checks, loops = _element_loops(kernel, step, update)
    return (checks, *_whole(kernel, step), loops)


def _scatter_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices, updates = step.operands
    counts, row, k = shape_of(indices), c.Variable("row"), c.Variable("k")
    inner = product(shape_of(x)[int(str(counts[-1])) :])
    checks, place = _tuple_place(kernel, step, row, 0)
    news, out = kernel.source(updates, "updates"), kernel.target(step.result)
    to, come = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE), c.Buffer("from", news.dtype)
    line = loops_around((c.Store(to, k, _combined(step, to[k], come[k])),), [k], [inner])
    body = (c.Alias(to, out, place * inner), c.Alias(come, news, row * inner), *line)
    return (*checks, *_whole(kernel, step), *loops_around(body, [row], [product(counts[:-1])]))


def _scatter_slice(kernel: Kernel, step: Step) -> c.Block:
    x, updates, starts = step.operands
    shape = shape_of(x)
    axis = axis_of(step.binding, len(shape))
    size, length, inner = shape[axis], shape_of(updates)[axis], product(shape[axis + 1 :])
    news, begins, out = kernel.source(updates, "updates"), kernel.source(starts, "starts"), kernel.target(step.result)
    row, at, front = c.Variable("row"), c.Variable("at"), c.Variable("front")
    start = begins[row // product(shape[1:axis]) if shape_of(starts) else 0]
    target, source = (row * size + at) * inner, row * (length * inner)
    checks: c.Block = ()
    place: c.Expression = c.Cast(start, c.INDEX)
    moved: c.Block = (c.Copy(out, target, news, source, c.Size(length * inner)),)
    if step.binding.attrs["mode"] != "circular":
        problem = f"the updates do not fit axis {axis} from a start on"
        bounds = c.Size(0), c.Size(size - length)
        checks = range_check(kernel, step.op, problem, begins, product(shape_of(starts)), *bounds)
    else:
        wrapped = c.Binary("%", c.Cast(start, _WIDE), c.Cast(c.Size(size), _WIDE))
        place = c.Cast(wrapped, c.INDEX) if is_unsigned(start) else c.index_mod(place, size)
        moved = (
            c.Let(front, c.index_min(c.Size(length), c.Size(size) - at)),
            c.Copy(out, target, news, source, front * inner),
            c.Copy(out, row * (size * inner), news, source + front * inner, (length - front) * inner),
        )
    body = (c.Let(at, place), *moved)
    rows = loops_around(body, [row], [product(shape[:axis])], part=0, round_ps=_run_ps(out, length * inner))
    return (*checks, *_whole(kernel, step), *(() if length == 0 or size == 0 else rows))


def _require(scope: FunctionScope, step: Step) -> None:
    """Have sizes checked that symbols hide from the type rules."""
    x, indices, *others = (shape_of(operand) for operand in step.operands)
    match step.op:
        case "gather_elements" | "scatter_elements":
            for updates in others:
                require_equal_sizes(scope, step, 2, updates, indices)
            axis = axis_of(step.binding, len(x))
            least = [0 if place == axis else count for place, count in enumerate(indices)]
            scope.require_at_least(step.op, "operand `x`", x, least)
        case "gather_nd":
            batch = int_of(step.binding, "batch_dims")
            require_equal_sizes(scope, step, 1, indices[:batch], x[:batch])
        case "scatter_nd":
            require_equal_sizes(scope, step, 2, others[0], (*indices[:-1], *x[int(str(indices[-1])) :]))
        case "scatter_slice":
            updates, starts = indices, others[0]
            axis = axis_of(step.binding, len(x))
            require_equal_sizes(scope, step, 1, updates, (*x[:axis], updates[axis], *x[axis + 1 :]))
            require_equal_sizes(scope, step, 2, starts, x[: len(starts)])
            least = [updates[axis] if place == axis else 0 for place in range(len(x))]
            scope.require_at_least(step.op, "operand `x`", x, least)


_MOVERS: Mapping[str, Callable[[Kernel, Step], c.Block]] = {
    "take": _take,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "scatter_slice": _scatter_slice,
}
_COMBINERS = {"scatter_elements": _scatter_elements, "scatter_nd": _scatter_nd}
_WRITERS = {**_MOVERS, **_COMBINERS}


def _write(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


FAMILIES = (
    KernelFamily(frozenset(_MOVERS), reject_nothing, _write, takes_halves=True, require=_require),
    KernelFamily(frozenset(_COMBINERS), reject_nothing, _write, require=_require),
)
"""Ops that move elements from or to places that indices give, and those that may compute with them."""
