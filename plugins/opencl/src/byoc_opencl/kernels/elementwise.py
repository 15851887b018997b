"""Kernels of elementwise ops with broadcasting, and of ops with a parameter for each index of an axis."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring import c
from byoc_core.authoring.csource import SCALAR_OPS
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding

from byoc_opencl.kernels.attributes import axis_of, float_of
from byoc_opencl.kernels.family import FLOATS, KernelFamily, dtype_of, reject_sizes, shape_of
from byoc_opencl.kernels.step import DOUBLE, Step, cast, literal, root_of

__all__ = ["ELEMENTWISE_OPS", "FAMILY"]

_PER_CHANNEL = frozenset({"nn.bias_add", "nn.batch_norm"})
ELEMENTWISE_OPS = frozenset(SCALAR_OPS) | _PER_CHANNEL | {"broadcast_to"}
"""Ops computing each element of the result from a single element of each operand."""


def _write(step: Step) -> c.Nest:
    """Return a nest over the result; each operand is loaded once at each point."""
    (out,) = step.outputs
    axes = tuple(c.Axis(c.Variable(f"i{axis}"), size) for axis, size in enumerate(out.shape))
    indices = [axis.index for axis in axes]
    values, body = [], []
    for operand, own_axes in zip(step.inputs, _operand_axes(step.binding), strict=True):
        operand_indices = [c.Size(0) if operand.shape[own] == 1 else indices[axis] for own, axis in enumerate(own_axes)]
        value = c.Variable(f"{operand.buffer.name}_value", operand.type)
        body.append(c.Let(value, operand[operand_indices]))
        values.append(value)
    result = c.Variable("value", out.type)
    body.append(c.Let(result, _element(step.binding, values, out.type)))
    return c.Nest(axes, (*body, out.store(indices, result)))


def _operand_axes(binding: Binding) -> list[tuple[int, ...]]:
    """Return, for each operand, the axes of the result along the operand's own axes."""
    rank = len(shape_of(binding.result))
    ranks = [len(shape_of(operand)) for operand in binding.operands]
    if binding.op.name not in _PER_CHANNEL:
        return [tuple(range(rank - own, rank)) for own in ranks]
    return [tuple(range(rank)), *((axis_of(binding, rank),) for _ in ranks[1:])]


def _element(binding: Binding, values: Sequence[c.Expression], type_: c.CType) -> c.Expression:
    """Return an element of the result from variables with an element of each operand."""
    match binding.op.name:
        case "broadcast_to":
            return values[0]
        case "nn.bias_add":
            return c.Element("add", tuple(values), type_)
        case "nn.batch_norm":
            x, gamma, beta, mean, variance = (cast(value, DOUBLE) for value in values)
            deviation = root_of(variance + literal(float_of(binding, "epsilon"), DOUBLE))
            return cast((x - mean) * (gamma / deviation) + beta, type_)
    return c.Element(binding.op.name, tuple(values), type_, binding.attrs)


def _reject(binding: Binding) -> Rejection | None:
    dtypes = [dtype_of(operand) for operand in binding.operands]
    type_ = c.CType(dtype_of(binding.result))
    element = _element(binding, [c.Variable("v", c.CType(dtype)) for dtype in dtypes], type_)
    is_known = type_.dtype in FLOATS or binding.op.name != "nn.batch_norm"
    if not is_known or (isinstance(element, c.Element) and not c.has_c_form(element)):
        return Rejection("dtype", f"{binding.op.name} has no kernel for {', '.join(dtypes)}")
    shape = shape_of(binding.result)
    for operand, axes in zip(binding.operands, _operand_axes(binding), strict=True):
        if not all(_is_along(dim, shape[axis]) for dim, axis in zip(shape_of(operand), axes, strict=True)):
            return reject_sizes(binding)
    return None


def _is_along(dim: Dim, size: Dim) -> bool:
    """Return whether an axis of an operand is known to be as long as an axis of the result, or to be repeated."""
    return dim in (1, size)


FAMILY = KernelFamily(ELEMENTWISE_OPS, _write, _reject, is_nest=True)
"""Elementwise ops, biases and normalisation by given statistics."""
