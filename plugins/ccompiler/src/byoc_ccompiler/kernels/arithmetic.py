"""Sums and products of elements as the reference kernels make them: floats are rounded, integers wrap around."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

__all__ = ["element_product", "element_sum"]

_FUNCTIONS = {"add": np.add, "multiply": np.multiply}


def element_sum(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the sum of two numbers of one dtype."""
    return _operation("+", "add", left, right)


def element_product(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the product of two numbers of one dtype."""
    return _operation("*", "multiply", left, right)


def _operation(sign: str, name: str, left: c.Expression, right: c.Expression) -> c.Expression:
    type_ = left.type
    if type_.is_float:
        return c.Binary(sign, left, right)
    return c.Call(c.Callee(f"byoc_{name}_{c_suffix(type_.dtype)}", _FUNCTIONS[name]), (left, right), type_)
