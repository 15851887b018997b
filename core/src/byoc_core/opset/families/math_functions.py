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
    """Return ``1 / x``; infinity for zero, with the sign of the zero."""
    return np.asarray(np.ones((), x.dtype) / x)


def _isinf(x: NDArray, *, detect_negative: bool, detect_positive: bool) -> NDArray:
    """Return whether each element is infinite with a requested sign."""
    infinite = np.isinf(x)
    negative = infinite & (x < 0)
    return np.asarray((negative & detect_negative) | (infinite & ~negative & detect_positive))


def _mod(x: NDArray, y: NDArray, *, fmod: bool) -> NDArray:
    """Return the remainder of ``x / y``, with the sign of ``y``, or of ``x`` with ``fmod``.

    An integer divided by zero leaves 0, a float NaN.
    """
    remainder = np.fmod if fmod else np.mod
    if not is_integer(x.dtype):
        return np.asarray(remainder(x, y)).astype(x.dtype, copy=False)
    divisor = np.where(y != 0, y, np.ones_like(y))  # int4 warns of zeros despite `errstate`
    return np.where(y != 0, remainder(x, divisor), 0).astype(x.dtype, copy=False)


def _function(name: str, doc: str, kernel: NumpyKernel, ulps: float, onnx: str) -> OpDef:
    return unary_op(name, doc, kernel, rounding=Rounding(Rule.ULP, ulps), onnx=onnx)


_FUNCTIONS = (
    unary_op(
        "floor",
        "Return the largest integer not above ``x``.",
        arithmetic(np.floor),
        rounding=EXACT,
        onnx="Floor",
    ),
    unary_op("ceil", "Return the smallest integer not below ``x``.", arithmetic(np.ceil), rounding=EXACT, onnx="Ceil"),
    unary_op(
        "round",
        "Return the nearest integer, with ties to even.",
        arithmetic(np.rint),
        rounding=EXACT,
        onnx="Round",
    ),
    _function(
        "reciprocal",
        "Return ``1 / x``: infinity for zero.",
        NumpyKernel(_reciprocal, fresh=True),
        2.5,
        "Reciprocal",
    ),
    _function("sin", "Return the sine of ``x``, in radians.", arithmetic(np.sin), 4.0, "Sin"),
    _function("cos", "Return the cosine of ``x``, in radians.", arithmetic(np.cos), 4.0, "Cos"),
    _function("tan", "Return the tangent of ``x``, in radians.", arithmetic(np.tan), 5.0, "Tan"),
    _function("asin", "Return the arc sine of ``x``: NaN outside -1 to 1.", arithmetic(np.arcsin), 4.0, "Asin"),
    _function("acos", "Return the arc cosine of ``x``: NaN outside -1 to 1.", arithmetic(np.arccos), 4.0, "Acos"),
    _function("atan", "Return the arc tangent of ``x``.", arithmetic(np.arctan), 5.0, "Atan"),
    _function("sinh", "Return the hyperbolic sine of ``x``.", arithmetic(np.sinh), 4.0, "Sinh"),
    _function("cosh", "Return the hyperbolic cosine of ``x``.", arithmetic(np.cosh), 4.0, "Cosh"),
    _function("asinh", "Return the inverse hyperbolic sine of ``x``.", arithmetic(np.arcsinh), 4.0, "Asinh"),
    _function(
        "acosh", "Return the inverse hyperbolic cosine of ``x``: NaN below 1.", arithmetic(np.arccosh), 4.0, "Acosh"
    ),
    _function(
        "atanh",
        "Return the inverse hyperbolic tangent of ``x``: NaN outside -1 to 1.",
        arithmetic(np.arctanh),
        5.0,
        "Atanh",
    ),
)

OPS: tuple[OpDef, ...] = (
    *_FUNCTIONS,
    unary_op(
        "sign",
        "Return the sign of ``x`` as -1, 0 or 1; NaN stays NaN.",
        arithmetic(np.sign),
        kinds=NUMBER_KINDS,
        rounding=EXACT,
        onnx="Sign",
    ),
    unary_op(
        "bitwise_not",
        "Return ``x`` with each bit inverted.",
        arithmetic(np.bitwise_not),
        kinds=INTEGER_KINDS,
        onnx="BitwiseNot",
    ),
    binary_op(
        "bitwise_and",
        "Return the bitwise and of ``x`` and ``y``.",
        arithmetic(np.bitwise_and),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseAnd",
    ),
    binary_op(
        "bitwise_or",
        "Return the bitwise or of ``x`` and ``y``.",
        arithmetic(np.bitwise_or),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseOr",
    ),
    binary_op(
        "bitwise_xor",
        "Return the bitwise exclusive or of ``x`` and ``y``.",
        arithmetic(np.bitwise_xor),
        kinds=INTEGER_KINDS,
        traits=_COMMUTATIVE,
        onnx="BitwiseXor",
    ),
    binary_op(
        "left_shift",
        "Return ``x << y``; 0 if ``y`` is the number of bits or more.",
        arithmetic(np.left_shift),
        kinds=INTEGER_KINDS,
        rounding=_SHIFT,
    ),
    binary_op(
        "right_shift",
        "Return ``x >> y``; 0 or -1 if ``y`` is the number of bits or more.",
        arithmetic(np.right_shift),
        kinds=INTEGER_KINDS,
        rounding=_SHIFT,
    ),
    binary_op(
        "not_equal",
        "Return whether ``x != y``.",
        predicate(np.not_equal),
        kinds=(*NUMBER_KINDS, "bool"),
        result="bool",
        traits=_COMMUTATIVE,
    ),
    binary_op(
        "logical_xor",
        "Return whether exactly one operand is true.",
        predicate(np.logical_xor),
        kinds=("bool",),
        traits=_COMMUTATIVE,
        onnx="Xor",
    ),
    binary_op(
        "mod",
        "Return the remainder of ``x / y``; an integer divided by zero leaves 0.",
        NumpyKernel(_mod, fresh=True),
        kinds=NUMBER_KINDS,
        attrs=(
            AttrSpec(
                "fmod",
                AttrKind.BOOL,
                False,
                doc="Whether the remainder has the sign of ``x``, instead of the sign of ``y``.",
            ),
        ),
        rounding=replace(ROUNDED, open_elements=_not_finite),  # `fmod` is exact; the other sign needs an addition
        more_cases=(example((2, 3), (2, 3), fmod=True),),
    ),
    unary_op(
        "isnan", "Return whether ``x`` is NaN.", predicate(np.isnan), kinds=FLOAT_KINDS, result="bool", onnx="IsNaN"
    ),
    unary_op(
        "isinf",
        "Return whether ``x`` is infinite.",
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
