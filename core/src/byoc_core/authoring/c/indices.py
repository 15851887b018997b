"""The smaller and the larger of two indices, and the remainder that is never negative."""

from __future__ import annotations

import operator

from byoc_core.authoring.c.expressions import Call, Callee, Expression, Size
from byoc_core.authoring.c.types import INDEX
from byoc_core.dims import Dim, dim_max, dim_min

__all__ = ["index_max", "index_min", "index_mod"]

_MIN, _MAX, _MOD = Callee("byoc_min", min), Callee("byoc_max", max), Callee("byoc_mod", operator.mod)


def index_min(one: Expression, other: Expression | Dim) -> Expression:
    """Return the smaller of two indices."""
    other = other if isinstance(other, Expression) else Size(other)
    if isinstance(one, Size) and isinstance(other, Size):
        return Size(dim_min(one.dim, other.dim))
    return Call(_MIN, (one, other), INDEX)


def index_max(one: Expression, other: Expression | Dim) -> Expression:
    """Return the larger of two indices."""
    other = other if isinstance(other, Expression) else Size(other)
    if isinstance(one, Size) and isinstance(other, Size):
        return Size(dim_max(one.dim, other.dim))
    return Call(_MAX, (one, other), INDEX)


def index_mod(index: Expression, size: Expression | Dim) -> Expression:
    """Return the remainder of an index by a size above 0, which is at least 0 for a negative index too."""
    return Call(_MOD, (index, size if isinstance(size, Expression) else Size(size)), INDEX)
