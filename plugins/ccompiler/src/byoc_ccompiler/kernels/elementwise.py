"""Kernels of elementwise steps, one loop nest for all, and of quantisation by blocks."""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import ceildiv
from byoc_core.ir import Binding, Value

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import pointwise
from byoc_ccompiler.kernels.axes import view_along
from byoc_ccompiler.kernels.copies import StridedNest, memory_order, share_nest, share_outermost
from byoc_ccompiler.kernels.loads import load_statements
from byoc_ccompiler.kernels.row_writer import row_layouts
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast, require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]


def _write(kernel: Kernel) -> None:
    """Write a kernel of elementwise steps, or of a step quantising by blocks."""
    if not pointwise.is_pointwise(kernel.group.steps[0]):
        _write_blocks(kernel, kernel.group.steps[0])
        return
    steps = kernel.group.steps
    axes = memory_order(kernel.strides(kernel.stored[0]))
    nest = StridedNest(kernel.group.space or (), row_layouts(kernel), axes)
    expressions: dict[Value, c.Expression] = {}
    body = load_statements(kernel, steps, nest.indices(), expressions)
    body += pointwise.element_statements(kernel, steps, lambda step, index: nest.position((step, index)), expressions)
    body += tuple(c.Store(kernel.target(value), nest.position(value), expressions[value]) for value in kernel.stored)
    schedule = share_outermost(nest.axes)
    if len(nest.axes) > 1 and kernel.shared:
        schedule = replace(schedule, vector=nest.axes[-1].name)
    kernel.finish_block(kernel.lower(c.Nest(nest.axes, body), schedule))


def _write_blocks(kernel: Kernel, step: Step) -> None:
    """Write a kernel with parameters in blocks: along a row, parameters are constant per block or lie side by side."""
    block, shape = int_of(step.binding, "block_size"), shape_of(step.operands[0])
    view = view_along(shape, axis_of(step.binding, len(shape)))
    blocks, row, k = ceildiv(view.size, block), c.Variable("row"), c.Variable("k")
    if view.inner == 1:
        count, run, parameter_offset = view.outer, view.size, row * blocks + k // block
    else:
        count, run = view.outer * view.size, view.inner
        parameter_offset = (row // view.size * blocks + row % view.size // block) * view.inner + k
    expressions: dict[Value, c.Expression] = {}
    element_offset = row * run + k
    body = pointwise.element_statements(
        kernel, [step], lambda _, index: parameter_offset if index else element_offset, expressions
    )
    body += (c.Store(kernel.target(step.result), element_offset, expressions[step.result]),)
    axes = (c.Axis(row, count), c.Axis(k, run))
    kernel.finish_block(share_nest(kernel, axes, body))


def _reject(binding: Binding) -> Rejection | None:
    dtypes = [operand_type(binding, k).dtype for k in range(len(binding.operands))]
    values = [c.Variable("v", c.CType(dtype)) for dtype in dtypes]
    element = pointwise.element_of(Step(binding, binding.operands), values)
    is_known = element.type.is_float or binding.op.name != "nn.batch_norm"
    if not is_known or (isinstance(element, c.Element) and not c.has_c_form(element)):
        return Rejection("dtype", f"{binding.op.name} has no C form for {', '.join(dtypes)}")
    if binding.op.name in pointwise.PER_CHANNEL:
        shape = operand_shape(binding, 0)
        size = shape[axis_of(binding, len(shape))]
        if any(operand_shape(binding, index) != (size,) for index in range(1, len(binding.operands))):
            return reject_sizes(binding)
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    """Require operand sizes: parameters of quantisation are as many as the indices of the axis, or the blocks."""
    (shape, *parameters), quantises = map(shape_of, step.operands), step.op in ("quantize", "dequantize")
    if not quantises and step.op not in pointwise.PER_CHANNEL:
        require_broadcast(scope, step)
    elif quantises and parameters[0]:
        axis, block = axis_of(step.binding, len(shape)), int_of(step.binding, "block_size")
        expected = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :]) if block else shape[axis : axis + 1]
        for index, dims in enumerate(parameters, 1):
            require_equal_sizes(scope, step, index, dims, expected)


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if pointwise.is_pointwise(step) else Access.COMPACT


FAMILY = KernelFamily(pointwise.POINTWISE, _reject, _write, require=_require, reads=_access, writes=_access)
"""Ops depending on a single element of each operand, and quantisation, optionally by blocks."""
