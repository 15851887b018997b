"""Private ops of this backend: products of 8-bit integers with 32-bit sums, introduced by rewrites of regions.

Only :mod:`byoc_ccompiler.regions.byte_products` emits these ops, with int8 weights and output channels first; only
:mod:`byoc_ccompiler.kernels.byte_products` computes the ops. The type rules do not check dtypes.
"""

from __future__ import annotations

from dataclasses import replace

from byoc_core.ir import AttrKind, AttrSpec, OpDef, OperandSpec, TensorType, Type, TypeContext
from byoc_core.ops import default_ops

__all__ = ["BYTE_CONVOLUTION", "BYTE_PRODUCT"]

_CONVOLUTION = default_ops()["nn.conv2d"]
_OPERANDS = (OperandSpec("x"), OperandSpec("weight"))
_ZERO_POINT = AttrSpec(
    "zero_point", AttrKind.INT, 0, doc="The number subtracted from ``x``, and the value beyond the borders of ``x``."
)


def _infer_product(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType((*context.shape(0)[:-1], context.shape(1)[0]), "int32"),)


def _infer_convolution(context: TypeContext) -> tuple[Type, ...]:
    wide = tuple(TensorType(context.shape(index), "int32") for index in (0, 1))
    attrs = {name: value for name, value in context.attrs.items() if name != _ZERO_POINT.name}
    return _CONVOLUTION.infer(replace(context, op=_CONVOLUTION.name, operands=wide, attrs=attrs))


BYTE_PRODUCT = OpDef(
    "ccompiler.byte_product",
    _OPERANDS,
    _infer_product,
    attrs=(_ZERO_POINT,),
    doc="Return ``(x - zero_point) @ weight.T`` in int32.\n\n"
    "Shapes: ``x`` ``(..., K)`` of int8 or uint8, ``weight`` ``(N, K)`` of int8; the result is ``(..., N)``.",
)
"""A product with a constant matrix."""

BYTE_CONVOLUTION = OpDef(
    "ccompiler.byte_conv2d",
    (*_OPERANDS, OperandSpec("border", variadic=True)),
    _infer_convolution,
    attrs=(*_CONVOLUTION.attrs, _ZERO_POINT),
    doc="Return ``nn.conv2d`` of ``x - zero_point`` in int32. The value beyond the borders of ``x`` is ``zero_point``, "
    "plus ``border`` if given, a scalar of the dtype of ``x``.\n\n"
    "Shapes: ``x`` is NHWC, of int8 or uint8; ``weight`` OIHW, of int8; one group.",
)
"""A convolution with a constant filter."""
