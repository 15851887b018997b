"""Builders of elementwise ops on one or two operands, with shared canonical cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim
from byoc_core.dtypes import is_float
from byoc_core.opset.attributes import AttrSpec
from byoc_core.opset.cases import OpCase, Shape, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.rounding import EXACT, Rounding
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    broadcast_shapes,
    flops_per_element,
    require_kind,
    require_same_dtype,
)
from byoc_core.opset.types import TensorType, Type

if TYPE_CHECKING:
    from byoc_core.opset.value_bounds import BoundRule

__all__ = ["BROADCAST_DOC", "POINTWISE", "binary_op", "pair_cases", "unary_cases", "unary_op"]

POINTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})
BROADCAST_DOC = "Shapes: any two, broadcastable by numpy's rule."

_SHAPES: tuple[Shape, ...] = ((2, 3), (2, 3, 4, 5), (3,), (), (2, 3, 4), (0, 3))
_PAIRS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3), (2, 3)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3), (3,)),
    ((2, 3), ()),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 1), (3,)),
    ((3,), (2, 3)),
    ((), ()),
    ((0, 3), (0, 3)),
)
_CASE_DTYPES = {"float": "float32", "int": "int32", "bool": "bool"}


def unary_cases(dtype: str = "float32", **attrs: object) -> Iterable[OpCase]:
    """Return the cases of unary elementwise ops: the common ranks of networks, a scalar, no elements."""
    return (example(shape, dtype=dtype, **attrs) for shape in _SHAPES)


def pair_cases(dtype: str = "float32") -> Iterable[OpCase]:
    """Return the cases of binary elementwise ops: equal shapes, and the ways to broadcast."""
    return (example(*pair, dtype=dtype) for pair in _PAIRS)


def _rounding_of(kinds: tuple[str, ...], result: str | None) -> Rounding | None:
    has_floats = "float" in kinds if result is None else is_float(result)
    return None if has_floats else EXACT


def unary_op(
    name: str,
    doc: str,
    kernel: Callable[..., Any],
    *,
    kinds: tuple[str, ...] = FLOAT_KINDS,
    result: str | None = None,
    attrs: tuple[AttrSpec, ...] = (),
    traits: frozenset[Trait] = frozenset(),
    flops: Callable[[OpContext], Dim] | None = None,
    rounding: Rounding | None = None,
    bound: BoundRule | None = None,
    more_cases: tuple[OpCase, ...] = (),
    onnx: str | OnnxSpelling | None = None,
) -> OpDef:
    """Return an elementwise op of an operand ``x``.

    Args:
        name: the op's name.
        doc: the meaning of the op.
        kernel: the reference kernel.
        kinds: the kinds of dtypes accepted by the op; the first is the kind of the cases.
        result: the result's dtype; by default the operand's.
        attrs: attributes.
        traits: traits beside ``PURE`` and ``ELEMENTWISE``.
        flops: the FLOP formula; by default an operation for each element.
        rounding: the permitted error; exact if no result is a float.
        bound: the bound of results.
        more_cases: cases beside :func:`unary_cases`.
        onnx: the ONNX operator with the same operand, if any.
    """

    def infer(context: TypeContext) -> tuple[Type, ...]:
        type_ = require_kind(context, 0, kinds)
        return (type_ if result is None else TensorType(type_.shape, result),)

    dtype_doc = "and dtype of ``x``" if result is None else f"of ``x``, and is {result}"
    return OpDef(
        name,
        (OperandSpec("x"),),
        infer,
        attrs=attrs,
        traits=POINTWISE | traits,
        flops=flops or flops_per_element(1),
        kernel=kernel,
        rounding=rounding or _rounding_of(kinds, result),
        bound=bound,
        cases=lambda: (*unary_cases(_CASE_DTYPES[kinds[0]]), *more_cases),
        onnx=OnnxSpelling(onnx) if isinstance(onnx, str) else onnx,
        doc=f"{doc}\n\nShapes: any; the result has the shape {dtype_doc}.",
    )


def binary_op(
    name: str,
    doc: str,
    kernel: Callable[..., Any],
    *,
    kinds: tuple[str, ...],
    result: str | None = None,
    attrs: tuple[AttrSpec, ...] = (),
    traits: frozenset[Trait] = frozenset(),
    operands: tuple[str, str] = ("x", "y"),
    rounding: Rounding | None = None,
    bound: BoundRule | None = None,
    cases: Callable[[], Iterable[OpCase]] | None = None,
    more_cases: tuple[OpCase, ...] = (),
    onnx: str | OnnxSpelling | None = None,
) -> OpDef:
    """Return an elementwise op of two operands of the same dtype, broadcast together.

    Args:
        name: the op's name.
        doc: the meaning of the op.
        kernel: the reference kernel.
        kinds: the kinds of dtypes accepted by the op; the first is the kind of the cases.
        result: the result's dtype; by default the operands'.
        attrs: attributes.
        traits: traits beside ``PURE`` and ``ELEMENTWISE``.
        operands: the operands' names.
        rounding: the permitted error; exact if no result is a float.
        bound: the bound of results.
        cases: the cases; by default :func:`pair_cases`.
        more_cases: further cases.
        onnx: the ONNX operator with the same operands, if any.
    """

    def infer(context: TypeContext) -> tuple[Type, ...]:
        require_kind(context, 0, kinds)
        shared = require_same_dtype(context, 0, 1)
        return (TensorType(broadcast_shapes(context, (0, 1)), result or shared),)

    return OpDef(
        name,
        (OperandSpec(operands[0]), OperandSpec(operands[1])),
        infer,
        attrs=attrs,
        traits=POINTWISE | traits,
        flops=flops_per_element(1),
        kernel=kernel,
        rounding=rounding or _rounding_of(kinds, result),
        bound=bound,
        cases=cases or (lambda: (*pair_cases(_CASE_DTYPES[kinds[0]]), *more_cases)),
        onnx=OnnxSpelling(onnx) if isinstance(onnx, str) else onnx,
        doc=f"{doc}\n\n{BROADCAST_DOC}",
    )
