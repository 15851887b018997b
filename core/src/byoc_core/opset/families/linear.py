"""Linear algebra: products of matrices, and the bias that follows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.dims import Dim, broadcast_dim, product
from byoc_core.errors import IRTypeError
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, as_numpy_kernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import (
    NUMBER_KINDS,
    flops_per_element,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    resolve_axis,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "bias_add", "dense", "matmul"]


def matmul(x: NDArray, y: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Gives the product of (stacks of) matrices by numpy's rules.

    Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``; a 1-d operand is a row on the left, a column on the right.
    """
    # numpy would repeat a product of fewer matrices over a larger stack.
    is_fit = out is not None and x.ndim == y.ndim == out.ndim == 2
    return np.asarray(np.matmul(x, y, out=out if is_fit else None))


def dense(x: NDArray, weight: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Gives ``x @ weight.T``.

    Shapes: ``(..., I), (O, I) -> (..., O)``.
    """
    return matmul(x, weight.T, out=out)


def bias_add(x: NDArray, bias: NDArray, *, axis: int, out: NDArray | None = None) -> NDArray:
    """Gives ``x`` plus one value for each index of one axis.

    Shapes: ``(..., C, ...), (C,) -> (..., C, ...)``.

    Raises:
        ExecutionError: there is not one value for each index.
    """
    if bias.shape != (x.shape[axis],):
        check_array_shape("nn.bias_add", "bias", bias.shape, (x.shape[axis],))
    if axis % x.ndim < x.ndim - 1:
        bias = bias.reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return np.asarray(np.add(x, bias, out=out))


KERNELS: dict[str, Callable[..., NDArray]] = {
    "matmul": NumpyKernel(matmul, widens=True, fresh=True),
    "nn.dense": NumpyKernel(dense, widens=True, fresh=True),
    "nn.bias_add": NumpyKernel(bias_add, fresh=True, elementwise=True),
}


def _infer_matmul(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1)
    left, right = context.shape(0), context.shape(1)
    for index, shape in enumerate((left, right)):
        if not shape:
            raise context.error("is a scalar", operand=index, expected="rank 1 or more")
    inner = left[-1]
    require_equal(context, 1, max(len(right) - 2, 0), inner, "as the last axis of operand `x`")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return (TensorType((*_broadcast_batch(context, left[:-2], right[:-2]), *rows, *columns), dtype),)


def _broadcast_batch(context: TypeContext, left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    rank = max(len(left), len(right))
    padded_left = (1,) * (rank - len(left)) + left
    padded_right = (1,) * (rank - len(right)) + right
    joined: list[Dim] = []
    for axis, (a, b) in enumerate(zip(padded_left, padded_right, strict=True)):
        try:
            joined.append(broadcast_dim(a, b))
        except IRTypeError as error:
            own_axis = axis - (rank - len(right))
            raise context.error(
                f"batch axis {own_axis} has size {b} and does not broadcast with size {a} of operand `x`", operand=1
            ) from error
    return tuple(joined)


def _matmul_flops(context: OpContext) -> Dim:
    left = context.operands[0]
    inner = left.shape[-1] if isinstance(left, TensorType) and left.shape else 1
    return context.elements() * inner * 2


def _infer_dense(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1)
    shape = context.shape(0)
    weight = require_rank(context, 1, 2, "(O, I)")
    if not shape:
        raise context.error("is a scalar", operand=0, expected="rank 1 or more: (..., I)")
    require_equal(context, 1, 1, shape[-1], "as the last axis of operand `x`")
    return (TensorType((*shape[:-1], weight[0]), dtype),)


def _infer_bias_add(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    require_same_dtype(context, 0, 1)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    require_rank(context, 1, 1, "(C,)")
    require_equal(context, 1, 0, shape[axis], f"as axis {axis} of operand `x`")
    return (type_,)


def dense_flops(context: OpContext) -> Dim:
    """Gives ``2 * elements of the result * I`` for ``x (..., I)`` times ``weight (O, I)``."""
    weight = context.operands[1]
    inner = weight.shape[1] if isinstance(weight, TensorType) and weight.shape else 1
    return product((context.elements(), inner)) * 2


OPS: tuple[OpDef, ...] = (
    OpDef(
        "matmul",
        (OperandSpec("x"), OperandSpec("y")),
        _infer_matmul,
        flops=_matmul_flops,
        kernel=as_numpy_kernel(KERNELS["matmul"]),
        doc="Gives the product of (stacks of) matrices.\n\n"
        "Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``, leading axes broadcast; a 1-d ``x`` is one row, a 1-d "
        "``y`` one column, and the result lacks that axis.",
    ),
    OpDef(
        "nn.dense",
        (OperandSpec("x"), OperandSpec("weight")),
        _infer_dense,
        flops=dense_flops,
        kernel=as_numpy_kernel(KERNELS["nn.dense"]),
        doc="Gives ``x @ weight.T``.\n\nShapes: ``(..., I), (O, I) -> (..., O)``.",
    ),
    OpDef(
        "nn.bias_add",
        (OperandSpec("x"), OperandSpec("bias")),
        _infer_bias_add,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The axis of ``x`` that the bias runs along."),),
        flops=flops_per_element(1),
        kernel=as_numpy_kernel(KERNELS["nn.bias_add"]),
        doc="Gives ``x`` plus one value for each index of one axis.\n\n"
        "Shapes: ``(..., C, ...), (C,) -> (..., C, ...)``.",
    ),
)
"""The family's ops."""
