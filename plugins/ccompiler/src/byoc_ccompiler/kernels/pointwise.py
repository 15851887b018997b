"""The elementwise part of a kernel: loads, one C statement per op, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from byoc_core.authoring.csource import (
    SCALAR_OPS,
    FunctionScope,
    ParallelLoop,
    c_literal,
    c_suffix,
    c_type,
    scalar_expression,
    tensor_type,
    without_parentheses,
)
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Value, Var

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest, memory_order, spread
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast
from byoc_ccompiler.steps import Step, shape_of

__all__ = [
    "FAMILY",
    "element_expression",
    "element_lines",
    "elementwise_kernel",
    "is_pointwise",
    "operand_axes",
    "operand_dims",
    "operand_layout",
    "pointwise_lines",
    "store_lines",
]

_PER_CHANNEL = frozenset({"nn.bias_add", "nn.batch_norm"})

_QUANTISING = frozenset({"quantize", "dequantize"})

_POINTWISE = frozenset(SCALAR_OPS) | _PER_CHANNEL | {"broadcast_to"}

Dims = tuple[Dim, ...]
Offset = Callable[[Dims], str]
Place = Callable[[Step, int], str]

_STEP_PS = 50
"""Estimated picoseconds of one step on one element, and of moving the element."""

_GRAIN = 64
"""Elements of the innermost loop that stay with one thread: no two threads write to one cache line."""


def is_pointwise(step: Step) -> bool:
    """Tells whether an element of a step's result depends on one element of each operand."""
    return step.op in _POINTWISE or (step.op in _QUANTISING and int_of(step.binding, "block_size") == 0)


def operand_axes(step: Step) -> Sequence[tuple[int, ...]]:
    """Gives, for each operand, the axes of the result that its own axes lie along."""
    if step.axes is not None:
        return step.axes
    rank = len(shape_of(step.result))
    ranks = [len(shape_of(operand)) for operand in step.operands]
    if step.op not in _PER_CHANNEL | _QUANTISING:
        return [tuple(range(rank - own, rank)) for own in ranks]
    # A scalar parameter has no axis, and with scalar parameters `x` may be a scalar too: there is no axis to resolve.
    return [tuple(range(rank)), *((axis_of(step.binding, rank),) if own else () for own in ranks[1:])]


def operand_dims(step: Step) -> list[Dims]:
    """Gives, for each operand, its sizes along the axes of the result (1 where it broadcasts)."""
    rank = len(shape_of(step.result))
    axes = operand_axes(step)
    return [spread(shape_of(operand), own, rank, 1) for operand, own in zip(step.operands, axes, strict=True)]


def element_expression(step: Step, values: Sequence[str]) -> str | None:
    """Gives the C expression of one element of a step's result, or ``None`` where there is none for its dtypes."""
    dtypes = [tensor_type(operand, "kernel")[1] for operand in step.operands]
    result = tensor_type(step.result, "kernel")[1]
    if step.op == "nn.bias_add":
        return scalar_expression("add", values, dtypes, result, {})
    if step.op == "broadcast_to":
        return values[0]
    if step.op in _QUANTISING:
        return _QUANTISED[step.op](values, dtypes, result)
    if step.op == "nn.batch_norm":
        if result not in ("float32", "float64"):
            return None
        x, gamma, beta, mean, variance = values
        root = "sqrtf" if result == "float32" else "sqrt"
        epsilon = c_literal(step.binding.attrs["epsilon"], result)
        return f"(({x} - {mean}) * ({gamma} / {root}({variance} + {epsilon})) + {beta})"
    if step.op == "exp" and step.is_nonpositive:
        return f"byoc_exp_nonpositive_{c_suffix(result)}({values[0]})"
    return scalar_expression(step.op, values, dtypes, result, step.binding.attrs)


def _quantised(values: Sequence[str], dtypes: Sequence[str], result: str) -> str:
    """Gives an element over its scale as an integer, beside the zero point, within the limits of its dtype."""
    x, scale, zero = values
    limits = np.iinfo(result)
    ctype = c_type(dtypes[0])
    arguments = f"{x} / {scale}, ({ctype}){zero}, {limits.min}, {limits.max}"
    return f"(({c_type(result)})byoc_quantised_{c_suffix(dtypes[0])}({arguments}))"


def _dequantised(values: Sequence[str], dtypes: Sequence[str], result: str) -> str:
    """Gives the float that an integer stands for: its distance from the zero point, exactly, times the scale."""
    x, scale, zero = values
    bits = dtype_info(dtypes[0]).bits
    if bits <= 16:
        steps = f"(int32_t){x} - (int32_t){zero}"
    elif bits == 32:
        steps = f"(int64_t){x} - (int64_t){zero}"
    else:
        steps = f"byoc_subtract_i64((int64_t){x}, (int64_t){zero})"
    return f"(({c_type(result)})({steps}) * {scale})"


_QUANTISED = {"quantize": _quantised, "dequantize": _dequantised}


def element_lines(kernel: Kernel, steps: Iterable[Step], place: Place, known: dict[Value, str]) -> list[str]:
    """Gives the body of a loop that computes the steps at one position.

    Args:
        kernel: declares what the lines read.
        steps: the elementwise steps, in order.
        place: gives the C expression of the offset of a step's operand, by its number.
        known: C expressions of values at hand already (an anchor's sum); the names of the results are added.
    """
    loads: list[str] = []
    lines: list[str] = []
    loaded: dict[tuple[Value, str], str] = {}
    for step in steps:
        values = []
        roles = step.binding.op.operand_names(len(step.operands))
        for index, (operand, role) in enumerate(zip(step.operands, roles, strict=True)):
            if operand in known:
                values.append(known[operand])
                continue
            literal = kernel.literal(operand)
            if literal is not None:
                values.append(literal)
                continue
            key = (operand, place(step, index))
            if key not in loaded:
                pointer = kernel.input(operand, role)
                loaded[key] = kernel.names.unique(f"{pointer}_value")
                loads.append(f"const {_ctype(operand)} {loaded[key]} = {pointer}[{key[1]}];")
            values.append(loaded[key])
        expression = element_expression(step, values)
        if expression is None:
            raise InternalError(f"op `{step.op}`", "was accepted but has no C expression", got=step.binding)
        name = kernel.names.unique(step.result.name)
        known[step.result] = name
        lines.append(f"const {_ctype(step.result)} {name} = {without_parentheses(expression)};")
    return [*loads, *lines]


def pointwise_lines(kernel: Kernel, steps: Sequence[Step], offset: Offset, known: dict[Value, str]) -> list[str]:
    """Gives what :func:`element_lines` gives, where operands lie compact: their sizes alone say where."""
    return element_lines(kernel, steps, lambda step, index: offset(operand_dims(step)[index]), known)


def store_lines(kernel: Kernel, values: Sequence[Var], offset: Offset, known: dict[Value, str]) -> list[str]:
    """Gives the statements that write values to memory that lies compact."""
    return [f"{kernel.output(value)}[{offset(shape_of(value))}] = {known[value]};" for value in values]


def operand_layout(kernel: Kernel, step: Step, index: int) -> Layout:
    """Gives how an operand is read along the axes of a step's result."""
    operand, axes, rank = step.operands[index], operand_axes(step)[index], len(shape_of(step.result))
    return Layout(spread(shape_of(operand), axes, rank, 1), spread(kernel.strides(operand), axes, rank, 0))


def elementwise_kernel(kernel: Kernel) -> None:
    """Writes a kernel of elementwise steps: one loop nest for all."""
    steps, space = kernel.group.steps, kernel.group.space or ()
    layouts: dict[object, Layout] = {
        (step, index): operand_layout(kernel, step, index) for step in steps for index in range(len(step.operands))
    }
    layouts |= {value: Layout(shape_of(value), kernel.strides(value)) for value in kernel.stored}
    nest = StridedNest(space, layouts, memory_order(kernel.strides(kernel.stored[0])))
    kernel.names.reserve(nest.indices)
    known: dict[Value, str] = {}
    lines = element_lines(kernel, steps, lambda step, index: nest.offset((step, index)), known)
    lines += [f"{kernel.output(value)}[{nest.offset(value)}] = {known[value]};" for value in kernel.stored]
    bounds = next((loop for loop, size in enumerate(nest.sizes) if size != 1), None)
    text = nest.wrap(lines, part=bounds)
    if kernel.shared and nest.sizes:
        text.insert(len(nest.sizes) - 1, "  " * len(nest.sizes) + "BYOC_INDEPENDENT_ROUNDS")
    if bounds is None:
        kernel.finish(text)
        return
    count = nest.sizes[bounds]
    item_ps = product(nest.sizes[bounds + 1 :]) * (len(steps) + 1) * _STEP_PS
    grain = _GRAIN if bounds == len(nest.sizes) - 1 else 1
    kernel.finish([ParallelLoop(tuple(text), count, item_ps, grain)])


def _ctype(value: Value) -> str:
    return c_type(tensor_type(value, "kernel")[1])


def _reject(binding: Binding) -> Rejection | None:
    step = Step(binding, binding.operands)
    if element_expression(step, [f"v{k}" for k in range(len(binding.operands))]) is None:
        dtypes = ", ".join(operand_type(binding, k).dtype for k in range(len(binding.operands)))
        return Rejection("dtype", f"{binding.op.name} has no C form for {dtypes}")
    if binding.op.name in _PER_CHANNEL:
        shape = operand_shape(binding, 0)
        size = shape[axis_of(binding, len(shape))]
        if any(operand_shape(binding, index) != (size,) for index in range(1, len(binding.operands))):
            return reject_sizes(binding)
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    if step.op not in _PER_CHANNEL:
        require_broadcast(scope, step)


def _rows(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILY = KernelFamily(_POINTWISE, _reject, elementwise_kernel, require=_require, reads=_rows, writes=_rows)
"""Ops that depend on one element of each operand, save for quantisation, which may be by blocks."""
