"""Ops that read elements at places that a tensor of indices gives, or mark them."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.c import (
    INDEX,
    Block,
    Buffer,
    Cast,
    CType,
    Expression,
    For,
    If,
    Let,
    LoopKind,
    Select,
    Size,
    Store,
    Variable,
    index_max,
    index_min,
)
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

__all__ = ["FAMILY", "element_loops", "tuple_place"]


def _rows(row: Variable, count: Dim, body: Block, round_ps: Dim) -> For:
    """Return the loop over rows, any of which another thread may do."""
    return For(row, Size(0), Size(count), body, kind=LoopKind.PARALLEL, round_ps=round_ps)


def _run_ps(buffer: Buffer, count: Dim) -> Dim:
    return count * (dtype_info(buffer.dtype).itemsize * BYTE_PS) + MOVE_PS


def _take(kernel: Kernel, step: Step) -> Block:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    axis = axis_of(step.binding, len(shape))
    size, inner, count = shape[axis], product(shape[axis + 1 :]), product(counts)
    source, places, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    row, at = Variable("row"), Variable("at")
    element = places[row % count if axis else row]
    checks = index_check(kernel, step.op, axis, size, places, counts)
    if step.binding.attrs["mode"] != "clip":
        place = resolved(element, size)
    else:
        place = _clipped(element, size)
        is_full = isinstance(size, int) and size > 0
        checks = () if is_full else (If(Size(size).compare("==", 0), checks),)
    outer = row // count * size if axis else Size(0)
    moved = copy_run(out, row * inner, source, (outer + at) * inner, inner)
    rows = _rows(row, product(shape[:axis]) * count, (Let(at, place), *moved), _run_ps(source, inner))
    return (*checks, rows)


def _clipped(index: Expression, size: Dim) -> Expression:
    """Return the place on an axis that is nearest to an index."""
    if not is_unsigned(index):
        return index_max(index_min(Cast(index, INDEX), size - 1), 0)
    wide, last = CType("uint64"), Size(size - 1)
    return Select(Cast(index, wide).compare("<", Cast(last, wide)), Cast(index, INDEX), last)


def element_loops(
    kernel: Kernel, step: Step, body: Callable[[Expression, Expression], Block], *, part: int | None = None
) -> Block:
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
    loops = [Variable(f"i{number}") for number in range(len(counts))]
    k, at = Variable("k"), Variable("at")
    element = offset_along([*loops[:axis], at, *loops[axis + 1 :]], compact_strides(shape))
    statements = (
        Let(k, offset_along(loops, compact_strides(counts))),
        Let(at, resolved(places[k], shape[axis])),
        *body(k, element),
    )
    checks = index_check(kernel, step.op, axis, shape[axis], places, counts)
    return (*checks, *loops_around(statements, loops, counts, part=part, round_ps=product(counts[1:]) * MOVE_PS))


def _gather_elements(kernel: Kernel, step: Step) -> Block:
    source, out = kernel.source(step.operands[0]), kernel.target(step.result)
    return element_loops(kernel, step, lambda k, place: (Store(out, k, source[place]),), part=0)


def tuple_place(step: Step, places: Buffer, row: Expression, first: int) -> Expression:
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


def _gather_nd(kernel: Kernel, step: Step) -> Block:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    batch = int_of(step.binding, "batch_dims")
    depth = int(str(counts[-1]))
    inner = product(shape[batch + depth :])
    source, places, out = kernel.source(x), kernel.source(indices, "indices"), kernel.target(step.result)
    checks: Block = ()
    for place in range(depth):
        axis = batch + place
        checks += index_check(kernel, step.op, axis, shape[axis], places, counts, place=place)
    row, at = Variable("row"), Variable("at")
    place_in_batch = tuple_place(step, places, row, batch)
    if batch:
        group, sizes = product(counts[batch:-1]), product(shape[batch : batch + depth])
        place_in_batch = row // group * sizes + place_in_batch
    body = (Let(at, place_in_batch), *copy_run(out, row * inner, source, at * inner, inner))
    return (*checks, _rows(row, product(counts[:-1]), body, _run_ps(source, inner)))


def _one_hot(kernel: Kernel, step: Step) -> Block:
    indices, on, off = step.operands
    shape = shape_of(step.result)
    axis = axis_of(step.binding, len(shape))
    depth, inner = dim_of(step.binding, "depth"), product(shape[axis + 1 :])
    places, out = kernel.source(indices, "indices"), kernel.target(step.result)
    one, other = (kernel.constant(value) or kernel.source(value, role)[0] for value, role in ((on, "on"), (off, "off")))
    row, k = Variable("row"), Variable("k")
    element, here = places[row // depth * inner + k], row % depth
    if is_unsigned(element):
        is_here = Cast(element, CType("uint64")).compare("==", Cast(here, CType("uint64")))
    else:
        at = Cast(element, INDEX)
        is_here = Select(at.compare("<", 0), at + depth, at).compare("==", here)
    stored = Store(out, row * inner + k, Select(is_here, one, other))
    columns = For(k, Size(0), Size(inner), (stored,))
    return (_rows(row, product(shape[: axis + 1]), (columns,), inner * MOVE_PS),)


_WRITERS: dict[str, Callable[[Kernel, Step], Block]] = {
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
