"""Kernels of elementwise steps, one loop nest for all, and of quantisation by blocks."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import ceildiv, product
from byoc_core.ir import Binding, Value

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import view_along
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.loads import load_statements
from byoc_ccompiler.kernels.pointwise import (
    PER_CHANNEL,
    POINTWISE,
    element_of,
    element_statements,
    is_pointwise,
    operand_layout,
)
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest, memory_order, rows_apart
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast, require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_STEP_PS = 50
"""Estimated picoseconds of one step on one element, and of moving the element."""

_QUANTISED_PS = 300
"""Estimated picoseconds of one element that is quantised, or the reverse, by blocks."""

_GRAIN = 64
"""Elements of the innermost loop that stay with one thread: no two threads write to one cache line."""


def _write(kernel: Kernel) -> None:
    """Write a kernel of elementwise steps, or of one that quantises by blocks."""
    if not is_pointwise(kernel.group.steps[0]):
        _write_blocks(kernel, kernel.group.steps[0])
        return
    steps, space = kernel.group.steps, kernel.group.space or ()
    layouts: dict[object, Layout] = {
        (step, index): operand_layout(kernel, step, index) for step in steps for index in range(len(step.operands))
    }
    layouts |= {value: Layout(shape_of(value), kernel.strides(value)) for value in kernel.stored}
    if kernel.group.loads:
        layouts[None] = rows_apart(space)
    nest = StridedNest(space, layouts, memory_order(kernel.strides(kernel.stored[0])))
    known: dict[Value, c.Expression] = {}
    body = load_statements(kernel, steps, nest.indices(), known)
    body += element_statements(kernel, steps, lambda step, index: nest.position((step, index)), known)
    body += tuple(c.Store(kernel.target(value), nest.position(value), known[value]) for value in kernel.stored)
    last = len(nest.sizes) - 1
    kinds = {last: c.LoopKind.VECTOR} if kernel.shared else {}
    part = next((loop for loop, size in enumerate(nest.sizes) if size != 1), last + 1)
    kinds[part] = c.LoopKind.PARALLEL
    round_ps = product(nest.sizes[part + 1 :]) * (len(steps) + 1) * _STEP_PS
    kernel.finish_block(nest.loops(body, kinds, grain=_GRAIN if part == last else 1, round_ps=round_ps))


def _write_blocks(kernel: Kernel, step: Step) -> None:
    """Write a kernel of parameters in blocks: it has rows along which they stay, or stand side by side."""
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
    kernel.finish_block(loops_around(body, [row, k], [count, run], part=0, round_ps=run * _QUANTISED_PS))


def _reject(binding: Binding) -> Rejection | None:
    dtypes = [operand_type(binding, k).dtype for k in range(len(binding.operands))]
    values = [c.Variable("v", c.CType(dtype)) for dtype in dtypes]
    element = element_of(Step(binding, binding.operands), values)
    is_known = element.type.is_float or binding.op.name != "nn.batch_norm"
    if not is_known or (isinstance(element, c.Element) and not c.has_c_form(element)):
        return Rejection("dtype", f"{binding.op.name} has no C form for {', '.join(dtypes)}")
    if binding.op.name in PER_CHANNEL:
        shape = operand_shape(binding, 0)
        size = shape[axis_of(binding, len(shape))]
        if any(operand_shape(binding, index) != (size,) for index in range(1, len(binding.operands))):
            return reject_sizes(binding)
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    """Have sizes checked: parameters of quantisation are as many as the axis has indices, or blocks."""
    if step.op in PER_CHANNEL:
        return
    if step.op not in ("quantize", "dequantize"):
        require_broadcast(scope, step)
        return
    shape, block = shape_of(step.operands[0]), int_of(step.binding, "block_size")
    if not shape_of(step.operands[1]):
        return
    axis = axis_of(step.binding, len(shape))
    wanted = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :]) if block else shape[axis : axis + 1]
    for index in (1, 2):
        require_equal_sizes(scope, step, index, shape_of(step.operands[index]), wanted)


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if is_pointwise(step) else Access.COMPACT


FAMILY = KernelFamily(POINTWISE, _reject, _write, require=_require, reads=_access, writes=_access)
"""Ops that depend on one element of each operand, and quantisation, which may be by blocks."""
