"""Elementwise ops: arithmetic, comparison, logic, transcendental functions, and the choice between values."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, Trait, TypeContext, no_flops
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    NUMBER_KINDS,
    broadcast_shapes,
    flops_per_element,
    require_kind,
    require_same_dtype,
    same_type,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "unary_op"]

_ALL_KINDS = (*NUMBER_KINDS, "bool")
_SIGNED_KINDS = ("float", "int")
_TRAITS = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_COMMUTATIVE = _TRAITS | {Trait.COMMUTATIVE}
_BROADCAST_DOC = "Shapes: any two that broadcast by numpy's rule."


def _binary_rule(kinds: tuple[str, ...], dtype: str | None = None) -> Callable[[TypeContext], tuple[Type, ...]]:
    """Gives the rule of ops on two operands of one dtype; the result has it too, or ``dtype``."""

    def infer(context: TypeContext) -> tuple[Type, ...]:
        require_kind(context, 0, kinds)
        shared = require_same_dtype(context, 0, 1)
        return (TensorType(broadcast_shapes(context, (0, 1)), dtype or shared),)

    return infer


def _binary_op(
    name: str, doc: str, *, kinds: tuple[str, ...] = NUMBER_KINDS, dtype: str | None = None, commutative: bool = False
) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"), OperandSpec("y")),
        _binary_rule(kinds, dtype),
        traits=_COMMUTATIVE if commutative else _TRAITS,
        flops=flops_per_element(1),
        kernel=KERNELS[name],
        doc=f"{doc}\n\n{_BROADCAST_DOC}",
    )


def unary_op(
    name: str,
    doc: str,
    *,
    kinds: tuple[str, ...] = FLOAT_KINDS,
    attrs: tuple[AttrSpec, ...] = (),
    flops: Callable[[CostContext], Dim] | None = None,
) -> OpDef:
    """Gives an elementwise op of one operand whose result has the operand's type."""
    return OpDef(
        name,
        (OperandSpec("x"),),
        same_type(kinds),
        attrs=attrs,
        traits=_TRAITS,
        flops=flops or flops_per_element(1),
        kernel=KERNELS[name],
        doc=f"{doc}\n\nShapes: any; the result has the shape and dtype of ``x``.",
    )


def _infer_where(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, ("bool",))
    dtype = require_same_dtype(context, 1, 2)
    return (TensorType(broadcast_shapes(context, (0, 1, 2)), dtype),)


def _infer_cast(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType(context.tensor(0).shape, context.attrs["dtype"]),)


def _clip_flops(context: CostContext) -> Dim:
    ends = sum(context.attrs[end] is not None for end in ("min", "max"))
    return context.elements() * ends


_ARITHMETIC = (
    _binary_op("add", "Gives ``x + y``; for bool the logical or.", kinds=_ALL_KINDS, commutative=True),
    _binary_op("subtract", "Gives ``x - y``."),
    _binary_op("multiply", "Gives ``x * y``; for bool the logical and.", kinds=_ALL_KINDS, commutative=True),
    _binary_op(
        "divide",
        "Gives ``x / y``. Integers truncate towards zero; an integer divided by zero is 0.",
    ),
    _binary_op(
        "maximum",
        "Gives the larger of ``x`` and ``y``; NaN wins; of two zeros either.",
        kinds=_ALL_KINDS,
        commutative=True,
    ),
    _binary_op(
        "minimum",
        "Gives the smaller of ``x`` and ``y``; NaN wins; of two zeros either.",
        kinds=_ALL_KINDS,
        commutative=True,
    ),
    _binary_op("power", "Gives ``x ** y``. Integers wrap around; a negative integer exponent truncates ``1 / x**-y``."),
)

_COMPARISON = (
    _binary_op("equal", "Tells where ``x == y``.", kinds=_ALL_KINDS, dtype="bool", commutative=True),
    _binary_op("less", "Tells where ``x < y``.", kinds=_ALL_KINDS, dtype="bool"),
    _binary_op("less_equal", "Tells where ``x <= y``.", kinds=_ALL_KINDS, dtype="bool"),
    _binary_op("greater", "Tells where ``x > y``.", kinds=_ALL_KINDS, dtype="bool"),
    _binary_op("greater_equal", "Tells where ``x >= y``.", kinds=_ALL_KINDS, dtype="bool"),
    _binary_op("logical_and", "Tells where both hold.", kinds=("bool",), commutative=True),
    _binary_op("logical_or", "Tells where at least one holds.", kinds=("bool",), commutative=True),
    unary_op("logical_not", "Tells where ``x`` does not hold.", kinds=("bool",)),
)

_FUNCTIONS = (
    unary_op("negative", "Gives ``-x``; the smallest integer stays itself.", kinds=_SIGNED_KINDS),
    unary_op("abs", "Gives the magnitude of ``x``; the smallest integer stays itself.", kinds=NUMBER_KINDS),
    unary_op("exp", "Gives the exponential of ``x``."),
    unary_op("log", "Gives the natural logarithm of ``x``: minus infinity for 0, NaN below."),
    unary_op("sqrt", "Gives the square root of ``x``: NaN below 0."),
    unary_op("tanh", "Gives the hyperbolic tangent of ``x``."),
    unary_op("sigmoid", "Gives ``1 / (1 + exp(-x))``.", flops=flops_per_element(4)),
    unary_op("erf", "Gives the error function of ``x``."),
    unary_op(
        "clip",
        "Gives ``x`` limited to ``min`` from below, then to ``max`` from above; NaN stays NaN; of two zeros either.",
        attrs=(
            AttrSpec("min", AttrKind.FLOAT, None, doc="The lower end, or ``None``."),
            AttrSpec("max", AttrKind.FLOAT, None, doc="The upper end, or ``None``."),
        ),
        flops=_clip_flops,
    ),
)

_SELECTION = (
    OpDef(
        "cast",
        (OperandSpec("x"),),
        _infer_cast,
        attrs=(AttrSpec("dtype", AttrKind.DTYPE, doc="The dtype of the result."),),
        traits=_TRAITS,
        flops=no_flops,
        kernel=KERNELS["cast"],
        doc="Gives ``x`` in another dtype: floats truncate towards zero to integers, all but zero is true.\n\n"
        "Shapes: any; the result has the shape of ``x``.",
    ),
    OpDef(
        "where",
        (OperandSpec("condition"), OperandSpec("x"), OperandSpec("y")),
        _infer_where,
        traits=_TRAITS,
        flops=no_flops,
        kernel=KERNELS["where"],
        doc="Gives ``x`` where the condition (bool) holds, else ``y``.\n\n"
        "Shapes: any three that broadcast by numpy's rule.",
    ),
)

OPS: tuple[OpDef, ...] = (*_ARITHMETIC, *_COMPARISON, *_FUNCTIONS, *_SELECTION)
"""The family's ops."""
