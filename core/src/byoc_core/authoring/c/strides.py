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
            left_stride, right_stride = stride_of(left, index), stride_of(right, index)
            if left_stride is None or right_stride is None:
                return None
            return left_stride + right_stride if operator == "+" else left_stride - right_stride
        case Binary("*", left, right):
            left_stride, right_stride = stride_of(left, index), stride_of(right, index)
            if left_stride == 0 and right_stride == 0:
                return 0
            for stride, factor in ((left_stride, right), (right_stride, left)):
                if stride is not None and isinstance(factor, Size):
                    return stride * factor.dim
            return None
    return 0 if all(stride_of(item, index) == 0 for item in operands_of(expression)) else None
