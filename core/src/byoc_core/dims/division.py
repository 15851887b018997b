"""Division: the exact quotient of polynomials if it exists, and rounded quotients with their remainders."""

from __future__ import annotations

from math import gcd

from byoc_core.dims.algebra import Dim, DimExpr, Monomial, call, divide_monomials, from_terms, only_atom, terms_of
from byoc_core.dims.bounds import is_nonnegative, is_positive
from byoc_core.errors import IRTypeError

__all__ = ["ceildiv", "exact_div", "floordiv", "mod"]


def ceildiv(dividend: Dim, divisor: Dim) -> Dim:
    """Return the quotient rounded towards positive infinity."""
    return -(-dividend // divisor)


def exact_div(dividend: Dim, divisor: Dim) -> Dim | None:
    """Return the polynomial quotient if the division leaves no remainder, else ``None``.

    Polynomial long division in lexicographic order of the atoms finds every quotient with integer coefficients.
    """
    if divisor == 0:
        return None
    leading, factor = _leading_term(divisor)
    quotient: Dim = 0
    # Each round cancels the leading term of the dividend and leaves only smaller terms: the loop ends.
    while dividend != 0:
        term, coefficient = _leading_term(dividend)
        monomial = divide_monomials(term, leading)
        if monomial is None or coefficient % factor:
            # The leading term of every multiple of the divisor is divisible by the divisor's leading term.
            return None
        part = from_terms([(monomial, coefficient // factor)])
        quotient = quotient + part
        dividend = dividend - part * divisor
    return quotient


def _leading_term(dim: Dim) -> tuple[Monomial, int]:
    """Return the greatest term in lexicographic order; products preserve this order, unlike the printed order."""
    terms = terms_of(dim)
    atoms = sorted({atom for monomial, _ in terms for atom, _ in monomial})

    def exponents(item: tuple[Monomial, int]) -> list[int]:
        by_atom = dict(item[0])
        return [by_atom.get(atom, 0) for atom in atoms]

    return max(terms, key=exponents)


def _split_by_divisor(dividend: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """Split ``dividend`` into ``divisor * quotient + rest`` with as many terms as possible in the quotient."""
    divisor_terms = terms_of(divisor)
    quotient: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for term, coefficient in terms_of(dividend):
        # A divisor of several terms divides no single term: the whole dividend becomes the rest.
        if len(divisor_terms) == 1:
            monomial, factor = divisor_terms[0]
            divided = divide_monomials(term, monomial)
            if divided is not None:
                quotient_coefficient, remainder = divmod(coefficient, factor)
                quotient.append((divided, quotient_coefficient))
                rest.append((term, remainder))
                continue
        rest.append((term, coefficient))
    return from_terms(quotient), from_terms(rest)


def floordiv(dividend: Dim, divisor: Dim) -> Dim:
    """Return the quotient rounded towards negative infinity.

    Raises:
        IRTypeError: the divisor is zero.
    """
    _check_divisor(divisor)
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    exact = exact_div(dividend, divisor)
    if exact is not None:
        return exact
    # The quotient is an integer and can be taken out of the rounding: only the rest remains to be divided.
    quotient, rest = _split_by_divisor(dividend, divisor)
    if isinstance(rest, int) and isinstance(divisor, int):
        return quotient + rest // divisor
    if is_nonnegative(rest) and is_positive(divisor - rest):
        return quotient
    return quotient + _quotient(rest, divisor)


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    """Return the call of ``floordiv``, with common factors cancelled and a nested division merged into the divisor."""
    if isinstance(divisor, int) and divisor > 0 and isinstance(dividend, DimExpr):
        common = gcd(divisor, *(factor for monomial, factor in dividend.terms if monomial))
        if common > 1:
            # Rounding down the constant term alone changes nothing: all other terms are multiples of the common factor.
            reduced = from_terms((monomial, factor // common) for monomial, factor in dividend.terms)
            return floordiv(reduced, divisor // common)
        inner = only_atom(dividend)
        if inner is not None and inner.op == "floordiv" and isinstance(inner.args[1], int) and inner.args[1] > 0:
            # Rounding down twice by positive divisors equals rounding down once by their product.
            return floordiv(inner.args[0], inner.args[1] * divisor)
    return call("floordiv", dividend, divisor)


def mod(dividend: Dim, divisor: Dim) -> Dim:
    """Return the remainder of :func:`floordiv`.

    Raises:
        IRTypeError: the divisor is zero.
    """
    _check_divisor(divisor)
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend % divisor
    if exact_div(dividend, divisor) is not None:
        return 0
    _, rest = _split_by_divisor(dividend, divisor)
    if isinstance(rest, int) and isinstance(divisor, int):
        return rest % divisor
    if is_nonnegative(rest) and is_positive(divisor - rest):
        return rest
    return call("mod", rest, divisor)


def _check_divisor(divisor: Dim) -> None:
    if divisor == 0:
        raise IRTypeError("dim", "division by zero")
