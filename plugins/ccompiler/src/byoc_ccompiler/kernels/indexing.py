"""Ops that read elements at places that a tensor of indices gives, or mark them."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, dim_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import BYTE_PS, MOVE_PS, copy_run, loops_around, offset_along
from byoc_ccompiler.kernels.index_checks import index_check, is_unsigned, resolved
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY", "element_loops", "taken_place", "tuple_place"]


def _rows(row: c.Variable, count: Dim, body: c.Block, round_ps: Dim) -> c.For:
    """Return the loop over rows, any of which another thread may do."""
    return c.For(row, c.Size(0), c.Size(count), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)


def _run_ps(buffer: c.Buffer, count: Dim) -> Dim:
    return count * (dtype_info(buffer.dtype).itemsize * BYTE_PS) + MOVE_PS


def _take(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    axis = axis_of(step.binding, len(shape))
    size, inner, count = shape[axis], product(shape[axis + 1 :]), product(counts)
    source, places, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    row, at = c.Variable("row"), c.Variable("at")
    element = places[row % count if axis else row]
    checks, place = taken_place(kernel, step, element)
    outer = row // count * size if axis else c.Size(0)
    moved = copy_run(out, row * inner, source, (outer + at) * inner, inner)
    rows = _rows(row, product(shape[:axis]) * count, (c.Let(at, place), *moved), _run_ps(source, inner))
    return (*checks, rows)


def taken_place(kernel: Kernel, step: Step, index: c.Expression) -> tuple[c.Block, c.Expression]:
    """Return the checks of all indices of a ``take``, and the place on its axis that one of them means."""
    x, indices = step.operands
    axis = axis_of(step.binding, len(shape_of(x)))
    size = shape_of(x)[axis]
    checks = index_check(kernel, step.op, axis, size, kernel.source(indices, "indices"), shape_of(indices))
    if step.binding.attrs["mode"] != "clip":
        return checks, resolved(index, size)
    is_full = isinstance(size, int) and size > 0
    return () if is_full else (c.If(c.Size(size).compare("==", 0), checks),), _clipped(index, size)


def _clipped(index: c.Expression, size: Dim) -> c.Expression:
    """Return the place on an axis that is nearest to an index."""
    if not is_unsigned(index):
        return c.index_max(c.index_min(c.Cast(index, c.INDEX), size - 1), 0)
    wide, last = c.CType("uint64"), c.Size(size - 1)
    return c.Select(c.Cast(index, wide).compare("<", c.Cast(last, wide)), c.Cast(index, c.INDEX), last)


def element_loops(
    kernel: Kernel, step: Step, body: Callable[[c.Expression, c.Expression], c.Block], *, part: int | None = None
) -> c.Block:
    """Return the loops over all indices of an op that pairs them with elements, behind the checks of the indices.

    Args:
        kernel: the kernel that they stand in.
        step: an op whose operand 0 is indexed by operand 1.
        body: returns the statements for the number of an index, row-major, and the offset of its element in operand 0.
        part: the number of the loop whose rounds several threads may share; ``None`` for none.
    """
    x, indices = step.operands[:2]
    shape, counts, places = shape_of(x), shape_of(indices), kernel.source(indices, "indices")
    axis = axis_of(step.binding, len(shape))
    loops = [c.Variable(f"i{number}") for number in range(len(counts))]
    k, at = c.Variable("k"), c.Variable("at")
    element = offset_along([*loops[:axis], at, *loops[axis + 1 :]], compact_strides(shape))
    statements = (
        c.Let(k, offset_along(loops, compact_strides(counts))),
        c.Let(at, resolved(places[k], shape[axis])),
        *body(k, element),
    )
    checks = index_check(kernel, step.op, axis, shape[axis], places, counts)
    return (*checks, *loops_around(statements, loops, counts, part=part, round_ps=product(counts[1:]) * MOVE_PS))


def _gather_elements(kernel: Kernel, step: Step) -> c.Block:
    source, out = kernel.source(step.operands[0]), kernel.target(step.result)
    return element_loops(kernel, step, lambda k, place: (c.Store(out, k, source[place]),), part=0)


def tuple_place(step: Step, places: c.Buffer, row: c.Expression, first: int) -> c.Expression:
    """Return the number, row-major, of the slice that a tuple of indices means.

    Args:
        step: an op whose operand 0 is indexed by operand 1, whose tuples lie along its last axis.
        places: the indices.
        row: the number of the tuple.
        first: the first axis indexed.
    """
    x, indices = step.operands[:2]
    depth = int(str(shape_of(indices)[-1]))
    sizes = shape_of(x)[first : first + depth]
    along = [resolved(places[row * depth + place], size) for place, size in enumerate(sizes)]
    return offset_along(along, compact_strides(sizes))


def _gather_nd(kernel: Kernel, step: Step) -> c.Block:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    batch = int_of(step.binding, "batch_dims")
    depth = int(str(counts[-1]))
    inner = product(shape[batch + depth :])
    source, places, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    checks: c.Block = ()
    for place in range(depth):
        axis = batch + place
        checks += index_check(kernel, step.op, axis, shape[axis], places, counts, place=place)
    row, at = c.Variable("row"), c.Variable("at")
    place_in_batch = tuple_place(step, places, row, batch)
    if batch:
        group, sizes = product(counts[batch:-1]), product(shape[batch : batch + depth])
        place_in_batch = row // group * sizes + place_in_batch
    body = (c.Let(at, place_in_batch), *copy_run(out, row * inner, source, at * inner, inner))
    return (*checks, _rows(row, product(counts[:-1]), body, _run_ps(source, inner)))


def _one_hot(kernel: Kernel, step: Step) -> c.Block:
    indices, on, off = step.operands
    shape = shape_of(step.result)
    axis = axis_of(step.binding, len(shape))
    depth, inner = dim_of(step.binding, "depth"), product(shape[axis + 1 :])
    places, out = kernel.source(indices, "indices"), kernel.target(step.result)
    one, other = (kernel.constant(value) or kernel.source(value, role)[0] for value, role in ((on, "on"), (off, "off")))
    row, k = c.Variable("row"), c.Variable("k")
    element, here = places[row // depth * inner + k], row % depth
    if is_unsigned(element):
        is_here = c.Cast(element, c.CType("uint64")).compare("==", c.Cast(here, c.CType("uint64")))
    else:
        at = c.Cast(element, c.INDEX)
        is_here = c.Select(at.compare("<", 0), at + depth, at).compare("==", here)
    stored = c.Store(out, row * inner + k, c.Select(is_here, one, other))
    columns = c.For(k, c.Size(0), c.Size(inner), (stored,))
    return (_rows(row, product(shape[: axis + 1]), (columns,), inner * MOVE_PS),)


_WRITERS: dict[str, Callable[[Kernel, Step], c.Block]] = {
    "take": _take,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that reads at indices."""
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    if step.op == "gather_elements":
        x, counts = (shape_of(operand) for operand in step.operands)
        axis = axis_of(step.binding, len(x))
        least = [0 if place == axis else count for place, count in enumerate(counts)]
        scope.require_at_least(step.op, "operand `x`", x, least)
    elif step.op == "gather_nd":
        batch = int_of(step.binding, "batch_dims")
        x, counts = (shape_of(operand) for operand in step.operands)
        require_equal_sizes(scope, step, 1, counts[:batch], x[:batch])


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, takes_halves=True, require=_require)
"""Ops that read elements at indices."""
