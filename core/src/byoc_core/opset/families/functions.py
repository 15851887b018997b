"""Mathematical functions, remainders, bitwise logic, and the tests for NaN and infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from byoc_core.kernels.numpy_kernel import NumpyKernel, arithmetic, fixed_dtype, predicate
from byoc_core.kernels.precision import NDArray, is_integer
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.pointwise import binary_op, unary_op
from byoc_core.opset.rounding import EXACT, ROUNDED, Rounding, Rule
from byoc_core.opset.type_rules import FLOAT_KINDS, INTEGER_KINDS, NUMBER_KINDS

__all__ = ["OPS"]

_COMMUTATIVE = frozenset({Trait.COMMUTATIVE})


def _negative_shifts(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(operands[1] < 0)


def _not_finite(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    x, y = operands
    return ~(np.isfinite(x) & np.isfinite(y)) if x.dtype.kind == "f" else np.asarray(False)


_SHIFT = replace(EXACT, open_elements=_negative_shifts)


def _reciprocal(x: NDArray) -> NDArray:
    """Gives ``1 / x``; infinity for zero, with its sign."""
    return np.asarray(np.ones((), x.dtype) / x)


def _isinf(x: NDArray, *, detect_negative: bool, detect_positive: bool) -> NDArray:
    """Tells where ``x`` is infinite, of the signs asked for."""
    infinite = np.isinf(x)
    negative = infinite & (x < 0)
    return np.asarray((negative & detect_negative) | (infinite & ~negative & detect_positive))


def _mod(x: NDArray, y: NDArray, *, fmod: bool) -> NDArray:
    """Gives the remainder of ``x / y``, with the sign of ``y``, or of ``x`` with ``fmod``.

    An integer divided by zero leaves 0, a float NaN.
    """
    remainder = np.fmod if fmod else np.mod
    if not is_integer(x.dtype):
        return np.asarray(remainder(x, y)).astype(x.dtype, copy=False)
    divisor = np.where(y != 0, y, np.ones_like(y))  # int4 warns of zeros, whatever `errstate` says
    return np.where(y != 0, remainder(x, divisor), 0).astype(x.dtype, copy=False)


def _function(name: str, doc: str, kernel: NumpyKernel, ulps: float, onnx: str) -> OpDef:
    return unary_op(name, doc, kernel, rounding=Rounding(Rule.ULP, ulps), onnx=onnx)


_FUNCTIONS = (
    unary_op(
        "floor",
        "Gives the largest integer that is not above ``x``.",
        arithmetic(np.floor),
        rounding=EXACT,
        onnx="Floor",
    ),
    unary_op(
        "ceil", "Gives the smallest integer that is not below ``x``.", arithmetic(np.ceil), rounding=EXACT, onnx="Ceil"
    ),
    unary_op(
        "round",
        "Gives the nearest integer, the even one where two are as near.",
        arithmetic(np.rint),
        rounding=EXACT,
        onnx="Round",
    ),
    _function(
        "reciprocal",
        "Gives ``1 / x``: an infinity for zero.",
        NumpyKernel(_reciprocal, fresh=True),
        2.5,
        "Reciprocal",
    ),
    _function("sin", "Gives the sine of ``x``, in radians.", arithmetic(np.sin), 4.0, "Sin"),
    _function("cos", "Gives the cosine of ``x``, in radians.", arithmetic(np.cos), 4.0, "Cos"),
    _function("tan", "Gives the tangent of ``x``, in radians.", arithmetic(np.tan), 5.0, "Tan"),
    _function("asin", "Gives the arc sine of ``x``: NaN outside -1 to 1.", arithmetic(np.arcsin), 4.0, "Asin"),
    _function("acos", "Gives the arc cosine of ``x``: NaN outside -1 to 1.", arithmetic(np.arccos), 4.0, "Acos"),
    _function("atan", "Gives the arc tangent of ``x``.", arithmetic(np.arctan), 5.0, "Atan"),
    _function("sinh", "Gives the hyperbolic sine of ``x``.", arithmetic(np.sinh), 4.0, "Sinh"),
    _function("cosh", "Gives the hyperbolic cosine of ``x``.", arithmetic(np.cosh), 4.0, "Cosh"),
    _function("asinh", "Gives the inverse hyperbolic sine of ``x``.", arithmetic(np.arcsinh), 4.0, "Asinh"),
    _function(
        "acosh", "Gives the inverse hyperbolic cosine of ``x``: NaN below 1.", arithmetic(np.arccosh), 4.0, "Acosh"
    ),
    _function(
        "atanh",
        "Gives the inverse hyperbolic tangent of ``x``: NaN outside -1 to 1.",
        arithmetic(np.arctanh),
        5.0,
        "Atanh",
    ),
)

OPS: tuple[OpDef, ...] = (
    *_FUNCTIONS,
    unary_op(
        "sign",
        "Gives -1, 0 or 1: the sign of ``x``; NaN stays NaN.",
        arithmetic(np.sign),
        kinds=NUMBER_KINDS,
        rounding=EXACT,
        onnx="Sign",
    ),
    unary_op(
        "bitwise_not",
        "Gives ``x`` with each bit inverted.",
        arithmetic(np.bitwise_not),
        kinds=INTEGER_KINDS,
        onnx="BitwiseNot",
    ),
    binary_op(
        "bitwise_and",
        "Gives the bits that both have.",
        arithmetic(np.bitwise_and),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseAnd",
    ),
    binary_op(
        "bitwise_or",
        "Gives the bits that at least one has.",
        arithmetic(np.bitwise_or),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseOr",
    ),
    binary_op(
        "bitwise_xor",
        "Gives the bits that exactly one has.",
        arithmetic(np.bitwise_xor),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseXor",
    ),
    binary_op(
        "left_shift",
        "Gives ``x << y``; 0 where ``y`` is the number of bits or more.",
        arithmetic(np.left_shift),
        kinds=INTEGER_KINDS,
        rounding=_SHIFT,
    ),
    binary_op(
        "right_shift",
        "Gives ``x >> y``; 0 or -1 where ``y`` is the number of bits or more.",
        arithmetic(np.right_shift),
        kinds=INTEGER_KINDS,
        rounding=_SHIFT,
    ),
    binary_op(
        "not_equal",
        "Tells where ``x != y``.",
        predicate(np.not_equal),
        kinds=(*NUMBER_KINDS, "bool"),
        result="bool",
        traits=_COMMUTATIVE,
    ),
    binary_op(
        "logical_xor",
        "Tells where exactly one holds.",
        predicate(np.logical_xor),
        kinds=("bool",),
        traits=_COMMUTATIVE,
        onnx="Xor",
    ),
    binary_op(
        "mod",
        "Gives the remainder of ``x / y``; an integer divided by zero leaves 0.",
        NumpyKernel(_mod, fresh=True),
        kinds=NUMBER_KINDS,
        attrs=(AttrSpec("fmod", AttrKind.BOOL, False, doc="Whether it has the sign of ``x``, not that of ``y``."),),
        rounding=replace(ROUNDED, open_elements=_not_finite),  # `fmod` is exact; the other sign takes an addition
        more_cases=(example((2, 3), (2, 3), fmod=True),),
    ),
    unary_op("isnan", "Tells where ``x`` is NaN.", predicate(np.isnan), kinds=FLOAT_KINDS, result="bool", onnx="IsNaN"),
    unary_op(
        "isinf",
        "Tells where ``x`` is infinite.",
        NumpyKernel(_isinf, fresh=True, gives=fixed_dtype("bool")),
        kinds=FLOAT_KINDS,
        result="bool",
        attrs=(
            AttrSpec("detect_negative", AttrKind.BOOL, True, doc="Whether minus infinity counts."),
            AttrSpec("detect_positive", AttrKind.BOOL, True, doc="Whether plus infinity counts."),
        ),
    ),
)
"""The family's ops."""
