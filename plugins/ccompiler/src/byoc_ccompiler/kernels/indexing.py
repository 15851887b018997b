"""Ops that read elements at places that a tensor of indices gives, or mark them."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.attributes import axis_of, dim_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import BYTE_PS, INDICES, MOVE_PS, reserve_locals
from byoc_ccompiler.kernels.index_checks import index_check, resolved
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY", "element_places", "tuple_place"]


def _run_ps(value: Value, count: Dim) -> Dim:
    return count * (dtype_info(dtype_of(value)).itemsize * BYTE_PS) + MOVE_PS


def _copy(kernel: Kernel, value: Value, to: str, come: str, count: Dim) -> str:
    """Gives the statement that copies elements that lie side by side."""
    if count == 1:
        return f"*({to}) = *({come});"
    return f"memcpy({to}, {come}, (size_t){c_dim(count)} * sizeof({kernel.ctype(value)}));"


def _take(kernel: Kernel, step: Step) -> None:
    x, indices = step.operands
    shape = shape_of(x)
    axis = axis_of(step.binding, len(shape))
    size, inner, count = shape[axis], product(shape[axis + 1 :]), product(shape_of(indices))
    source, places, out = kernel.input(x), kernel.input(indices, "indices"), kernel.output(step.result)
    element = f"{places}[row % {c_dim(count)}]" if axis else f"{places}[row]"
    lines = []
    if step.binding.attrs["mode"] == "clip":
        unsigned = dtype_info(dtype_of(indices)).kind == "uint"
        last = f"{c_dim(size)} - 1"
        place = (
            f"(uint64_t){element} < (uint64_t)({last}) ? (int64_t){element} : {last}"
            if unsigned
            else f"byoc_max(byoc_min((int64_t){element}, {last}), 0)"
        )
        if not isinstance(size, int) or size == 0:
            checks = index_check(kernel, step.op, axis, size, places, indices)
            lines += [f"  if ({c_dim(size)} == 0) {{", *(f"  {line}" for line in checks), "  }"]
    else:
        lines += index_check(kernel, step.op, axis, size, places, indices)
        place = resolved(element, indices, size)
    outer = "0" if axis == 0 else f"row / {c_dim(count)} * {c_dim(size)}"
    come = f"{source} + ({outer} + at) * {c_dim(inner)}"
    body = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const int64_t at = {place};",
        f"    {_copy(kernel, x, f'{out} + row * {c_dim(inner)}', come, inner)}",
        "  }",
    )
    kernel.finish([*lines, ParallelLoop(body, product(shape[:axis]) * count, _run_ps(x, inner))])


def element_places(step: Step) -> tuple[list[str], str]:
    """Gives the lines that open loops over all indices of an op that pairs them with elements, and the element's place.

    In the innermost loop ``at`` is the index counted from the front, and ``k`` the number of the index, row-major. The
    op's operand 0 is the tensor indexed, operand 1 the indices; the kernel has checked them.
    """
    x, indices = step.operands[:2]
    shape, counts = shape_of(x), shape_of(indices)
    axis = axis_of(step.binding, len(shape))
    strides = compact_strides(shape)
    lines = []
    for number, count in enumerate(counts):
        index = INDICES[number]
        first, end = (FIRST_ITEM, END_ITEM) if number == 0 else ("0", c_dim(count))
        lines.append(f"{'  ' * (number + 1)}for (int64_t {index} = {first}; {index} < {end}; ++{index}) {{")
    order = " + ".join(f"{INDICES[place]} * {c_dim(stride)}" for place, stride in enumerate(compact_strides(counts)))
    lines.append(f"{'  ' * (len(counts) + 1)}const int64_t k = {order};")
    terms = [f"{'at' if place == axis else INDICES[place]} * {c_dim(stride)}" for place, stride in enumerate(strides)]
    return lines, " + ".join(terms)


def _gather_elements(kernel: Kernel, step: Step) -> None:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    axis = axis_of(step.binding, len(shape))
    source, places, out = kernel.input(x), kernel.input(indices, "indices"), kernel.output(step.result)
    checks = index_check(kernel, step.op, axis, shape[axis], places, indices)
    lines, place = element_places(step)
    indent = "  " * (len(counts) + 1)
    lines += [
        f"{indent}const int64_t at = {resolved(f'{places}[k]', indices, shape[axis])};",
        f"{indent}{out}[k] = {source}[{place}];",
        *("  " * level + "}" for level in range(len(counts), 0, -1)),
    ]
    kernel.finish([*checks, ParallelLoop(tuple(lines), counts[0], product(counts[1:]) * MOVE_PS)])


def tuple_place(step: Step, pointer: str, first: int) -> str:
    """Gives the C expression of the number, row-major, of the slice that the tuple of indices ``row`` means.

    Args:
        step: an op whose operand 0 is indexed by operand 1, whose tuples lie along its last axis.
        pointer: the C name of the pointer to the indices.
        first: the first axis indexed.
    """
    x, indices = step.operands[:2]
    depth = int(str(shape_of(indices)[-1]))
    sizes = shape_of(x)[first : first + depth]
    terms = []
    for place, size in enumerate(sizes):
        at = resolved(f"{pointer}[row * {depth} + {place}]", indices, size)
        terms.append(f"{at} * {c_dim(product(sizes[place + 1 :]))}")
    return " + ".join(terms)


def _gather_nd(kernel: Kernel, step: Step) -> None:
    x, indices = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    batch = int_of(step.binding, "batch_dims")
    depth = int(str(counts[-1]))
    inner = product(shape[batch + depth :])
    source, places, out = kernel.input(x), kernel.input(indices, "indices"), kernel.output(step.result)
    checks = []
    for place in range(depth):
        axis = batch + place
        checks += index_check(kernel, step.op, axis, shape[axis], places, indices, place=place)
    at = tuple_place(step, places, batch)
    if batch:
        group, sizes = product(counts[batch:-1]), product(shape[batch : batch + depth])
        at = f"row / {c_dim(group)} * {c_dim(sizes)} + {at}"
    body = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const int64_t at = {at};",
        f"    {_copy(kernel, x, f'{out} + row * {c_dim(inner)}', f'{source} + at * {c_dim(inner)}', inner)}",
        "  }",
    )
    kernel.finish([*checks, ParallelLoop(body, product(counts[:-1]), _run_ps(x, inner))])


def _one_hot(kernel: Kernel, step: Step) -> None:
    indices, on, off = step.operands
    shape = shape_of(step.result)
    axis = axis_of(step.binding, len(shape))
    depth, inner = c_dim(dim_of(step.binding, "depth")), product(shape[axis + 1 :])
    places, out = kernel.input(indices, "indices"), kernel.output(step.result)
    values = [kernel.literal(value) or f"*{kernel.input(value, role)}" for value, role in ((on, "on"), (off, "off"))]
    element = f"{places}[row / {depth} * {c_dim(inner)} + k]"
    if dtype_info(dtype_of(indices)).kind == "uint":
        here = f"(uint64_t){element} == (uint64_t)(row % {depth})"
    else:
        at = f"(int64_t){element}"
        here = f"({at} < 0 ? {at} + {depth} : {at}) == row % {depth}"
    body = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        (
            f"    for (int64_t k = 0; k < {c_dim(inner)}; ++k) "
            f"{out}[row * {c_dim(inner)} + k] = {here} ? {values[0]} : {values[1]};"
        ),
        "  }",
    )
    kernel.finish([ParallelLoop(body, product(shape[: axis + 1]), inner * MOVE_PS)])


_WRITERS: dict[str, Callable[[Kernel, Step], None]] = {
    "take": _take,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that reads at indices."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "at")
    _WRITERS[step.op](kernel, step)


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
