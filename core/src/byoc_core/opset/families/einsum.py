"""Einstein sums."""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, native_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.equation import parse_equation
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import SUM
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, require_same_dtype
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _einsum(*operands: NDArray, equation: str) -> NDArray:
    """Return the sum of products given by an equation, by matrix products if possible.

    Cost: the cost of the cheapest order of pairs found greedily.
    """
    dtype = operands[0].dtype
    wide = native_dtype(dtype)  # older numpy sums no products of other types
    result = np.einsum(equation, *(operand.astype(wide, copy=False) for operand in operands), optimize="greedy")
    return np.array(result).astype(dtype, copy=False)


def _infer_einsum(context: TypeContext) -> tuple[Type, ...]:
    if not context.operands:
        raise context.error("multiplies no operands", expected="one operand or more")
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, *range(1, len(context.operands)))
    shapes = [context.shape(index) for index in range(len(context.operands))]
    equation = parse_equation(context.attrs["equation"], shapes, error=context.error)
    return (TensorType(tuple(equation.sizes[label] for label in equation.result), dtype),)


def _einsum_flops(context: OpContext) -> Dim:
    """Return one operation for each operand and each combination of indices, like a single loop nest."""
    shapes = [type_.shape for type_ in context.operands if isinstance(type_, TensorType) and type_.shape is not None]
    if len(shapes) < len(context.operands):
        return 0
    return product(parse_equation(context.attrs["equation"], shapes).sizes.values()) * len(shapes)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "einsum",
        (OperandSpec("operands", variadic=True),),
        _infer_einsum,
        attrs=(
            AttrSpec(
                "equation",
                AttrKind.STR,
                doc="A letter for each axis of each operand, and after ``->`` the letters of the result; ``...`` "
                "stands for any number of broadcast axes.",
            ),
        ),
        flops=_einsum_flops,
        kernel=NumpyKernel(_einsum),
        rounding=SUM,
        cases=lambda: (
            example((2, 3), (3, 4), equation="ij,jk->ik"),
            example((6, 2, 3), (6, 3, 4), equation="bij,bjk->bik"),
            example((2, 3), equation="ij->ji"),
        ),
        doc="Return the products of elements with equal indices for equal letters, summed over the letters absent from "
        "the result.\n\n"
        "Shapes: the axes of a letter have equal sizes, or size 1; the result has the sizes of the letters after "
        "``->``.",
    ),
)
"""The family's ops."""
