"""Sums and products of elements as the reference kernels make them: floats are rounded, integers wrap around."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

__all__ = ["element_product", "element_sum"]


def element_sum(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the sum of two numbers of one dtype."""
    return _element("+", c.Callee(f"byoc_add_{c_suffix(left.type.dtype)}", np.add), left, right)


def element_product(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the product of two numbers of one dtype."""
    return _element("*", c.Callee(f"byoc_multiply_{c_suffix(left.type.dtype)}", np.multiply), left, right)


def _element(sign: str, function: c.Callee, left: c.Expression, right: c.Expression) -> c.Expression:
    return c.Binary(sign, left, right) if left.type.is_float else c.Call(function, (left, right), left.type)
