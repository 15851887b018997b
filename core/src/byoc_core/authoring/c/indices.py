"""The smaller and the larger of two indices, non-negative remainders, and positions along axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.expressions import Call, Expression, Size
from byoc_core.authoring.c.types import INDEX
from byoc_core.dims import Dim, dim_max, dim_min, product

__all__ = ["MAX", "MIN", "index_max", "index_min", "index_mod", "unravelled"]

MIN, MAX = Callee("byoc_min", min), Callee("byoc_max", max)
"""Functions of ``byoc_sizes.h``: the smaller and the larger of two indices; known to simplification and estimates."""

_MOD = Callee("byoc_mod", operator.mod)


def index_min(one: Expression, other: Expression | Dim) -> Expression:
    """Return the smaller of two indices."""
    other = other if isinstance(other, Expression) else Size(other)
    if isinstance(one, Size) and isinstance(other, Size):
        return Size(dim_min(one.dim, other.dim))
    return Call(MIN, (one, other), INDEX)


def index_max(one: Expression, other: Expression | Dim) -> Expression:
    """Return the larger of two indices."""
    other = other if isinstance(other, Expression) else Size(other)
    if isinstance(one, Size) and isinstance(other, Size):
        return Size(dim_max(one.dim, other.dim))
    return Call(MAX, (one, other), INDEX)


def index_mod(index: Expression, size: Expression | Dim) -> Expression:
    """Return the remainder of an index by a size above 0, non-negative for a negative index too."""
    return Call(_MOD, (index, size if isinstance(size, Expression) else Size(size)), INDEX)


def unravelled(index: Expression, sizes: Sequence[Dim]) -> list[Expression]:
    """Return the position along each axis from a row-major index into axes of these sizes."""
    quotients = [index // product(sizes[axis + 1 :]) for axis in range(len(sizes))]
    # The outermost axis with more than one position needs no remainder: the index ends with its last position.
    outermost = next((axis for axis, size in enumerate(sizes) if size != 1), 0)
    return [
        Size(0) if size == 1 else quotient % size if axis > outermost else quotient
        for axis, (quotient, size) in enumerate(zip(quotients, sizes, strict=True))
    ]
