"""Quantisation: floats as integers with a scale and a zero point, and back."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim
from byoc_core.dims import ceildiv

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.kernels.pointwise import element_expression, elementwise_kernel, is_pointwise
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 300
"""Estimated picoseconds of one element."""


def _write(kernel: Kernel) -> None:
    step = kernel.group.steps[0]
    if is_pointwise(step):
        elementwise_kernel(kernel)
    else:
        _write_blocks(kernel, step)


def _write_blocks(kernel: Kernel, step: Step) -> None:
    """Writes the kernel of parameters in blocks: rows along which they stay, or stand side by side."""
    reserve_locals(kernel, "row", "x_value", "scale_value", "zero_value")
    x, scale, zero = step.operands
    source, out = kernel.input(x), kernel.output(step.result)
    parameters = (("scale", scale, kernel.input(scale, "scale")), ("zero", zero, kernel.input(zero, "zero")))
    block, shape = int_of(step.binding, "block_size"), shape_of(x)
    view = view_along(shape, axis_of(step.binding, len(shape)))
    size, inner, blocks = c_dim(view.size), c_dim(view.inner), c_dim(ceildiv(view.size, block))
    if view.inner == 1:
        count, run, place = view.outer, view.size, f"row * {blocks} + k / {block}"
    else:
        count, run = view.outer * view.size, view.inner
        place = f"(row / {size} * {blocks} + row % {size} / {block}) * {inner} + k"
    number = element_expression(step, ["x_value", "scale_value", "zero_value"])
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {kernel.ctype(x)} *const from = {source} + row * {c_dim(run)};",
        f"    {kernel.ctype(step.result)} *const to = {out} + row * {c_dim(run)};",
        f"    for (int64_t k = 0; k < {c_dim(run)}; ++k) {{",
        f"      const {kernel.ctype(x)} x_value = from[k];",
        *(f"      const {kernel.ctype(v)} {name}_value = {pointer}[{place}];" for name, v, pointer in parameters),
        f"      to[k] = {number};",
        "    }",
        "  }",
    )
    kernel.finish([ParallelLoop(lines, count, run * _ELEMENT_PS)])


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if is_pointwise(step) else Access.COMPACT


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the parameters checked to be as many as the axis has indices, or blocks."""
    shape, block = shape_of(step.operands[0]), int_of(step.binding, "block_size")
    if not shape_of(step.operands[1]):
        return
    axis = axis_of(step.binding, len(shape))
    wanted = shape[axis : axis + 1]
    if block:
        wanted = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :])
    for index in (1, 2):
        require_equal_sizes(scope, step, index, shape_of(step.operands[index]), wanted)


FAMILY = KernelFamily(
    frozenset({"quantize", "dequantize"}), reject_nothing, _write, require=_require, reads=_access, writes=_access
)
"""Quantisation, and back."""
