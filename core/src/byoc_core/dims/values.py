"""Values of dimensions in calls: each expression becomes a function of the sizes of symbols, made once.

The functions are closures over the parts of an expression; no text is executed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from byoc_core.dims.algebra import Atom, Dim, DimExpr
from byoc_core.dims.selection import broadcast_dim

__all__ = ["value_function"]

_Value = Callable[[Mapping[str, int]], int]


def _broadcast(left: int, right: int) -> int:
    size = broadcast_dim(left, right)
    assert isinstance(size, int)
    return size


_CALLS: Mapping[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "broadcast": _broadcast,
}


def value_function(dim: DimExpr) -> _Value:
    """Return the function of an expression, kept with the expression.

    The function takes the sizes of all symbols by name. It raises ``KeyError`` without a size, ``ZeroDivisionError``
    for a divisor of zero, and ``IRTypeError`` for sizes that do not broadcast.
    """
    found = dim.kept_function
    if found is None:
        found = _of_terms(dim)
        object.__setattr__(dim, "kept_function", found)
    return found


def _of_terms(dim: DimExpr) -> _Value:
    constant, terms = 0, list[tuple[int, _Value]]()
    for monomial, factor in dim.terms:
        if monomial:
            atoms = [_of_atom(atom) for atom, exponent in monomial for _ in range(exponent)]
            terms.append((factor, atoms[0] if len(atoms) == 1 else _of_product(atoms)))
        else:
            constant = factor
    if len(terms) == 1:
        ((factor, term),) = terms
        if constant == 0 and factor == 1:
            return term
        return lambda sizes: factor * term(sizes) + constant
    return lambda sizes: constant + sum([factor * term(sizes) for factor, term in terms])


def _of_product(values: list[_Value]) -> _Value:
    def product(sizes: Mapping[str, int]) -> int:
        result = 1
        for value in values:
            result *= value(sizes)
        return result

    return product


def _of_atom(atom: Atom) -> _Value:
    if not atom.op:
        return operator.itemgetter(atom.name)
    compute = _CALLS[atom.op]
    left, right = (_of_dim(arg) for arg in atom.args)
    return lambda sizes: compute(left(sizes), right(sizes))


def _of_dim(dim: Dim) -> _Value:
    return (lambda _: dim) if isinstance(dim, int) else value_function(dim)
