"""Kernels of matrix products: a thread computes an element of the result."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding

from byoc_opencl.kernels.family import KernelFamily, reject_other_than_floats, reject_sizes, shape_of
from byoc_opencl.kernels.step import Step, Tensor, literal

__all__ = ["FAMILY"]


def _write(step: Step) -> c.Nest:
    x, y = step.inputs
    (out,) = step.outputs
    axes = tuple(c.Axis(c.Variable(f"i{axis}"), size) for axis, size in enumerate(out.shape))
    indices: list[c.Expression] = [axis.index for axis in axes]
    k = c.Axis(c.Variable("k"), x.shape[-1])
    column = [indices.pop()] if len(y.shape) > 1 else []
    row = [indices.pop()] if len(x.shape) > 1 and step.binding.op.name == "matmul" else []
    if step.binding.op.name == "nn.dense":
        left, right = x[[*indices, k.index]], y[[*column, k.index]]
    else:
        left = x[[*_stack_of(x, indices, 2), *row, k.index]]
        right = y[[*_stack_of(y, indices, 2), k.index, *column]]
    total = c.Variable("total", out.type)
    points = [axis.index for axis in axes]
    sums = (c.Accumulator(total, literal(0, out.type), total + left * right),)
    return c.Nest(axes, (out.store(points, total),), (k,), accumulators=sums)


def _stack_of(tensor: Tensor, indices: list[c.Expression], num_inner: int) -> list[c.Expression]:
    """Return the indices of a matrix in a stack, broadcast to the stack of the result."""
    outer = tensor.shape[: max(len(tensor.shape) - num_inner, 0)]
    own = indices[len(indices) - len(outer) :]
    return [c.Size(0) if size == 1 else index for size, index in zip(outer, own, strict=True)]


def _reject(binding: Binding) -> Rejection | None:
    if (rejection := reject_other_than_floats(binding)) is not None:
        return rejection
    x, y = map(shape_of, binding.operands)
    inner: Dim = y[-1] if binding.op.name == "nn.dense" else y[max(len(y) - 2, 0)]
    if x[-1] != inner:
        return reject_sizes(binding)
    if binding.op.name == "matmul":
        result = shape_of(binding.result)
        num_matrix = (len(x) > 1) + (len(y) > 1)
        stack = result[: len(result) - num_matrix]
        for shape in (x[:-2], y[:-2]):
            pairs = zip(reversed(shape), reversed(stack), strict=False)
            if any(dim not in (1, size) for dim, size in pairs):
                return reject_sizes(binding)
    return None


FAMILY = KernelFamily(frozenset({"matmul", "nn.dense"}), _write, _reject, is_nest=True)
"""Products of matrices and of stacks of matrices."""
