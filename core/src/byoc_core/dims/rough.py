"""Products of sizes for estimates: close, and with few terms. Only for costs, never for sizes of memory."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from byoc_core.dims.algebra import Dim, Monomial, from_terms, terms_of

__all__ = ["rough_product"]

_Terms = dict[Monomial, Fraction]


def rough_product(dim: Dim, count: Dim, divisor: int = 1) -> Dim:
    """Return about ``dim * count / divisor``: ints exactly, rounded up; quotients of sizes are not rounded.

    Without rounding, the number of tiles times the tile size is the whole axis again: products of many loops keep
    few terms.
    """
    if isinstance(dim, int) and isinstance(count, int):
        return -(-dim * count // divisor)
    found = _multiplied(_relaxed(dim), _relaxed(count))
    return from_terms((monomial, ceil(factor / divisor)) for monomial, factor in found.items())


def _relaxed(dim: Dim) -> _Terms:
    """Return the terms of a size with exact quotients in place of rounded quotients."""
    total: _Terms = {}
    for monomial, factor in terms_of(dim):
        part: _Terms = {(): Fraction(factor)}
        for atom, exponent in monomial:
            match atom.op, atom.args:
                case "floordiv", (dividend, int(divisor)) if divisor:
                    base = {key: value / divisor for key, value in _relaxed(dividend).items()}
                case _:
                    base = {((atom, 1),): Fraction(1)}
            for _ in range(exponent):
                part = _multiplied(part, base)
        for key, value in part.items():
            total[key] = total.get(key, Fraction(0)) + value
    return total


def _multiplied(left: _Terms, right: _Terms) -> _Terms:
    found: _Terms = {}
    for left_monomial, left_factor in left.items():
        for right_monomial, right_factor in right.items():
            exponents = dict(left_monomial)
            for atom, exponent in right_monomial:
                exponents[atom] = exponents.get(atom, 0) + exponent
            key = tuple(sorted(exponents.items()))
            found[key] = found.get(key, Fraction(0)) + left_factor * right_factor
    return found
