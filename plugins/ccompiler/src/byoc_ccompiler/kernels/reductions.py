"""Ops that combine the elements along axes: sum, mean, max, and softmax."""

from __future__ import annotations

from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim, c_literal, c_suffix
from byoc_core.backend.info import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, TensorType

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import operand_type, reject_non_floats
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILIES"]

_ADD_PS = 1_000
"""Estimated picoseconds to add one element to a total that waits for the one before."""


def _reduction_kernel(kernel: Kernel) -> None:
    """Writes the kernel of a sum, mean or maximum: loops over what is kept, and inside over what is reduced."""
    (step,) = kernel.group.steps
    shape = shape_of(step.operands[0])
    axes = step.binding.attrs["axis"]
    reduced = {int(str(axis)) % len(shape) for axis in axes} if isinstance(axes, tuple) else set(range(len(shape)))
    outer: tuple[Dim, ...] = tuple(1 if axis in reduced else size for axis, size in enumerate(shape))
    inner: tuple[Dim, ...] = tuple(size if axis in reduced else 1 for axis, size in enumerate(shape))
    kept = [f"k{axis}" if axis not in reduced else "0" for axis in range(len(shape))]
    kernel.names.reserve(
        [*(f"k{axis}" for axis in range(len(shape))), *(f"r{axis}" for axis in range(len(shape))), "total"]
    )
    x, out = kernel.input(step.operands[0]), kernel.output(step.result)
    assert isinstance(step.result.type, TensorType)
    dtype, ctype = step.result.type.dtype, kernel.ctype(step.result)
    positions = [kept[axis] if axis not in reduced else f"r{axis}" for axis in range(len(shape))]
    source = _offset(shape, positions)
    target = _offset(outer, kept)
    start = _start(step.op, dtype)
    element = f"{x}[{source}]"
    combine = {
        "max": f"byoc_maximum_{c_suffix(dtype)}(total, {element})",
        "sum": f"total + {element}" if dtype.startswith("float") else f"byoc_add_{c_suffix(dtype)}(total, {element})",
    }["max" if step.op == "max" else "sum"]
    total = f"total / ({ctype}){c_dim(product(inner))}" if step.op == "mean" else "total"
    lines: list[str] = []
    depth = 1
    part = next((axis for axis, size in enumerate(outer) if size != 1), None)
    for axis, size in enumerate(shape):
        if axis not in reduced:
            begin, end = (FIRST_ITEM, END_ITEM) if axis == part else ("0", c_dim(size))
            lines.append(f"{'  ' * depth}for (int64_t k{axis} = {begin}; k{axis} < {end}; ++k{axis}) {{")
            depth += 1
    lines.append(f"{'  ' * depth}{ctype} total = {start};")
    first = depth
    for axis in sorted(reduced):
        lines.append(f"{'  ' * depth}for (int64_t r{axis} = 0; r{axis} < {c_dim(shape[axis])}; ++r{axis}) {{")
        depth += 1
    lines.append(f"{'  ' * depth}total = {combine};")
    lines += ["  " * level + "}" for level in range(depth - 1, first - 1, -1)]
    lines.append(f"{'  ' * first}{out}[{target}] = {total};")
    lines += ["  " * level + "}" for level in range(first - 1, 0, -1)]
    if part is None:
        kernel.finish(lines)
        return
    item_ps = product(inner) * product(outer[part + 1 :]) * _ADD_PS
    kernel.finish([ParallelLoop(tuple(lines), outer[part], item_ps)])


def _offset(shape: tuple[Dim, ...], positions: list[str]) -> str:
    terms = [
        f"{position} * {c_dim(product(shape[axis + 1 :]))}"
        for axis, position in enumerate(positions)
        if position != "0"
    ]
    return " + ".join(terms) or "0"


def _start(op: str, dtype: str) -> str:
    if op != "max":
        return "0"
    if dtype.startswith("float"):
        return c_literal(float("-inf"), dtype)
    bits = int(dtype.lstrip("uint"))
    return c_literal(0 if dtype.startswith("uint") else -(2 ** (bits - 1)), dtype)


def _softmax_kernel(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.softmax``: the maximum, the exponentials and their sum, the quotients."""
    (step,) = kernel.group.steps
    shape = shape_of(step.operands[0])
    axis = int(str(step.binding.attrs["axis"])) % len(shape)
    kernel.names.reserve(["row", "col", "k", "from", "to", "top", "total"])
    x, out = kernel.input(step.operands[0]), kernel.output(step.result)
    ctype = kernel.ctype(step.result)
    exponential = "byoc_exp_f32" if ctype == "float" else "byoc_exp_f64"
    outer, size, inner = product(shape[:axis]), c_dim(shape[axis]), product(shape[axis + 1 :])
    at = "k" if inner == 1 else f"k * {c_dim(inner)}"
    body = [
        f"const {ctype} *from = {x} + row * {c_dim(shape[axis] * inner)}{'' if inner == 1 else ' + col'};",
        f"{ctype} *to = {out} + row * {c_dim(shape[axis] * inner)}{'' if inner == 1 else ' + col'};",
        f"{ctype} top = -INFINITY, total = 0;",
        f"for (int64_t k = 0; k < {size}; ++k) top = from[{at}] > top ? from[{at}] : top;",
        f"for (int64_t k = 0; k < {size}; ++k) to[{at}] = {exponential}(from[{at}] - top);",
        f"for (int64_t k = 0; k < {size}; ++k) total += to[{at}];",
        f"for (int64_t k = 0; k < {size}; ++k) to[{at}] /= total;",
    ]
    # Along the rows, or where there is one, along what lies side by side in it.
    by_row = outer != 1 or inner == 1
    rows, columns = ((FIRST_ITEM, END_ITEM), ("0", c_dim(inner))) if by_row else (("0", "1"), (FIRST_ITEM, END_ITEM))
    lines = [f"  for (int64_t row = {rows[0]}; row < {rows[1]}; ++row) {{"]
    if inner == 1:
        lines += [*(f"    {line}" for line in body), "  }"]
    else:
        lines.append(f"    for (int64_t col = {columns[0]}; col < {columns[1]}; ++col) {{")
        lines += [*(f"      {line}" for line in body), "    }", "  }"]
    line_ps = shape[axis] * 2 * _ADD_PS
    loop = ParallelLoop(tuple(lines), outer, inner * line_ps) if by_row else ParallelLoop(tuple(lines), inner, line_ps)
    kernel.finish([loop])


def _reject_reduction(binding: Binding) -> Rejection | None:
    dtype = operand_type(binding, 0).dtype
    return Rejection("dtype", f"{binding.op.name} has no C form for bool") if dtype == "bool" else None


FAMILIES = (
    KernelFamily(frozenset({"sum", "mean", "max"}), _reject_reduction, _reduction_kernel),
    KernelFamily(frozenset({"nn.softmax"}), reject_non_floats, _softmax_kernel),
)
"""Reductions, and softmax."""
