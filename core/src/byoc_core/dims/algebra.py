"""The algebra itself: polynomials over atoms in canonical form. See :mod:`byoc_core.dims`."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce, total_ordering
from math import gcd

from byoc_core.errors import IRTypeError

__all__ = [
    "CALLS",
    "MAX_TERMS",
    "Atom",
    "Dim",
    "DimExpr",
    "broadcast_dim",
    "ceildiv",
    "check_product",
    "dim_max",
    "dim_min",
    "exact_div",
    "floordiv",
    "is_name",
    "is_nonnegative",
    "is_positive",
    "mod",
    "product",
    "symbol",
]


@total_ordering
@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol (``op == ""``, its name in ``name``) or a call of ``op`` on ``args``."""

    op: str
    name: str
    args: tuple[Dim, ...] = ()

    def sort_key(self) -> tuple[str, str, str]:
        """Gives what orders atoms."""
        return (self.op, self.name, ",".join(map(str, self.args)))

    def __lt__(self, other: Atom) -> bool:
        return self.sort_key() < other.sort_key()

    def __str__(self) -> str:
        if not self.op:
            return self.name
        left, right = self.args
        if self.op in _INFIX:
            return f"{_parenthesised(left)}{_INFIX[self.op]}{_parenthesised(right)}"
        return f"{self.op}({left}, {right})"


MAX_TERMS = 4096  # a product of k two-term sums has 2**k terms: text from outside must not choose k freely
_MAX_BOUNDED_CALLS = 6  # bounds branch in two at each call
_INFIX = {"floordiv": "//", "mod": "%"}
# A monomial is a sorted tuple of (atom, exponent); the empty tuple is the constant term.
_Monomial = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A non-constant polynomial over atoms, in canonical form.

    Make one with :func:`symbol`, :func:`parse_dim` and the operators ``+ - * // %``; results that are constant
    come back as ``int``.
    """

    terms: tuple[tuple[_Monomial, int], ...]

    def __str__(self) -> str:
        text = ""
        if (
            len(self.terms) == 1
            and self.terms[0][1] == 1
            and len(self.terms[0][0]) == 1
            and self.terms[0][0][0][1] == 1
        ):
            return str(self.terms[0][0][0][0])
        for monomial, factor in self.terms:
            sign = "-" if factor < 0 else ("+" if text else "")
            parts = [_parenthesised_atom(atom) for atom, exponent in monomial for _ in range(exponent)]
            if abs(factor) != 1 or not parts:
                parts.insert(0, str(abs(factor)))
            text += sign + "*".join(parts)
        return text

    def __repr__(self) -> str:
        return f"<dim {self}>"

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        return _from_terms([*_terms(self), *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        check_product(self, other, MAX_TERMS)
        return _from_terms(
            (_multiply_monomials(left, right), left_factor * right_factor)
            for left, left_factor in _terms(self)
            for right, right_factor in _terms(other)
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)


Dim = int | DimExpr


def symbol(name: str) -> DimExpr:
    """Gives the symbol of that name.

    Raises:
        IRTypeError: the name is no :func:`is_name`, or is a function of the algebra.
    """
    if not is_name(name) or name in CALLS:
        raise IRTypeError("dim", f"{name!r} cannot name a symbol", expected="a Python identifier")
    return DimExpr(((((Atom("", name), 1),), 1),))


def is_name(text: str) -> bool:
    """Tells whether text is an identifier that Python reads back as it stands: no keyword, NFKC-normalised."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.is_normalized("NFKC", text)


def product(dims: Iterable[Dim]) -> Dim:
    """Gives the product of dimensions; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def ceildiv(dividend: Dim, divisor: Dim) -> Dim:
    """Gives the quotient rounded towards positive infinity."""
    return -(-dividend // divisor)


def dim_max(left: Dim, right: Dim) -> Dim:
    """Gives the larger of two dimensions, decided at once where the difference has a known sign."""
    return _extremum("max", left, right, lambda kept, other: is_nonnegative(kept - other))


def dim_min(left: Dim, right: Dim) -> Dim:
    """Gives the smaller of two dimensions, decided at once where the difference has a known sign."""
    return _extremum("min", left, right, lambda kept, other: is_nonnegative(other - kept))


def _extremum(op: str, left: Dim, right: Dim, wins: Callable[[Dim, Dim], bool]) -> Dim:
    """Gives the call on all operands of nested calls of the same op, without those that another one beats."""
    kept: list[Dim] = []
    for part in sorted({*_operands(op, left), *_operands(op, right)}, key=str):
        if not any(wins(other, part) for other in kept):
            kept = [other for other in kept if not wins(part, other)] + [part]
    return _chain(op, kept)


def broadcast_dim(left: Dim, right: Dim) -> Dim:
    """Gives the size two broadcast dimensions have together (numpy's rule: equal, or one of them 1).

    A size that is certainly more than 1 is the result: the other one has to be equal, or 1.

    Raises:
        IRTypeError: both sizes are known and do not fit.
    """
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise IRTypeError("broadcast", f"sizes {left} and {right} do not fit", expected="equal sizes, or one of them 1")
    parts = {*_operands("broadcast", left), *_operands("broadcast", right)}
    decided = [part for part in parts if isinstance(part, int) or is_positive(part - 1)]
    if decided:
        return min(decided, key=lambda part: (not isinstance(part, int), str(part)))
    return _chain("broadcast", sorted(parts, key=str))


def _operands(op: str, dim: Dim) -> tuple[Dim, ...]:
    """Gives the operands of nested calls of an op; the dimension itself where it is no such call."""
    atom = _only_atom(dim)
    if atom is None or atom.op != op:
        return (dim,)
    return tuple(operand for arg in atom.args for operand in _operands(op, arg))


def _only_atom(dim: Dim) -> Atom | None:
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    monomial, factor = dim.terms[0]
    return monomial[0][0] if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None


def _chain(op: str, operands: Sequence[Dim]) -> Dim:
    return reduce(lambda left, right: _call(op, left, right, commutative=True), operands)


def exact_div(dividend: Dim, divisor: Dim) -> Dim | None:
    """Gives the polynomial quotient where the division leaves no rest, else ``None``.

    Polynomial long division in lexicographic order of the atoms, which finds every quotient with integer coefficients.
    """
    if divisor == 0:
        return None
    leading, factor = _leading_term(divisor)
    quotient: Dim = 0
    while dividend != 0:
        term, coefficient = _leading_term(dividend)
        monomial = _divide_monomials(term, leading)
        if monomial is None or coefficient % factor:
            return None
        part = _from_terms([(monomial, coefficient // factor)])
        quotient = quotient + part
        dividend = dividend - part * divisor
    return quotient


def is_nonnegative(dim: Dim) -> bool:
    """Tells whether a dimension is certainly zero or more (``False``: not provable this way).

    Where the signs of the terms do not tell, calls are replaced one after the other by their bounds.
    """
    return _prove_nonnegative(dim, _MAX_BOUNDED_CALLS)


def is_positive(dim: Dim) -> bool:
    """Tells whether a dimension is certainly one or more (``False``: not provable this way)."""
    return is_nonnegative(dim - 1)


def _prove_nonnegative(dim: Dim, calls_left: int) -> bool:
    if isinstance(dim, int):
        return dim >= 0
    if all(factor >= 0 and _are_nonnegative(monomial) for monomial, factor in dim.terms):
        return True
    for monomial, factor in dim.terms if calls_left else ():
        for atom, exponent in monomial:
            others = tuple(item for item in monomial if item[0] != atom)
            if not atom.op or exponent != 1 or not _are_nonnegative(others):
                continue
            rest, scale = (
                _from_terms(term for term in dim.terms if term[0] != monomial),
                _from_terms([(others, factor)]),
            )
            conditions, needed = _sufficient(atom, rest, scale, is_added=factor > 0)
            return bool(conditions) and needed(_prove_nonnegative(bound, calls_left - 1) for bound in conditions)
    return False


def _are_nonnegative(monomial: _Monomial) -> bool:
    return all(_atom_is_nonnegative(atom) for atom, _ in monomial)


def _atom_is_nonnegative(atom: Atom) -> bool:
    if not atom.op:
        return True
    if atom.op == "mod":
        return is_positive(atom.args[1])
    if atom.op == "max":
        return any(map(is_nonnegative, atom.args))
    return all(map(is_nonnegative, atom.args))


def _sufficient(
    atom: Atom, rest: Dim, scale: Dim, *, is_added: bool
) -> tuple[list[Dim], Callable[[Iterable[bool]], bool]]:
    """Gives dimensions without ``atom`` of which all (or any) must be zero or more, so that ``rest + scale * atom`` is.

    Args:
        atom: a call.
        rest: what is added to it.
        scale: its factor; of one known sign.
        is_added: whether that sign is plus.
    """
    left, right = atom.args
    if atom.op in ("max", "min", "broadcast"):  # a broadcast size is one of the two
        one_is_enough = atom.op == ("max" if is_added else "min")
        return [rest + scale * left, rest + scale * right], any if one_is_enough else all
    if isinstance(right, int) and right > 0:
        if atom.op == "mod":
            return [rest if is_added else rest + scale * (right - 1)], all
        return [right * rest + scale * (left - (right - 1) if is_added else left)], all
    conditions: list[Dim] = []
    if not is_added and is_positive(right):
        # Neither quotient nor remainder is larger than a dividend that is not negative.
        conditions += [rest + scale * left] if is_nonnegative(left) else []
        conditions += [rest + scale * (right - 1)] if atom.op == "mod" else []
    return conditions, any


def _terms(dim: Dim) -> tuple[tuple[_Monomial, int], ...]:
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def _monomial_key(monomial: _Monomial) -> tuple[int, list[tuple[tuple[str, str, str], int]]]:
    degree = sum(exponent for _, exponent in monomial)
    return (-degree, [(atom.sort_key(), exponent) for atom, exponent in monomial])


def _from_terms(terms: Iterable[tuple[_Monomial, int]]) -> Dim:
    collected: dict[_Monomial, int] = {}
    for monomial, factor in terms:
        collected[monomial] = collected.get(monomial, 0) + factor
    kept = {monomial: factor for monomial, factor in collected.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return DimExpr(tuple(sorted(kept.items(), key=lambda item: _monomial_key(item[0]))))


def _leading_term(dim: Dim) -> tuple[_Monomial, int]:
    """Gives the greatest term in lexicographic order; unlike the printed order, products keep this one."""
    terms = _terms(dim)
    atoms = sorted({atom for monomial, _ in terms for atom, _ in monomial})

    def exponents(item: tuple[_Monomial, int]) -> list[int]:
        by_atom = dict(item[0])
        return [by_atom.get(atom, 0) for atom in atoms]

    return max(terms, key=exponents)


def _multiply_monomials(left: _Monomial, right: _Monomial) -> _Monomial:
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted(exponents.items()))


def _divide_monomials(left: _Monomial, right: _Monomial) -> _Monomial | None:
    exponents = dict(left)
    for atom, exponent in right:
        rest = exponents.get(atom, 0) - exponent
        if rest < 0:
            return None
        if rest:
            exponents[atom] = rest
        else:
            exponents.pop(atom)
    return tuple(sorted(exponents.items()))


def _call(op: str, left: Dim, right: Dim, *, commutative: bool = False) -> DimExpr:
    args = tuple(sorted((left, right), key=str)) if commutative else (left, right)
    return DimExpr(((((Atom(op, "", args), 1),), 1),))


def _split_by_divisor(dividend: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """Writes ``dividend`` as ``divisor * quotient + rest`` with as many terms as possible in the quotient."""
    divisor_terms = _terms(divisor)
    quotient: list[tuple[_Monomial, int]] = []
    rest: list[tuple[_Monomial, int]] = []
    for term, coefficient in _terms(dividend):
        if len(divisor_terms) == 1:
            monomial, factor = divisor_terms[0]
            divided = _divide_monomials(term, monomial)
            if divided is not None:
                whole, remainder = divmod(coefficient, factor)
                quotient.append((divided, whole))
                rest.append((term, remainder))
                continue
        rest.append((term, coefficient))
    return _from_terms(quotient), _from_terms(rest)


def floordiv(dividend: Dim, divisor: Dim) -> Dim:
    """Gives the quotient rounded towards negative infinity.

    Raises:
        IRTypeError: the divisor is zero.
    """
    _check_divisor(divisor)
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    exact = exact_div(dividend, divisor)
    if exact is not None:
        return exact
    quotient, rest = _split_by_divisor(dividend, divisor)
    if isinstance(rest, int) and isinstance(divisor, int):
        return quotient + rest // divisor
    if is_nonnegative(rest) and is_positive(divisor - rest):
        return quotient
    return quotient + _quotient(rest, divisor)


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    """Gives the call, with common factors and a division before this one taken into the divisor."""
    if isinstance(divisor, int) and divisor > 0 and isinstance(dividend, DimExpr):
        common = gcd(divisor, *(factor for monomial, factor in dividend.terms if monomial))
        if common > 1:
            reduced = _from_terms((monomial, factor // common) for monomial, factor in dividend.terms)
            return floordiv(reduced, divisor // common)
        inner = _only_atom(dividend)
        if inner is not None and inner.op == "floordiv" and isinstance(inner.args[1], int) and inner.args[1] > 0:
            return floordiv(inner.args[0], inner.args[1] * divisor)
    return _call("floordiv", dividend, divisor)


def mod(dividend: Dim, divisor: Dim) -> Dim:
    """Gives what :func:`floordiv` leaves.

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
    return _call("mod", rest, divisor)


def _check_divisor(divisor: Dim) -> None:
    if divisor == 0:
        raise IRTypeError("dim", "division by zero")


CALLS: dict[str, Callable[[Dim, Dim], Dim]] = {"max": dim_max, "min": dim_min, "broadcast": broadcast_dim}
"""The functions that text may call by name."""


def _parenthesised(dim: Dim) -> str:
    text = str(dim)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _parenthesised_atom(atom: Atom) -> str:
    return f"({atom})" if atom.op in _INFIX else str(atom)


def check_product(left: Dim, right: Dim, max_terms: int) -> None:
    """Raises ``IRTypeError`` where a product would have too many terms."""
    if len(_terms(left)) * len(_terms(right)) > max_terms:
        raise IRTypeError("dim", "a product of sums is too large", expected=f"at most {max_terms} terms")
