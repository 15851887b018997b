"""Elements computed at their use in a kernel, in place of a load; the intermediate results never reach memory.

A *load* of a group is a step before the group's own, of any shape. An element of the result is an expression of the
position, made of elements of the operands: a gather reads at an index, a roll at the position further on, an
elementwise step computes. :mod:`byoc_ccompiler.loads` decides which steps become loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from byoc_core.authoring import c
from byoc_core.dims import product
from byoc_core.ir import Value, Var

from byoc_ccompiler.attributes import axis_of, ints_of
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import index_term, offset_along
from byoc_ccompiler.kernels.data_movement import slices_of
from byoc_ccompiler.kernels.indexing import taken_index
from byoc_ccompiler.kernels.pointwise import element_of, operand_axes
from byoc_ccompiler.kernels.transposes import order_of
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["LOADS", "element_in_space", "is_moved", "keeps_rows", "load_statements", "rejoins_slices"]

Indices = Sequence[c.Expression]
_Element = tuple[Value, Indices]


def load_statements(
    kernel: Kernel, steps: Iterable[Step], indices: Mapping[int, c.Expression], expressions: dict[Value, c.Expression]
) -> c.Block:
    """Return the statements computing the loads read by steps of the kernel's space; ``expressions`` gets the results.

    The indices are as in :func:`element_in_space`.
    """
    lets: list[c.Statement] = []
    for value in dict.fromkeys(operand for step in steps for operand in step.operands):
        if value in kernel.group.loads and value not in expressions:
            expressions[value] = variable = c.Variable(kernel.group.loads[value].result.name, c.CType(dtype_of(value)))
            element = element_in_space(kernel, value, indices, lets)
            lets.append(c.Let(variable, element))
    return tuple(lets)


def element_in_space(
    kernel: Kernel, value: Value, indices: Mapping[int, c.Expression], lets: list[c.Statement]
) -> c.Expression:
    """Return the element of a load with the shape of the kernel's space, at indices along the axes of size above 1.

    The kernel gets the checks of indices, ``lets`` the statements in front.
    """
    return _element(kernel, value, [indices.get(axis, c.Size(0)) for axis in range(len(shape_of(value)))], lets)


def _element(kernel: Kernel, value: Value, indices: Indices, lets: list[c.Statement]) -> c.Expression:
    """Return an element of a value: an element in memory reached by moves, or the result of an elementwise load."""
    step = kernel.group.loads.get(value)
    if step is None:
        return kernel.constant(value) or kernel.source(value)[offset_along(indices, kernel.strides(value))]
    if step.op in LOADS:
        return _element(kernel, *LOADS[step.op](kernel, step, indices), lets)
    sizes, elements = shape_of(value), list[c.Expression]()
    for operand, axes in zip(step.operands, operand_axes(step), strict=True):
        own = zip(shape_of(operand), axes, strict=True)
        element = _element(kernel, operand, [index_term(indices[axis], dim, sizes[axis], 1) for dim, axis in own], lets)
        if not isinstance(element, c.Literal):
            variable = c.Variable(operand.name if isinstance(operand, Var) else "constant", element.type)
            lets.append(c.Let(variable, element))
            element = variable
        elements.append(element)
    return element_of(step, elements)


def _take_source(kernel: Kernel, step: Step, indices: Indices) -> _Element:
    x, index_tensor = step.operands
    axis, count = axis_of(step.binding, len(shape_of(x))), len(shape_of(index_tensor))
    index = kernel.source(index_tensor, "indices")[
        offset_along(indices[axis : axis + count], kernel.strides(index_tensor))
    ]
    kernel.checks[step], source_index = taken_index(kernel, step, index)
    return x, (*indices[:axis], source_index, *indices[axis + count :])


def _reshape_source(kernel: Kernel, step: Step, indices: Indices) -> _Element:
    """Return the element of a reshape: axes of equal product are numbered row-major, and split again."""
    (x,) = step.operands
    sizes, source_sizes = shape_of(step.result), shape_of(x)
    source_indices: list[c.Expression] = []
    first, begin, end, stop = 0, 0, 0, 0
    while end < len(sizes) or stop < len(source_sizes):
        result_count, source_count = product(sizes[first:end]), product(source_sizes[begin:stop])
        surplus = result_count - source_count if isinstance(result_count, int) and isinstance(source_count, int) else 0
        end += surplus <= 0 and end < len(sizes)
        stop += surplus >= 0 and stop < len(source_sizes)
        if product(sizes[first:end]) == product(source_sizes[begin:stop]):
            number = offset_along(indices[first:end], compact_strides(sizes[first:end]))
            source_indices += c.unravelled(number, source_sizes[begin:stop])
            first, begin = end, stop
    return x, source_indices


def _transpose_source(kernel: Kernel, step: Step, indices: Indices) -> _Element:
    order = order_of(step)
    return step.operands[0], [indices[order.index(axis)] for axis in range(len(order))]


def _slice_source(kernel: Kernel, step: Step, indices: Indices) -> _Element:
    source_indices = list(indices)
    for axis, first, apart in slices_of(step):
        source_indices[axis] = indices[axis] * apart + first
    return step.operands[0], source_indices


def _concat_source(kernel: Kernel, step: Step, indices: Indices) -> _Element:
    """Return the element of rejoined slices of a single value, as in a roll."""
    axis = axis_of(step.binding, len(indices))
    parts = [kernel.group.loads[operand] for operand in step.operands]
    begins = list(accumulate((shape_of(part.result)[axis] for part in parts[:-1]), initial=0))
    before, index, behind = indices[:axis], indices[axis], indices[axis + 1 :]
    found = [
        _slice_source(kernel, part, (*before, index - begin, *behind))[1][axis]
        for part, begin in zip(parts, begins, strict=True)
    ]
    source_index = found.pop()
    while found:
        source_index = c.Select(index.compare("<", begins[len(found)]), found.pop(), source_index)
    return parts[0].operands[0], (*before, source_index, *behind)


_RESHAPES = dict.fromkeys(("reshape", "expand_dims", "squeeze"), _reshape_source)
LOADS = {
    "take": _take_source,
    "permute_dims": _transpose_source,
    "strided_slice": _slice_source,
    "concat": _concat_source,
    **_RESHAPES,
}
"""The operand and the element moved to a position by each op, by the op's name.

A new op also concerns :func:`keeps_rows`, and the layouts in :mod:`byoc_ccompiler.loads`.
"""


def is_moved(kernel: Kernel, value: Value) -> bool:
    """Return whether an element of a load lies in memory, without any computation."""
    step = kernel.group.loads.get(value)
    while step is not None and step.op in LOADS:
        step = kernel.group.loads.get(step.operands[0])
    return value in kernel.group.loads and step is None


def rejoins_slices(step: Step, loads: Mapping[Value, Step]) -> bool:
    """Return whether a concat joins slices of a single value, leaving all other axes unchanged."""
    rank = len(shape_of(step.result))
    slices = [part for part in map(loads.get, step.operands) if part is not None and part.op == "strided_slice"]
    sliced = {along % rank for part in slices for along in ints_of(part.binding, "axes")}
    is_whole = len(slices) == len(step.operands) and len({part.operands[0] for part in slices}) == 1
    return is_whole and sliced == {axis_of(step.binding, rank)}


def keeps_rows(step: Step) -> bool:
    """Return whether a step moves whole rows: the last axes of result and operand are the same."""
    shape, result = shape_of(step.operands[0]), shape_of(step.result)
    if not shape or not result or shape[-1] != result[-1]:
        return False
    last = len(shape) - 1
    if step.op in ("take", "concat"):
        return axis_of(step.binding, len(shape)) != last
    if step.op == "strided_slice":
        return all(axis % len(shape) != last for axis in ints_of(step.binding, "axes"))
    return order_of(step)[-1] == last if step.op == "permute_dims" else step.op in LOADS
