"""Linear algebra: products of matrices, and adding a bias."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from byoc_core.dims import Dim, broadcast_dim, product
from byoc_core.errors import IRTypeError
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.permutation import permute_axis
from byoc_core.opset.rounding import ROUNDED, SUM
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
from byoc_core.opset.value_bounds import ValueFacts, bound_of_total, dot_bound, summed

__all__ = ["OPS"]


def _matmul(x: NDArray, y: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Return the product of (stacks of) matrices by numpy's rules.

    Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``; a 1-d operand is a row on the left, a column on the right.
    """
    # numpy would repeat a product of fewer matrices over a larger stack.
    is_fit = out is not None and x.ndim == y.ndim == out.ndim == 2
    return np.asarray(np.matmul(x, y, out=out if is_fit else None))


def _dense(x: NDArray, weight: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Return ``x @ weight.T``.

    Shapes: ``(..., I), (O, I) -> (..., O)``.
    """
    return _matmul(x, weight.T, out=out)


def _bias_add(x: NDArray, bias: NDArray, *, axis: int, out: NDArray | None = None) -> NDArray:
    """Return ``x`` plus a value for each index of an axis.

    Shapes: ``(..., C, ...), (C,) -> (..., C, ...)``.

    Raises:
        ExecutionError: the number of values is not the number of indices.
    """
    if bias.shape != (x.shape[axis],):
        check_array_shape("nn.bias_add", "bias", bias.shape, (x.shape[axis],))
    if axis % x.ndim < x.ndim - 1:
        bias = bias.reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return np.asarray(np.add(x, bias, out=out))


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


def _dense_flops(context: OpContext) -> Dim:
    """Return ``2 * elements of the result * I`` for ``x (..., I)`` times ``weight (O, I)``."""
    weight = context.operands[1]
    inner = weight.shape[1] if isinstance(weight, TensorType) and weight.shape else 1
    return product((context.elements(), inner)) * 2


def _matmul_bound(facts: ValueFacts) -> float:
    sizes = facts.sizes(1)
    if len(sizes) == 2:
        return dot_bound(facts, 1, sizes[0])
    terms = sizes[-2] if len(sizes) > 2 else sizes[0]
    return summed(facts.bound(0) * facts.bound(1) * terms, terms)


def _dense_bound(facts: ValueFacts) -> float:
    return dot_bound(facts, 0, facts.sizes(1)[1])


def _matmul_cases() -> Iterable[OpCase]:
    yield example((2, 16), (16, 32))
    yield example((1, 64), (64, 32))
    yield example((6, 2, 3), (6, 3, 4))
    yield example((5, 6, 2, 3), (5, 6, 3, 4))
    yield example((5, 2, 3), (3, 4))
    yield example((2, 3), (5, 3, 4))
    yield example((2, 3), (1, 3, 4))
    yield example((5, 2, 3), (6, 1, 3, 4))
    yield example((3,), (5, 3, 4))
    yield example((5, 2, 3), (3,))
    yield example((3,), (3, 4))
    yield example((2, 3), (3,))
    yield example((3,), (3,))


OPS: tuple[OpDef, ...] = (
    OpDef(
        "matmul",
        (OperandSpec("x"), OperandSpec("y")),
        _infer_matmul,
        flops=_matmul_flops,
        kernel=NumpyKernel(_matmul, widens=True, fresh=True),
        rounding=SUM,
        bound=_matmul_bound,
        cases=_matmul_cases,
        onnx=OnnxSpelling("MatMul"),
        doc="Return the product of (stacks of) matrices.\n\n"
        "Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``, leading axes broadcast; a 1-d ``x`` is a row, a 1-d "
        "``y`` a column, without the axis in the result.",
    ),
    OpDef(
        "nn.dense",
        (OperandSpec("x"), OperandSpec("weight")),
        _infer_dense,
        flops=_dense_flops,
        kernel=NumpyKernel(_dense, widens=True, fresh=True),
        rounding=SUM,
        bound=_dense_bound,
        cases=lambda: (example((2, 16), (32, 16)), example((1, 64), (32, 64)), example((2, 5, 3), (4, 3))),
        doc="Return ``x @ weight.T``.\n\nShapes: ``(..., I), (O, I) -> (..., O)``.",
    ),
    OpDef(
        "nn.bias_add",
        (OperandSpec("x"), OperandSpec("bias")),
        _infer_bias_add,
        attrs=(AttrSpec("axis", AttrKind.INT, -1, doc="The axis of ``x`` matching the bias."),),
        flops=flops_per_element(1),
        kernel=NumpyKernel(_bias_add, fresh=True, elementwise=True),
        permute=permute_axis(),
        rounding=ROUNDED,
        bound=bound_of_total,
        cases=lambda: (
            example((2, 16), (16,)),
            example((2, 16, 9, 8), (16,), axis=1),
            example((2, 5, 3), (3,)),
            example((2, 9, 8, 16), (16,)),
        ),
        doc="Return ``x`` plus a value for each index of an axis.\n\nShapes: ``(..., C, ...), (C,) -> (..., C, ...)``.",
    ),
)
"""The family's ops."""
