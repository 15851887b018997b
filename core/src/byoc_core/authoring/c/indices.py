"""The smaller and the larger of two indices."""

from __future__ import annotations

from byoc_core.authoring.c.expressions import Call, Callee, Expression, Size
from byoc_core.authoring.c.types import INDEX
from byoc_core.dims import Dim, dim_max, dim_min

__all__ = ["index_max", "index_min"]

_MIN, _MAX = Callee("byoc_min", min), Callee("byoc_max", max)


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
