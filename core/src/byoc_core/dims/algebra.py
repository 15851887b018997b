"""The algebra itself: polynomials over atoms in canonical form. See :mod:`byoc_core.dims`."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering

from byoc_core.errors import IRTypeError

__all__ = [
    "CALLS",
    "MAX_TERMS",
    "Dim",
    "DimExpr",
    "broadcast_dim",
    "ceildiv",
    "check_product",
    "dim_max",
    "dim_min",
    "evaluate",
    "exact_div",
    "floordiv",
    "is_name",
    "is_nonnegative",
    "is_positive",
    "mod",
    "product",
    "solve_symbol",
    "substitute",
    "symbol",
    "symbols_of",
]


@total_ordering
@dataclass(frozen=True, slots=True)
class _Atom:
    """A symbol (``op == ""``, its name in ``name``) or a call of ``op`` on ``args``."""

    op: str
    name: str
    args: tuple[Dim, ...] = ()

    def sort_key(self) -> tuple[str, str, str]:
        return (self.op, self.name, ",".join(map(str, self.args)))

    def __lt__(self, other: _Atom) -> bool:
        return self.sort_key() < other.sort_key()

    def __str__(self) -> str:
        if not self.op:
            return self.name
        left, right = self.args
        if self.op in _INFIX:
            return f"{_parenthesised(left)}{_INFIX[self.op]}{_parenthesised(right)}"
        return f"{self.op}({left}, {right})"


MAX_TERMS = 4096  # a product of k two-term sums has 2**k terms: text from outside must not choose k freely
_INFIX = {"floordiv": "//", "mod": "%"}
# A monomial is a sorted tuple of (atom, exponent); the empty tuple is the constant term.
_Monomial = tuple[tuple[_Atom, int], ...]


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
    return DimExpr(((((_Atom("", name), 1),), 1),))


def is_name(text: str) -> bool:
    """Tells whether text is an identifier that Python reads back as it stands: no keyword, NFKC-normalised."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.is_normalized("NFKC", text)


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Gives the value of a dimension for known symbols.

    Raises:
        IRTypeError: a symbol is missing, a divisor is zero, or ``broadcast`` meets sizes that do not fit.
    """
    value = substitute(dim, sizes)
    if isinstance(value, int):
        return value
    raise IRTypeError("dim", f"the size of {', '.join(sorted(symbols_of(value)))} in {dim} is not known")


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Replaces symbols by dimensions (all at once, not one after the other)."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        part: Dim = factor
        for atom, exponent in monomial:
            value = _substitute_atom(atom, values)
            for _ in range(exponent):
                part = part * value
        total = total + part
    return total


def symbols_of(dim: Dim) -> frozenset[str]:
    """Gives the names of all symbols inside a dimension."""
    if isinstance(dim, int):
        return frozenset()
    found: set[str] = set()
    for monomial, _ in dim.terms:
        for atom, _ in monomial:
            if atom.op:
                found.update(*(symbols_of(arg) for arg in atom.args))
            else:
                found.add(atom.name)
    return frozenset(found)


def solve_symbol(dim: Dim, value: int) -> tuple[str, int] | None:
    """Solves ``k*s + c == value`` for the one symbol ``s`` of a linear dimension.

    Returns:
        The symbol's name and its size, or ``None`` where the dimension is not linear in exactly one symbol
        or no non-negative integer solves it.
    """
    if isinstance(dim, int):
        return None
    constant, name, factor = 0, None, 0
    for monomial, coefficient in dim.terms:
        if not monomial:
            constant = coefficient
        elif name is None and len(monomial) == 1 and monomial[0][1] == 1 and not monomial[0][0].op:
            name, factor = monomial[0][0].name, coefficient
        else:
            return None
    if name is None or (value - constant) % factor:
        return None
    size = (value - constant) // factor
    return (name, size) if size >= 0 else None


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
    if is_nonnegative(left - right):
        return left
    if is_nonnegative(right - left):
        return right
    return _call("max", left, right, commutative=True)


def dim_min(left: Dim, right: Dim) -> Dim:
    """Gives the smaller of two dimensions, decided at once where the difference has a known sign."""
    if is_nonnegative(left - right):
        return right
    if is_nonnegative(right - left):
        return left
    return _call("min", left, right, commutative=True)


def broadcast_dim(left: Dim, right: Dim) -> Dim:
    """Gives the size two broadcast dimensions have together (numpy's rule: equal, or one of them 1).

    Raises:
        IRTypeError: both sizes are known and do not fit.
    """
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise IRTypeError("broadcast", f"sizes {left} and {right} do not fit", expected="equal sizes, or one of them 1")
    if isinstance(left, int):
        return left
    if isinstance(right, int):
        return right
    return _call("broadcast", left, right, commutative=True)


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
    """Tells whether a dimension is certainly zero or more (``False``: not provable this way)."""
    if isinstance(dim, int):
        return dim >= 0
    return all(factor >= 0 and all(_atom_is_nonnegative(atom) for atom, _ in term) for term, factor in dim.terms)


def is_positive(dim: Dim) -> bool:
    """Tells whether a dimension is certainly one or more (``False``: not provable this way)."""
    return is_nonnegative(dim - 1)


def _atom_is_nonnegative(atom: _Atom) -> bool:
    if not atom.op:
        return True
    if atom.op == "mod":
        return is_positive(atom.args[1])
    if atom.op == "max":
        return any(map(is_nonnegative, atom.args))
    return all(map(is_nonnegative, atom.args))


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
    return DimExpr(((((_Atom(op, "", args), 1),), 1),))


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
    if dividend == divisor:
        return 1
    quotient, rest = _split_by_divisor(dividend, divisor)
    if isinstance(rest, int) and (rest == 0 or (isinstance(divisor, int) and 0 <= rest < divisor)):
        return quotient
    if isinstance(rest, int) and isinstance(divisor, int):
        return quotient + rest // divisor
    return quotient + _call("floordiv", rest, divisor)


def mod(dividend: Dim, divisor: Dim) -> Dim:
    """Gives what :func:`floordiv` leaves.

    Raises:
        IRTypeError: the divisor is zero.
    """
    _check_divisor(divisor)
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend % divisor
    if dividend == divisor:
        return 0
    _, rest = _split_by_divisor(dividend, divisor)
    if rest == 0:
        return 0
    if isinstance(rest, int) and isinstance(divisor, int):
        return rest % divisor
    return _call("mod", rest, divisor)


def _check_divisor(divisor: Dim) -> None:
    if divisor == 0:
        raise IRTypeError("dim", "division by zero")


CALLS: dict[str, Callable[[Dim, Dim], Dim]] = {"max": dim_max, "min": dim_min, "broadcast": broadcast_dim}
_REBUILD: dict[str, Callable[[Dim, Dim], Dim]] = {**CALLS, "floordiv": floordiv, "mod": mod}


def _substitute_atom(atom: _Atom, values: Mapping[str, Dim]) -> Dim:
    if not atom.op:
        value = values.get(atom.name)
        return symbol(atom.name) if value is None else value
    left, right = (substitute(arg, values) for arg in atom.args)
    return _REBUILD[atom.op](left, right)


def _parenthesised(dim: Dim) -> str:
    text = str(dim)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _parenthesised_atom(atom: _Atom) -> str:
    return f"({atom})" if atom.op in _INFIX else str(atom)


def check_product(left: Dim, right: Dim, max_terms: int) -> None:
    """Raises ``IRTypeError`` where a product would have too many terms."""
    if len(_terms(left)) * len(_terms(right)) > max_terms:
        raise IRTypeError("dim", "a product of sums is too large", expected=f"at most {max_terms} terms")
