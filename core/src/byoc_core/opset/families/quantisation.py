"""Quantisation: floats as integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from byoc_core.dims import ceildiv
from byoc_core.dtypes import dtype_info
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray, highest, lowest, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, OperandCase, Shape, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import PURE, OpDef, OperandSpec, Trait
from byoc_core.opset.permutation import Permutable, permute_axis
from byoc_core.opset.rounding import NORM, Rounding, Rule
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    INTEGER_KINDS,
    flops_per_element,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    resolve_axis,
)
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import UNIT, ValueFacts

__all__ = ["OPS"]


def _quantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Return ``round(x / scale) + zero_point``, halves to even, limited to the type of ``zero_point``; 0 for NaN.

    Raises:
        ExecutionError: the number of parameters is not the number of indices, or blocks, of the axis.
    """
    divisor, zero = _broadcast_parameters("quantize", scale, zero_point, x, axis, block_size)
    wide = working_dtype(x.dtype)
    shifted = np.rint(x.astype(wide, copy=False) / divisor.astype(wide, copy=False)) + zero.astype(wide)
    limited = np.clip(np.where(np.isnan(shifted), 0, shifted), lowest(zero_point.dtype), highest(zero_point.dtype))
    return np.asarray(limited).astype(zero_point.dtype)


def _dequantize(x: NDArray, scale: NDArray, zero_point: NDArray, *, axis: int, block_size: int) -> NDArray:
    """Return ``(x - zero_point) * scale`` in the dtype of ``scale``.

    Raises:
        ExecutionError: the number of parameters is not the number of indices, or blocks, of the axis.
    """
    factor, zero = _broadcast_parameters("dequantize", scale, zero_point, x, axis, block_size)
    wide = working_dtype(scale.dtype)
    steps = x.astype(np.int64) - zero.astype(np.int64)
    result = steps.astype(wide) * factor.astype(wide, copy=False)
    return np.asarray(result).astype(scale.dtype, copy=False)


def _broadcast_parameters(
    op: str, scale: NDArray, zero_point: NDArray, x: NDArray, axis: int, block_size: int
) -> tuple[NDArray, NDArray]:
    """Return both parameters (a single value, or a value per index of an axis or per block) in broadcast form."""
    if scale.ndim == 0:
        return scale, zero_point
    axis %= x.ndim
    size = x.shape[axis]
    shape = (*x.shape[:axis], -(-size // block_size), *x.shape[axis + 1 :]) if block_size else (size,)
    check_array_shape(op, "scale", scale.shape, shape)
    check_array_shape(op, "zero_point", zero_point.shape, shape)
    if block_size:
        block = np.arange(size) // block_size
        return scale.take(block, axis=axis), zero_point.take(block, axis=axis)
    broadcast = [size if other == axis else 1 for other in range(x.ndim)]
    return scale.reshape(broadcast), zero_point.reshape(broadcast)


_QUANTISED = ("int2", "int4", "int8", "int16", "uint2", "uint4", "uint8", "uint16")
_ATTRS = (
    AttrSpec("axis", AttrKind.INT, 1, doc="The axis of parameters of rank 1, or of blocks."),
    AttrSpec("block_size", AttrKind.INT, 0, doc="The number of indices of ``axis`` sharing a parameter; 0: no blocks."),
)
_SHAPES_DOC = (
    "Shapes: ``scale`` and ``zero_point`` are scalars, or ``(C,)`` along ``axis``, or, in blocks of ``B``, shaped as "
    "``x`` with ``ceil(C / B)`` in place of the size ``C`` of ``axis``; the result has the shape of ``x``."
)


def _check_blocks(context: TypeContext, block_size: int) -> None:
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    for index in (1, 2):
        require_rank(context, index, len(shape), "as operand `x`, because parameters are in blocks")
        for other, size in enumerate(shape):
            expected, meaning = (ceildiv(size, block_size), "blocks") if other == axis else (size, "as operand `x`")
            require_equal(context, index, other, expected, meaning)


def _check_parameters(context: TypeContext) -> None:
    shape, block_size = context.shape(0), context.attrs["block_size"]
    if block_size < 0:
        raise context.error("attribute `block_size` is negative", got=block_size, expected="0 or more")
    if block_size:
        _check_blocks(context, block_size)
        return
    for index in (1, 2):
        found = context.shape(index)
        if len(found) > 1 or len(found) != len(context.shape(1)):
            raise context.error(
                f"has rank {len(found)}", operand=index, expected="rank 0 or 1, the same for scale and zero point"
            )
        if found:
            axis = resolve_axis(context, context.attrs["axis"], len(shape))
            require_equal(context, index, 0, shape[axis], f"as axis {axis} of operand `x`")


def _infer_quantize(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    require_same_dtype(context, 0, 1)
    zero = context.tensor(2)
    if zero.dtype not in _QUANTISED:
        raise context.error(
            "has a dtype not available as a result", operand=2, got=zero.dtype, expected=" or ".join(_QUANTISED)
        )
    _check_parameters(context)
    return (TensorType(type_.shape, zero.dtype),)


def _infer_dequantize(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, INTEGER_KINDS)
    scale = require_kind(context, 1, FLOAT_KINDS)
    require_same_dtype(context, 0, 2)
    _check_parameters(context)
    return (TensorType(type_.shape, scale.dtype),)


_permute_axis = permute_axis()


def _permute(context: OpContext) -> Permutable | None:
    """Return the permutation rule of the first operand; ``None`` for blocks: their parameters would be permuted too."""
    return None if context.attrs["block_size"] else _permute_axis(context)


def _dequantize_bound(facts: ValueFacts) -> float:
    """Return the bound for all integers of the dtype; of constants, only the scale is read."""
    type_ = facts.context.operands[0]
    assert isinstance(type_, TensorType)
    num_steps = 2.0 ** dtype_info(type_.dtype).bits
    return num_steps * facts.bound(1) * (1 + UNIT)


_CASES: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3), ()),
    ((2, 3), (3,)),
    ((2, 16, 9, 8), (16,)),
    ((2, 16, 9, 8), ()),
)
_CASE_DTYPES = ("int8", "uint8")


def _quantize_cases() -> Iterable[OpCase]:
    return (example(shape, scale, OperandCase(scale, dtype)) for shape, scale in _CASES for dtype in _CASE_DTYPES)


def _dequantize_cases() -> Iterable[OpCase]:
    for shape, scale in _CASES:
        yield from (example(shape, OperandCase(scale, "float32"), scale, dtype=dtype) for dtype in _CASE_DTYPES)


_OPERANDS = tuple(OperandSpec(name) for name in ("x", "scale", "zero_point"))

OPS: tuple[OpDef, ...] = (
    OpDef(
        "quantize",
        _OPERANDS,
        _infer_quantize,
        attrs=_ATTRS,
        flops=flops_per_element(3),
        kernel=NumpyKernel(_quantize, gives=dtype_of(2)),
        permute=_permute,
        rounding=Rounding(Rule.NORM, integers=Rule.NORM),
        cases=_quantize_cases,
        doc="Return ``round(x / scale) + zero_point``, with ties to even, limited to the range of the dtype of "
        "``zero_point``; the result has the same dtype.\n\n"
        f"{_SHAPES_DOC}",
    ),
    OpDef(
        "dequantize",
        _OPERANDS,
        _infer_dequantize,
        attrs=_ATTRS,
        traits=PURE | {Trait.WIDENING},
        flops=flops_per_element(2),
        kernel=NumpyKernel(_dequantize, gives=dtype_of(1)),
        rounding=NORM,
        permute=_permute,
        bound=_dequantize_bound,
        cases=_dequantize_cases,
        doc=f"Return ``(x - zero_point) * scale`` in the dtype of ``scale``.\n\n{_SHAPES_DOC}",
    ),
)
"""The family's ops."""
