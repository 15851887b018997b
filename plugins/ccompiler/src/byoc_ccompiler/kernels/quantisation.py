"""Quantisation: floats as integers with a scale and a zero point, and back."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import ceildiv
from byoc_core.ir import Value

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.elementwise import elementwise_kernel
from byoc_ccompiler.kernels.pointwise import element_statements, is_pointwise
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 300
"""Estimated picoseconds of one element."""


def _write(kernel: Kernel) -> None:
    """Write a kernel; one of parameters in blocks has rows along which they stay, or stand side by side."""
    step = kernel.group.steps[0]
    if is_pointwise(step):
        elementwise_kernel(kernel)
        return
    block, shape = int_of(step.binding, "block_size"), shape_of(step.operands[0])
    view = view_along(shape, axis_of(step.binding, len(shape)))
    blocks, row, k = ceildiv(view.size, block), c.Variable("row"), c.Variable("k")
    if view.inner == 1:
        count, run, place = view.outer, view.size, row * blocks + k // block
    else:
        count, run = view.outer * view.size, view.inner
        place = (row // view.size * blocks + row % view.size // block) * view.inner + k
    known: dict[Value, c.Expression] = {}
    here = row * run + k
    body = element_statements(kernel, [step], lambda _, index: place if index else here, known)
    body += (c.Store(kernel.target(step.result), here, known[step.result]),)
    kernel.finish_block(loops_around(body, [row, k], [count, run], part=0, round_ps=run * _ELEMENT_PS))


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if is_pointwise(step) else Access.COMPACT


def _require(scope: FunctionScope, step: Step) -> None:
    """Have the parameters checked to be as many as the axis has indices, or blocks."""
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
