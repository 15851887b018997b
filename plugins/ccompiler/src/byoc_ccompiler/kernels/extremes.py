"""Where the extreme element along an axis stands: argmax, argmin. A NaN is more extreme than any number."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim

from byoc_ccompiler.attributes import axis_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 1_000
"""Estimated picoseconds of looking at one element."""

_SIGNS = {"argmax": ">", "argmin": "<"}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: along the axis one step after another, side by side what lies behind it."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "place", "new", "old")
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    size, inner, ctype = c_dim(view.size), c_dim(view.inner), kernel.ctype(x)
    takes_last = flag_of(step.binding, "select_last_index")
    better = f"new {_SIGNS[step.op]}{'=' if takes_last else ''} old"
    if dtype_of(x).startswith("float"):
        better += " || new != new" if takes_last else " || (new != new && old == old)"
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {ctype} *const from = {kernel.input(x)} + row * {c_dim(view.size * view.inner)};",
        f"    int64_t *const to = {kernel.output(step.result)} + row * {inner};",
        f"    for (int64_t k = 0; k < {inner}; ++k) to[k] = 0;",
        f"    for (int64_t place = 1; place < {size}; ++place) {{",
        f"      for (int64_t k = 0; k < {inner}; ++k) {{",
        f"        const {ctype} new = from[place * {inner} + k], old = from[to[k] * {inner} + k];",
        f"        if ({better}) to[k] = place;",
        "      }",
        "    }",
        "  }",
    )
    kernel.finish([ParallelLoop(lines, view.outer, view.size * view.inner * _ELEMENT_PS)])


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the axis checked to have an element."""
    shape = shape_of(step.operands[0])
    axis = axis_of(step.binding, len(shape))
    scope.require_at_least(step.op, "operand `x`", shape, [int(place == axis) for place in range(len(shape))])


FAMILY = KernelFamily(frozenset(_SIGNS), reject_nothing, _write, require=_require)
"""The places of extreme elements."""
