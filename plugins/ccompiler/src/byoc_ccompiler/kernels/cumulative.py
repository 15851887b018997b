"""Ops that combine each element with all before it along an axis: cumsum, cumprod."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_suffix

from byoc_ccompiler.attributes import axis_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILY"]

_STEP_PS = 1_000
"""Estimated picoseconds to combine one element with a total that waits for the one before."""

_OPERATIONS = {"cumsum": ("+", "add", "0"), "cumprod": ("*", "multiply", "1")}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: along the axis one step after another, side by side what lies behind it."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "place", "here", "before")
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    sign, name, neutral = _OPERATIONS[step.op]
    source, out, dtype = kernel.input(x), kernel.output(step.result), dtype_of(x)
    exclusive, reverse = flag_of(step.binding, "exclusive"), flag_of(step.binding, "reverse")
    new = f"from[{'before' if exclusive else 'here'} + k]"
    total = f"to[before + k] {sign} {new}"
    if not dtype.startswith("float"):
        total = f"byoc_{name}_{c_suffix(dtype)}(to[before + k], {new})"
    first = f"place == 0 ? {neutral} : place == 1 ? {new}" if exclusive else f"place == 0 ? {new}"
    size, inner = c_dim(view.size), c_dim(view.inner)
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {kernel.ctype(x)} *const from = {source} + row * {c_dim(view.size * view.inner)};",
        f"    {kernel.ctype(x)} *const to = {out} + row * {c_dim(view.size * view.inner)};",
        f"    for (int64_t place = 0; place < {size}; ++place) {{",
        f"      const int64_t here = {f'({size} - 1 - place)' if reverse else 'place'} * {inner};",
        f"      const int64_t before = here {'+' if reverse else '-'} {inner};",
        f"      for (int64_t k = 0; k < {inner}; ++k) to[here + k] = {first} : {total};",
        "    }",
        "  }",
    )
    kernel.finish([ParallelLoop(lines, view.outer, view.size * view.inner * _STEP_PS)])


FAMILY = KernelFamily(frozenset(_OPERATIONS), reject_nothing, _write)
"""Cumulative sums and products."""
