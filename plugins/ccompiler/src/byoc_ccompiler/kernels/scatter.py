"""Ops that give a copy of a tensor with elements written at places that a tensor of indices gives.

Updates count in row-major order, one after another, so that those that meet give what the reference gives.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim, c_suffix
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import BYTE_PS, MOVE_PS, copy_axes, copy_parts, reserve_locals
from byoc_ccompiler.kernels.index_checks import index_check, range_check, resolved
from byoc_ccompiler.kernels.indexing import element_places, tuple_place
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILIES"]


def _whole(kernel: Kernel, step: Step) -> list[str | ParallelLoop]:
    """Gives the lines that copy the operand to the result."""
    x = step.operands[0]
    axes = copy_axes([product(shape_of(x))], [1], [1])
    return copy_parts(kernel, x, axes, kernel.output(step.result), kernel.input(x))


def _combined(reduction: str, dtype: str, old: str, new: str) -> str:
    """Gives the C expression of what stands at a place when an update has come in."""
    if reduction == "update":
        return new
    if dtype == "bool":
        return f"{old} {'|' if reduction in ('add', 'max') else '&'} {new}"
    if reduction in ("min", "max"):  # what is there stays only if it is smaller (larger): a NaN does not
        return f"{old} {'<' if reduction == 'min' else '>'} {new} ? {old} : {new}"
    name, sign = {"add": ("add", "+"), "mul": ("multiply", "*")}[reduction]
    return f"{old} {sign} {new}" if dtype.startswith("float") else f"byoc_{name}_{c_suffix(dtype)}({old}, {new})"


def _scatter_elements(kernel: Kernel, step: Step) -> None:
    x, indices, updates = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    axis = axis_of(step.binding, len(shape))
    places, news, out = kernel.input(indices, "indices"), kernel.input(updates, "updates"), kernel.output(step.result)
    checks = index_check(kernel, step.op, axis, shape[axis], places, indices)
    lines, place = element_places(step)
    loop = ParallelLoop(tuple(lines), counts[0], 0)
    indent = "  " * (len(counts) + 1)
    combined = _combined(str(step.binding.attrs["reduction"]), dtype_of(x), "*to", f"{news}[k]")
    lines = [
        *loop.serial_lines(),
        f"{indent}const int64_t at = {resolved(f'{places}[k]', indices, shape[axis])};",
        f"{indent}{kernel.ctype(x)} *const to = {out} + {place};",
        f"{indent}*to = {combined};",
        *("  " * level + "}" for level in range(len(counts), 0, -1)),
    ]
    kernel.finish([*checks, *_whole(kernel, step), *lines])


def _scatter_nd(kernel: Kernel, step: Step) -> None:
    x, indices, updates = step.operands
    shape, counts = shape_of(x), shape_of(indices)
    depth = int(str(counts[-1]))
    inner = c_dim(product(shape[depth:]))
    places, news, out = kernel.input(indices, "indices"), kernel.input(updates, "updates"), kernel.output(step.result)
    checks = []
    for place in range(depth):
        checks += index_check(kernel, step.op, place, shape[place], places, indices, place=place)
    combined = _combined(str(step.binding.attrs["reduction"]), dtype_of(x), "to[k]", "from[k]")
    lines = [
        f"  for (int64_t row = 0; row < {c_dim(product(counts[:-1]))}; ++row) {{",
        f"    {kernel.ctype(x)} *const to = {out} + ({tuple_place(step, places, 0)}) * {inner};",
        f"    const {kernel.ctype(x)} *const from = {news} + row * {inner};",
        f"    for (int64_t k = 0; k < {inner}; ++k) to[k] = {combined};",
        "  }",
    ]
    kernel.finish([*checks, *_whole(kernel, step), *lines])


def _scatter_slice(kernel: Kernel, step: Step) -> None:
    x, updates, starts = step.operands
    shape = shape_of(x)
    axis = axis_of(step.binding, len(shape))
    size, length, inner = shape[axis], shape_of(updates)[axis], product(shape[axis + 1 :])
    news, begins, out = kernel.input(updates, "updates"), kernel.input(starts, "starts"), kernel.output(step.result)
    element = f"{begins}[row / {c_dim(product(shape[1:axis]))}]" if shape_of(starts) else f"{begins}[0]"
    row = f"row * {c_dim(length * inner)}"
    target = f"{out} + (row * {c_dim(size)} + at) * {c_dim(inner)}"
    nbytes = f"{c_dim(inner)} * sizeof({kernel.ctype(x)})"
    checks: list[str] = []
    if step.binding.attrs["mode"] == "circular":
        unsigned = dtype_info(dtype_of(starts)).kind == "uint"
        wide = f"(int64_t)((uint64_t){element} % (uint64_t){c_dim(size)})"
        at = wide if unsigned else f"byoc_mod((int64_t){element}, {c_dim(size)})"
        moved = [
            f"    const int64_t front = byoc_min({c_dim(length)}, {c_dim(size)} - at);",
            f"    memcpy({target}, {news} + {row}, (size_t)front * {nbytes});",
            (
                f"    memcpy({out} + row * {c_dim(size * inner)}, {news} + {row} + front * {c_dim(inner)}, "
                f"(size_t)({c_dim(length)} - front) * {nbytes});"
            ),
        ]
    else:
        at = f"(int64_t){element}"
        problem = f"the updates do not fit axis {axis} from a start on"
        checks = range_check(kernel, step.op, problem, begins, starts, "0", f"{c_dim(size)} - {c_dim(length)}")
        moved = [f"    memcpy({target}, {news} + {row}, (size_t){c_dim(length)} * {nbytes});"]
    body = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const int64_t at = {at};",
        *moved,
        "  }",
    )
    row_ps = length * inner * (dtype_info(dtype_of(x)).itemsize * BYTE_PS) + MOVE_PS
    written = ParallelLoop(body, product(shape[:axis]), row_ps)
    guarded = [] if length == 0 or size == 0 else [written]
    kernel.finish([*checks, *_whole(kernel, step), *guarded])


_COMBINING: dict[str, Callable[[Kernel, Step], None]] = {
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
}


def _write_combining(kernel: Kernel) -> None:
    """Writes the kernel of an op that combines updates with what is there."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "at")
    _COMBINING[step.op](kernel, step)


def _write_slice(kernel: Kernel) -> None:
    """Writes the kernel of ``scatter_slice``."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "at", "front")
    _scatter_slice(kernel, step)


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
    KernelFamily(frozenset(_COMBINING), reject_nothing, _write_combining, require=_require),
    KernelFamily(frozenset({"scatter_slice"}), reject_nothing, _write_slice, takes_halves=True, require=_require),
)
"""Ops that write elements at indices."""
