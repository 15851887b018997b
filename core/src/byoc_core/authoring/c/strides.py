"""Strides of index expressions: the increment of an offset from round to round of a loop."""

from __future__ import annotations

from byoc_core.authoring.c.expressions import Binary, Expression, Size, Variable
from byoc_core.authoring.c.operands import operands_of
from byoc_core.dims import Dim

__all__ = ["stride_of"]


def stride_of(expression: Expression, index: Variable) -> Dim | None:
    """Return the increment of an index expression from round to round of a loop; ``None`` if the increment varies."""
    match expression:
        case Variable():
            return 1 if expression is index else 0
        case Size():
            return 0
        case Binary(("+" | "-") as operator, left, right):
            one, other = stride_of(left, index), stride_of(right, index)
            if one is None or other is None:
                return None
            return one + other if operator == "+" else one - other
        case Binary("*", left, right):
            one, other = stride_of(left, index), stride_of(right, index)
            if one == 0 and other == 0:
                return 0
            for stride, factor in ((one, right), (other, left)):
                if stride is not None and isinstance(factor, Size):
                    return stride * factor.dim
            return None
    return 0 if all(stride_of(item, index) == 0 for item in operands_of(expression)) else None
