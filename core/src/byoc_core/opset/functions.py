"""Mathematical functions, remainders, bitwise logic, and the tests for NaN and infinity."""

from __future__ import annotations

from byoc_core.kernels import KERNELS
from byoc_core.opset.elementwise import unary_op
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, Trait, TypeContext
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    INTEGER_KINDS,
    NUMBER_KINDS,
    broadcast_shapes,
    flops_per_element,
    require_kind,
    require_same_dtype,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "binary_op"]

_TRAITS = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_BROADCAST_DOC = "Shapes: any two that broadcast by numpy's rule."


def binary_op(
    name: str,
    doc: str,
    *,
    kinds: tuple[str, ...],
    dtype: str | None = None,
    commutative: bool = False,
    attrs: tuple[AttrSpec, ...] = (),
    operands: tuple[str, str] = ("x", "y"),
) -> OpDef:
    """Gives an elementwise op of two operands of one dtype, whose result has it too, or ``dtype``."""

    def infer(context: TypeContext) -> tuple[Type, ...]:
        require_kind(context, 0, kinds)
        shared = require_same_dtype(context, 0, 1)
        return (TensorType(broadcast_shapes(context, (0, 1)), dtype or shared),)

    return OpDef(
        name,
        (OperandSpec(operands[0]), OperandSpec(operands[1])),
        infer,
        attrs=attrs,
        traits=_TRAITS | {Trait.COMMUTATIVE} if commutative else _TRAITS,
        flops=flops_per_element(1),
        kernel=KERNELS[name],
        doc=f"{doc}\n\n{_BROADCAST_DOC}",
    )


def _infer_test(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType(require_kind(context, 0, FLOAT_KINDS).shape, "bool"),)


def _test_op(name: str, doc: str, attrs: tuple[AttrSpec, ...] = ()) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_test,
        attrs=attrs,
        traits=_TRAITS,
        flops=flops_per_element(1),
        kernel=KERNELS[name],
        doc=f"{doc}\n\nShapes: any; the result has the shape of ``x``, and is bool.",
    )


_FUNCTIONS = {
    "floor": "Gives the largest integer that is not above ``x``.",
    "ceil": "Gives the smallest integer that is not below ``x``.",
    "round": "Gives the nearest integer, the even one where two are as near.",
    "reciprocal": "Gives ``1 / x``: an infinity for zero.",
    "sin": "Gives the sine of ``x``, in radians.",
    "cos": "Gives the cosine of ``x``, in radians.",
    "tan": "Gives the tangent of ``x``, in radians.",
    "asin": "Gives the arc sine of ``x``: NaN outside -1 to 1.",
    "acos": "Gives the arc cosine of ``x``: NaN outside -1 to 1.",
    "atan": "Gives the arc tangent of ``x``.",
    "sinh": "Gives the hyperbolic sine of ``x``.",
    "cosh": "Gives the hyperbolic cosine of ``x``.",
    "asinh": "Gives the inverse hyperbolic sine of ``x``.",
    "acosh": "Gives the inverse hyperbolic cosine of ``x``: NaN below 1.",
    "atanh": "Gives the inverse hyperbolic tangent of ``x``: NaN outside -1 to 1.",
}

OPS: tuple[OpDef, ...] = (
    *(unary_op(name, doc) for name, doc in _FUNCTIONS.items()),
    unary_op("sign", "Gives -1, 0 or 1: the sign of ``x``; NaN stays NaN.", kinds=NUMBER_KINDS),
    unary_op("bitwise_not", "Gives ``x`` with each bit inverted.", kinds=INTEGER_KINDS),
    binary_op("bitwise_and", "Gives the bits that both have.", kinds=INTEGER_KINDS, commutative=True),
    binary_op("bitwise_or", "Gives the bits that at least one has.", kinds=INTEGER_KINDS, commutative=True),
    binary_op("bitwise_xor", "Gives the bits that exactly one has.", kinds=INTEGER_KINDS, commutative=True),
    binary_op("left_shift", "Gives ``x << y``; 0 where ``y`` is the number of bits or more.", kinds=INTEGER_KINDS),
    binary_op(
        "right_shift", "Gives ``x >> y``; 0 or -1 where ``y`` is the number of bits or more.", kinds=INTEGER_KINDS
    ),
    binary_op("not_equal", "Tells where ``x != y``.", kinds=(*NUMBER_KINDS, "bool"), dtype="bool", commutative=True),
    binary_op("logical_xor", "Tells where exactly one holds.", kinds=("bool",), commutative=True),
    binary_op(
        "mod",
        "Gives the remainder of ``x / y``; an integer divided by zero leaves 0.",
        kinds=NUMBER_KINDS,
        attrs=(AttrSpec("fmod", AttrKind.BOOL, False, doc="Whether it has the sign of ``x``, not that of ``y``."),),
    ),
    _test_op("isnan", "Tells where ``x`` is NaN."),
    _test_op(
        "isinf",
        "Tells where ``x`` is infinite.",
        (
            AttrSpec("detect_negative", AttrKind.BOOL, True, doc="Whether minus infinity counts."),
            AttrSpec("detect_positive", AttrKind.BOOL, True, doc="Whether plus infinity counts."),
        ),
    ),
)
"""The family's ops."""
