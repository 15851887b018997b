"""Elementwise ops: arithmetic, comparison, logic, transcendental functions, and the choice between values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import complex_dtypes, dtype_info
from byoc_core.kernels.numpy_kernel import NumpyKernel, arithmetic, predicate
from byoc_core.opset import value_bounds as bounds
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, OperandCase, Shape, example
from byoc_core.opset.contexts import OpContext, TypeContext, no_flops
from byoc_core.opset.families import elementwise_kernels as kernels
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.pointwise import POINTWISE, binary_op, unary_cases, unary_op
from byoc_core.opset.rounding import EXACT, ROUNDED, Rounding, Rule, result_or_one
from byoc_core.opset.type_rules import (
    NUMBER_KINDS,
    broadcast_shapes,
    flops_per_element,
    require_kind,
    require_same_dtype,
)
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import UNIT, ValueFacts

__all__ = ["OPS"]

_ALL_KINDS = (*NUMBER_KINDS, "bool")
_BOOL_KINDS = ("bool",)
_SIGNED_KINDS = ("float", "int")
_COMMUTATIVE = frozenset({Trait.COMMUTATIVE})
_EITHER_ZERO = frozenset({Trait.EITHER_ZERO})
_MOST_EXPONENT = 300.0  # exp is above every float32, but a finite float64
_SMALLEST_NORMAL = 2.0**-126


def _infer_where(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, _BOOL_KINDS)
    dtype = require_same_dtype(context, 1, 2)
    return (TensorType(broadcast_shapes(context, (0, 1, 2)), dtype),)


def _infer_bitcast(context: TypeContext) -> tuple[Type, ...]:
    type_, dtype = context.tensor(0), str(context.attrs["dtype"])
    if dtype_info(type_.dtype).bits != dtype_info(dtype).bits or dtype_info(dtype).bits < 8:
        raise context.error(
            "has elements of another number of bits", operand=0, got=type_.dtype, expected=f"as {dtype}"
        )
    if dtype == "bool" and type_.dtype != "bool":
        raise context.error("attribute `dtype` is bool: not all bits are truth values", got=dtype)
    return (TensorType(type_.shape, dtype),)


def _infer_cast(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, (*NUMBER_KINDS, "bool"))
    if context.attrs["dtype"] in complex_dtypes():
        raise context.error("attribute `dtype` is complex", got=context.attrs["dtype"])
    return (TensorType(context.tensor(0).shape, context.attrs["dtype"]),)


def _keeps_dtype(_: OpContext) -> bool:
    return True


def _clip_flops(context: OpContext) -> Dim:
    ends = sum(context.attrs[end] is not None for end in ("min", "max"))
    return context.elements() * ends


def _product_bound(facts: ValueFacts) -> float:
    return math.prod(facts.bounds) * (1 + UNIT)


def _quotient_bound(facts: ValueFacts) -> float:
    smallest = facts.smallest(1)
    return facts.bound(0) / smallest * (1 + 4 * UNIT) if smallest >= _SMALLEST_NORMAL else math.inf


def _exp_bound(facts: ValueFacts) -> float:
    return math.exp(min(facts.bound(0), _MOST_EXPONENT)) * (1 + 4 * UNIT)


def _clip_bound(facts: ValueFacts) -> float:
    ends = [facts.bound(0), -facts.bound(0)]
    for name, choose in (("min", max), ("max", min)):
        limit = facts.context.attrs[name]
        if limit is not None:
            ends = [choose(end, float(limit)) for end in ends]
    return max(map(abs, ends)) * (1 + UNIT)


def _condition(shape: Shape) -> OperandCase:
    return OperandCase(shape, "bool")


_ARITHMETIC = (
    binary_op(
        "add",
        "Return ``x + y``; for bool, the logical or.",
        arithmetic(np.add),
        kinds=_ALL_KINDS,
        traits=_COMMUTATIVE,
        rounding=ROUNDED,
        bound=bounds.bound_of_total,
        onnx="Add",
    ),
    binary_op(
        "subtract",
        "Return ``x - y``.",
        arithmetic(np.subtract),
        kinds=NUMBER_KINDS,
        rounding=ROUNDED,
        bound=bounds.bound_of_total,
        onnx="Sub",
    ),
    binary_op(
        "multiply",
        "Return ``x * y``; for bool, the logical and.",
        arithmetic(np.multiply),
        kinds=_ALL_KINDS,
        traits=_COMMUTATIVE,
        rounding=ROUNDED,
        bound=_product_bound,
        onnx="Mul",
    ),
    binary_op(
        "divide",
        "Return ``x / y``. Integers truncate towards zero; an integer divided by zero is 0.",
        NumpyKernel(kernels.divide, ufunc=np.divide, only_floats=True, fresh=True),
        kinds=NUMBER_KINDS,
        rounding=Rounding(Rule.ULP, 2.5),
        bound=_quotient_bound,
        onnx="Div",
    ),
    binary_op(
        "maximum",
        "Return the larger of ``x`` and ``y``; NaN if either is NaN; of two zeros, either.",
        arithmetic(np.maximum),
        kinds=_ALL_KINDS,
        traits=_COMMUTATIVE | _EITHER_ZERO,
        rounding=EXACT,
        bound=bounds.bound_of_any,
    ),
    binary_op(
        "minimum",
        "Return the smaller of ``x`` and ``y``; NaN if either is NaN; of two zeros, either.",
        arithmetic(np.minimum),
        kinds=_ALL_KINDS,
        traits=_COMMUTATIVE | _EITHER_ZERO,
        rounding=EXACT,
        bound=bounds.bound_of_any,
    ),
    binary_op(
        "power",
        "Return ``x ** y``. Integers wrap around; a negative integer exponent truncates ``1 / x**-y``.",
        NumpyKernel(kernels.power, fresh=True),
        kinds=NUMBER_KINDS,
        rounding=Rounding(Rule.ULP, 16.0, is_chain=True, open_elements=kernels.open_powers),
    ),
)

_COMPARISON = (
    binary_op(
        "equal",
        "Return whether ``x == y``.",
        predicate(np.equal),
        kinds=_ALL_KINDS,
        result="bool",
        traits=_COMMUTATIVE,
        onnx="Equal",
    ),
    binary_op("less", "Return whether ``x < y``.", predicate(np.less), kinds=_ALL_KINDS, result="bool", onnx="Less"),
    binary_op(
        "less_equal",
        "Return whether ``x <= y``.",
        predicate(np.less_equal),
        kinds=_ALL_KINDS,
        result="bool",
        onnx="LessOrEqual",
    ),
    binary_op(
        "greater", "Return whether ``x > y``.", predicate(np.greater), kinds=_ALL_KINDS, result="bool", onnx="Greater"
    ),
    binary_op(
        "greater_equal",
        "Return whether ``x >= y``.",
        predicate(np.greater_equal),
        kinds=_ALL_KINDS,
        result="bool",
        onnx="GreaterOrEqual",
    ),
    binary_op(
        "logical_and",
        "Return whether both operands are true.",
        predicate(np.logical_and),
        kinds=_BOOL_KINDS,
        traits=_COMMUTATIVE,
        onnx="And",
    ),
    binary_op(
        "logical_or",
        "Return whether at least one operand is true.",
        predicate(np.logical_or),
        kinds=_BOOL_KINDS,
        traits=_COMMUTATIVE,
        onnx="Or",
    ),
    unary_op("logical_not", "Return whether ``x`` is false.", predicate(np.logical_not), kinds=_BOOL_KINDS, onnx="Not"),
)

_FUNCTIONS = (
    unary_op(
        "negative",
        "Return ``-x``; the smallest integer is unchanged.",
        arithmetic(np.negative),
        kinds=_SIGNED_KINDS,
        rounding=EXACT,
        bound=bounds.bound_of_first,
        onnx="Neg",
    ),
    unary_op(
        "abs",
        "Return the magnitude of ``x``; the smallest integer is unchanged.",
        arithmetic(np.abs),
        kinds=NUMBER_KINDS,
        rounding=EXACT,
        bound=bounds.bound_of_first,
        onnx="Abs",
    ),
    unary_op(
        "exp",
        "Return the exponential of ``x``.",
        arithmetic(np.exp),
        rounding=Rounding(Rule.ULP, 3.0),
        bound=_exp_bound,
        onnx="Exp",
    ),
    unary_op(
        "log",
        "Return the natural logarithm of ``x``: minus infinity for 0, NaN below.",
        arithmetic(np.log),
        rounding=Rounding(Rule.ULP, 3.0),
        onnx="Log",
    ),
    unary_op(
        "sqrt",
        "Return the square root of ``x``: NaN below 0.",
        arithmetic(np.sqrt),
        rounding=Rounding(Rule.ULP, 3.0),
        onnx="Sqrt",
    ),
    unary_op(
        "tanh",
        "Return the hyperbolic tangent of ``x``.",
        arithmetic(np.tanh),
        rounding=Rounding(Rule.ULP, 5.0),
        bound=bounds.bound_of_one,
        onnx="Tanh",
    ),
    unary_op(
        "sigmoid",
        "Return ``1 / (1 + exp(-x))``.",
        NumpyKernel(kernels.sigmoid, widens=True, fresh=True, elementwise=True),
        flops=flops_per_element(4),
        rounding=Rounding(Rule.ULP, 8.0, is_chain=True, magnitude=result_or_one),
        bound=bounds.bound_of_one,
        onnx="Sigmoid",
    ),
    unary_op(
        "erf",
        "Return the error function of ``x``.",
        NumpyKernel(kernels.erf, fresh=True, elementwise=True),
        rounding=Rounding(Rule.ULP, 16.0, is_chain=True),
        onnx="Erf",
    ),
    unary_op(
        "clip",
        "Return ``x`` limited to ``min`` from below, then to ``max`` from above; NaN stays NaN; of two zeros, either.",
        NumpyKernel(kernels.clip, fresh=True, elementwise=True),
        attrs=(
            AttrSpec("min", AttrKind.FLOAT, None, doc="The lower limit, or ``None``."),
            AttrSpec("max", AttrKind.FLOAT, None, doc="The upper limit, or ``None``."),
        ),
        traits=_EITHER_ZERO,
        flops=_clip_flops,
        rounding=ROUNDED,  # the ends are rounded to the dtype
        bound=_clip_bound,
        more_cases=(example((2, 3), min=0.0, max=6.0), example((2, 3, 4, 5), min=0.0, max=6.0)),
    ),
)

_SELECTION = (
    OpDef(
        "cast",
        (OperandSpec("x"),),
        _infer_cast,
        attrs=(AttrSpec("dtype", AttrKind.DTYPE, doc="The dtype of the result."),),
        traits=POINTWISE,
        flops=no_flops,
        kernel=NumpyKernel(kernels.cast, fresh=True, elementwise=True, gives=kernels.cast_dtype),
        identity=_keeps_dtype,
        rounding=replace(ROUNDED, open_elements=kernels.open_casts),
        cases=lambda: (
            *(OpCase("", item.operands, {"dtype": "float16"}) for item in unary_cases()),
            OpCase("", (OperandCase((2, 3)),), {"dtype": "int32"}),
        ),
        doc="Convert ``x`` to another dtype: floats truncate towards zero to integers; all values except zero are "
        "true.\n\n"
        "Shapes: any; the result has the shape of ``x``.",
    ),
    OpDef(
        "bitcast",
        (OperandSpec("x"),),
        _infer_bitcast,
        attrs=(AttrSpec("dtype", AttrKind.DTYPE, doc="The dtype of the result, of as many bits."),),
        traits=POINTWISE | {Trait.READS_BITS},
        flops=no_flops,
        kernel=NumpyKernel(kernels.bitcast, fresh=True, gives=kernels.cast_dtype),
        identity=_keeps_dtype,
        cases=lambda: (
            OpCase("", (OperandCase((2, 3), "float32"),), {"dtype": "int32"}),
            OpCase("", (OperandCase((4,), "int8"),), {"dtype": "uint8"}),
        ),
        doc="Return the bits of each element of ``x`` as an element of another dtype.\n\n"
        "Shapes: any; the result has the shape of ``x``.",
    ),
    OpDef(
        "where",
        (OperandSpec("condition"), OperandSpec("x"), OperandSpec("y")),
        _infer_where,
        traits=POINTWISE,
        flops=no_flops,
        kernel=NumpyKernel(kernels.where, fresh=True, gives=kernels.dtype_of_choice),
        cases=lambda: (
            example(_condition((2, 3)), (2, 3), (2, 3)),
            example(_condition((2, 3, 4, 5)), (2, 3, 4, 5), (2, 3, 4, 5)),
            example(_condition((3,)), (2, 3), ()),
            example(_condition((2, 1)), (3,), (2, 3)),
            example(_condition(()), (), ()),
        ),
        onnx=OnnxSpelling("Where"),
        doc="Return ``x`` where the condition (bool) is true, else ``y``.\n\n"
        "Shapes: any three, broadcastable by numpy's rule.",
    ),
)

OPS: tuple[OpDef, ...] = (*_ARITHMETIC, *_COMPARISON, *_FUNCTIONS, *_SELECTION)
"""The family's ops."""
