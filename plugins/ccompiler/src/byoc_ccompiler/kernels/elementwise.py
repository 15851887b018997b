"""Kernels of elementwise steps: one loop nest for all."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding, Value

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.loads import load_statements
from byoc_ccompiler.kernels.pointwise import PER_CHANNEL, POINTWISE, element_statements, has_element, operand_layout
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest, memory_order, rows_apart
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY", "elementwise_kernel"]

_STEP_PS = 50
"""Estimated picoseconds of one step on one element, and of moving the element."""

_GRAIN = 64
"""Elements of the innermost loop that stay with one thread: no two threads write to one cache line."""


def elementwise_kernel(kernel: Kernel) -> None:
    """Write a kernel of elementwise steps."""
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


def _reject(binding: Binding) -> Rejection | None:
    if not has_element(Step(binding, binding.operands)):
        dtypes = ", ".join(operand_type(binding, k).dtype for k in range(len(binding.operands)))
        return Rejection("dtype", f"{binding.op.name} has no C form for {dtypes}")
    if binding.op.name in PER_CHANNEL:
        shape = operand_shape(binding, 0)
        size = shape[axis_of(binding, len(shape))]
        if any(operand_shape(binding, index) != (size,) for index in range(1, len(binding.operands))):
            return reject_sizes(binding)
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    if step.op not in PER_CHANNEL:
        require_broadcast(scope, step)


def _rows(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILY = KernelFamily(POINTWISE, _reject, elementwise_kernel, require=_require, reads=_rows, writes=_rows)
"""Ops that depend on one element of each operand, save for quantisation, which may be by blocks."""
