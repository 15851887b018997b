"""Ops reading, writing or marking elements at indices given by a tensor.

Indices are checked as in the reference: before any access through them. Updates apply one after another, in row-major
order; updates of the same element give the result of the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, dim_of, int_of
from byoc_ccompiler.family import KernelFamily, writer_by_table
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.axes import require_along, view_of
from byoc_ccompiler.kernels.copies import copy_nest, copy_run, loops_around, offset_along
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILIES", "range_check", "taken_index"]

_WIDE = c.CType("uint64")


def range_check(
    kernel: Kernel, op: str, problem: str, integers: c.Buffer, count: Dim, low: c.Expression, high: c.Expression
) -> c.Block:
    """Return the statements failing on the first of ``count`` integers outside of bounds, and naming the integer.

    The lower bound is zero or less.
    """
    k = c.Variable("k")
    return loops_around(_check(kernel, op, problem, integers[k], low, high, is_index=False), [k], [count])


def _index_check(kernel: Kernel, step: Step, axis: int, component: int | None = None) -> c.Block:
    """Return the statements failing on an index of operand 1 outside an axis of operand 0.

    The check covers all indices, or only a component of tuples along the last axis; negative indices count from the
    end of the axis.
    """
    x, indices = step.operands[:2]
    k, size, shape = c.Variable("k"), shape_of(x)[axis], shape_of(indices)
    count, number = (product(shape), k) if component is None else (product(shape[:-1]), k * shape[-1] + component)
    integer, problem = kernel.source(indices, "indices")[number], f"an index lies outside axis {axis}"
    check = _check(kernel, step.op, problem, integer, c.Size(-size), c.Size(size - 1), is_index=True)
    return loops_around(check, [k], [count])


def _check(
    kernel: Kernel, op: str, problem: str, integer: c.Expression, low: c.Expression, high: c.Expression, is_index: bool
) -> c.Block:
    """Return the check of an integer; an index into an empty axis has no bounds to name."""
    index = c.Variable("index", c.CType("uint64" if _is_unsigned(integer) else "int64"))
    is_outside = c.Binary("||", index.compare("<", low), index.compare(">", high))
    if _is_unsigned(integer):
        is_outside = c.Binary("||", high.compare("<", 0), index.compare(">", c.Cast(high, index.type)))
    message = f"function `{kernel.scope.symbol}`, op `{op}`: {problem}; got {{}}, expected "
    fail: c.Statement = c.Fail("IndexError", message + "{} to {}", (index, low, high))
    if is_index:
        empty = c.Fail("IndexError", message + "no index at all: the axis is empty", (index,))
        fail = c.If((high + 1).compare("==", 0), (empty,), (fail,))
    return (c.Let(index, c.Cast(integer, index.type)), c.If(is_outside, (fail,)))


def _is_unsigned(integer: c.Expression) -> bool:
    return dtype_info(integer.type.dtype).kind == "uint"


def _resolved(index: c.Expression, size: Dim) -> c.Expression:
    """Return a checked index counted from the front of an axis of a size."""
    front = c.Cast(index, c.INDEX)
    return front if _is_unsigned(index) else front + c.Select(index.compare("<", 0), c.Size(size), c.Size(0))


def _rows(
    out: c.Buffer, row: c.Variable, count: Dim, source: c.Buffer, first: c.Expression, index: c.Expression, inner: Dim
) -> c.Block:
    """Return the loop copying rows of ``inner`` elements, each from an index behind a first row."""
    at = c.Variable("at")
    body = (c.Let(at, index), *copy_run(out, row * inner, source, (first + at) * inner, inner))
    return loops_around(body, [row], [count], part=0)


def _take(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    (outer, size, inner), count, row = view_of(step), product(shape_of(indices)), c.Variable("row")
    source, index_buffer, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    is_first = axis_of(step.binding, len(shape_of(x))) == 0
    checks, index = taken_index(kernel, step, index_buffer[row if is_first else row % count])
    first = c.Size(0) if is_first else row // count * size
    return (*checks, *_rows(out, row, outer * count, source, first, index, inner))


def taken_index(kernel: Kernel, step: Step, index: c.Expression) -> tuple[c.Block, c.Expression]:
    """Return the checks of all indices of a ``take``, and the valid index on the axis meant by an index."""
    shape = shape_of(step.operands[0])
    axis = axis_of(step.binding, len(shape))
    size, checks = shape[axis], _index_check(kernel, step, axis)
    if step.binding.attrs["mode"] != "clip":
        return checks, _resolved(index, size)
    if _is_unsigned(index):
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
    """Return the checks of indices paired with elements, and the loops over the pairs, optionally shared by threads.

    The body takes the number of an index, row-major, and the offset of the element in operand 0.
    """
    x, indices = step.operands[:2]
    shape, counts, index_buffer = shape_of(x), shape_of(indices), kernel.source(indices, "indices")
    axis = axis_of(step.binding, len(shape))
    loops = [c.Variable(f"i{number}") for number in range(len(counts))]
    k, at = c.Variable("k"), c.Variable("at")
    element = offset_along([*loops[:axis], at, *loops[axis + 1 :]], compact_strides(shape))
    number, index = offset_along(loops, compact_strides(counts)), _resolved(index_buffer[k], shape[axis])
    statements = (c.Let(k, number), c.Let(at, index), *body(k, element))
    checks = _index_check(kernel, step, axis)
    return (*checks, *loops_around(statements, loops, counts, part=part))


def _gather_elements(kernel: Kernel, step: Step) -> c.Block:
    source, out = kernel.source(step.operands[0]), kernel.target(step.result)
    return _element_loops(kernel, step, lambda k, offset: (c.Store(out, k, source[offset]),), part=0)


def _slice_number(kernel: Kernel, step: Step, row: c.Expression, first: int) -> tuple[c.Block, c.Expression]:
    """Return the checks of all tuples of indices, and the row-major number of the slice meant by a row's tuple.

    The tuples lie along the last axis of operand 1, and mean axes of operand 0 from a first axis on.
    """
    x, indices = step.operands[:2]
    counts, index_buffer = shape_of(indices), kernel.source(indices, "indices")
    depth = int(str(counts[-1]))
    sizes = shape_of(x)[first : first + depth]
    checks = [check for component in range(depth) for check in _index_check(kernel, step, first + component, component)]
    along = [_resolved(index_buffer[row * depth + component], size) for component, size in enumerate(sizes)]
    return tuple(checks), offset_along(along, compact_strides(sizes))


def _gather_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    counts, batch, row = shape_of(indices), int_of(step.binding, "batch_dims"), c.Variable("row")
    source, depth, axes = kernel.source(x), int(str(counts[-1])), shape_of(x)[batch:]
    checks, slice_number = _slice_number(kernel, step, row, batch)
    if batch:
        slice_number = row // product(counts[batch:-1]) * product(axes[:depth]) + slice_number
    out, inner = kernel.target(step.result), product(axes[depth:])
    return (*checks, *_rows(out, row, product(counts[:-1]), source, c.Size(0), slice_number, inner))


def _one_hot(kernel: Kernel, step: Step) -> c.Block:
    indices, *ends = step.operands
    shape, depth = shape_of(step.result), dim_of(step.binding, "depth")
    axis = axis_of(step.binding, len(shape))
    inner, row, k = product(shape[axis + 1 :]), c.Variable("row"), c.Variable("k")
    index_buffer, out, roles = kernel.source(indices, "indices"), kernel.target(step.result), ("on", "off")
    on, off = (kernel.constant(end) or kernel.source(end, role)[0] for end, role in zip(ends, roles, strict=True))
    is_on = _resolved(index_buffer[row // depth * inner + k], depth).compare("==", row % depth)
    columns = loops_around((c.Store(out, row * inner + k, c.Select(is_on, on, off)),), [k], [inner])
    return loops_around(columns, [row], [product(shape[: axis + 1])], part=0)


def _copy_operand(kernel: Kernel, step: Step) -> c.Block:
    """Return the statements copying operand 0 to the result."""
    x = step.operands[0]
    return kernel.lower(*copy_nest(kernel.target(step.result), kernel.source(x), [product(shape_of(x))], [1], [1]))


def _combined(step: Step, old: c.Expression, new: c.Expression) -> c.Expression:
    """Return an element after an update."""
    reduction = str(step.binding.attrs["reduction"])
    if reduction == "update":
        return new
    if old.type.dtype == "bool":
        return c.Binary("|" if reduction in ("add", "max") else "&", old, new)
    if reduction in ("min", "max"):  # the old element stays only if smaller (larger): a NaN does not
        return c.Select(old.compare("<" if reduction == "min" else ">", new), old, new)
    return element_sum(old, new) if reduction == "add" else element_product(old, new)


def _scatter_elements(kernel: Kernel, step: Step) -> c.Block:
    kernel.source(step.operands[1], "indices")
    update_buffer, out = kernel.source(step.operands[2], "updates"), kernel.target(step.result)

    def update(k: c.Expression, offset: c.Expression) -> c.Block:
        to = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
        return (c.Alias(to, out, offset), c.Store(to, c.Size(0), _combined(step, to[0], update_buffer[k])))

    checks, loops = _element_loops(kernel, step, update)
    return (checks, *_copy_operand(kernel, step), loops)


def _scatter_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices, updates = step.operands
    counts, row, k = shape_of(indices), c.Variable("row"), c.Variable("k")
    inner = product(shape_of(x)[int(str(counts[-1])) :])
    checks, slice_number = _slice_number(kernel, step, row, 0)
    update_buffer, out = kernel.source(updates, "updates"), kernel.target(step.result)
    to, from_ = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE), c.Buffer("from", update_buffer.dtype)
    line = loops_around((c.Store(to, k, _combined(step, to[k], from_[k])),), [k], [inner])
    body = (c.Alias(to, out, slice_number * inner), c.Alias(from_, update_buffer, row * inner), *line)
    return (*checks, *_copy_operand(kernel, step), *loops_around(body, [row], [product(counts[:-1])]))


def _scatter_slice(kernel: Kernel, step: Step) -> c.Block:
    x, updates, starts = step.operands
    axis = axis_of(step.binding, len(shape_of(x)))
    outer, size, inner = view_of(step)
    length, row, at, front = shape_of(updates)[axis], c.Variable("row"), c.Variable("at"), c.Variable("front")
    update_buffer, begins, out = (
        kernel.source(updates, "updates"),
        kernel.source(starts, "starts"),
        kernel.target(step.result),
    )
    start = begins[row // product(shape_of(x)[1:axis]) if shape_of(starts) else 0]
    target, source = (row * size + at) * inner, row * (length * inner)
    first_index: c.Expression = c.Cast(start, c.INDEX)
    if step.binding.attrs["mode"] == "circular":
        checks: c.Block = ()
        wrapped = c.Binary("%", c.Cast(start, _WIDE), c.Cast(c.Size(size), _WIDE))
        first_index = c.Cast(wrapped, c.INDEX) if _is_unsigned(start) else c.index_mod(first_index, size)
        moved: c.Block = (
            c.Let(front, c.index_min(c.Size(length), c.Size(size) - at)),
            c.Copy(out, target, update_buffer, source, front * inner),
            c.Copy(out, row * (size * inner), update_buffer, source + front * inner, (length - front) * inner),
        )
    else:
        problem, count = f"the updates do not fit axis {axis} from a start on", product(shape_of(starts))
        checks = range_check(kernel, step.op, problem, begins, count, c.Size(0), c.Size(size - length))
        moved = (c.Copy(out, target, update_buffer, source, c.Size(length * inner)),)
    rows = loops_around((c.Let(at, first_index), *moved), [row], [outer], part=0)
    return (*checks, *_copy_operand(kernel, step), *(() if length == 0 or size == 0 else rows))


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    x, indices, *other_shapes = (shape_of(operand) for operand in step.operands)
    if step.op in ("gather_elements", "scatter_elements"):
        for updates in other_shapes:
            require_equal_sizes(scope, step, 2, updates, indices)
        axis = axis_of(step.binding, len(x))
        scope.require_at_least(step.op, "operand `x`", x, [*indices[:axis], 0, *indices[axis + 1 :]])
    elif step.op == "gather_nd":
        batch = int_of(step.binding, "batch_dims")
        require_equal_sizes(scope, step, 1, indices[:batch], x[:batch])
    elif step.op == "scatter_nd":
        require_equal_sizes(scope, step, 2, other_shapes[0], (*indices[:-1], *x[int(str(indices[-1])) :]))
    elif step.op == "scatter_slice":
        updates, starts, axis = indices, other_shapes[0], axis_of(step.binding, len(x))
        require_equal_sizes(scope, step, 1, updates, (*x[:axis], updates[axis], *x[axis + 1 :]))
        require_equal_sizes(scope, step, 2, starts, x[: len(starts)])
        require_along(scope, step, updates[axis])


_GATHERS = {"take": _take, "gather_elements": _gather_elements, "gather_nd": _gather_nd}
_MOVERS = {**_GATHERS, "one_hot": _one_hot, "scatter_slice": _scatter_slice}
_COMBINERS = {"scatter_elements": _scatter_elements, "scatter_nd": _scatter_nd}
_write = writer_by_table({**_MOVERS, **_COMBINERS})


FAMILIES = (
    KernelFamily(frozenset(_MOVERS), reject_nothing, _write, takes_halves=True, require=_require),
    KernelFamily(frozenset(_COMBINERS), reject_nothing, _write, require=_require),
)
"""Ops moving elements from or to given indices, and ops possibly computing with the elements."""
