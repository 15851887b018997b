"""The algebra itself: polynomials over atoms in canonical form. See :mod:`byoc_core.dims`.

Canonical form: equal monomials are joined, no factor is 0, and terms, atoms and operands of commutative calls are
sorted. Programs and reports store the text of ``str``, and the decoder of programs refuses text in another form.
Another order or another spelling makes stored programs unreadable.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import total_ordering

from byoc_core.errors import IRTypeError

__all__ = [
    "CALL_NAMES",
    "MAX_TERMS",
    "Atom",
    "Dim",
    "DimExpr",
    "Monomial",
    "call",
    "check_product",
    "divide_monomials",
    "from_terms",
    "is_name",
    "only_atom",
    "product",
    "symbol",
    "terms_of",
    "total",
]

CALL_NAMES = ("max", "min", "broadcast")
"""The functions that text may call by name. Another function also needs rules in :mod:`byoc_core.dims.selection` and
:mod:`byoc_core.dims.bounds`, and code in C (:mod:`byoc_core.native.c_text`, :mod:`byoc_core.vm.size_table`).
"""


@total_ordering
@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol (``op == ""``, its name in ``name``) or a call of ``op`` on ``args``."""

    op: str
    name: str
    args: tuple[Dim, ...] = ()
    _key: tuple[str, str, str] | None = field(default=None, init=False, repr=False, compare=False)
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Return the hash, kept for the same reason as the sort key."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.op, self.name, self.args)))
        assert self._hash is not None
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out what is kept: hashes of texts differ between processes."""
        return (Atom, (self.op, self.name, self.args))

    def sort_key(self) -> tuple[str, str, str]:
        """Return the sort key of the atom; kept, because each sum sorts its atoms, and calls are nested."""
        if self._key is None:
            object.__setattr__(self, "_key", (self.op, self.name, ",".join(map(str, self.args))))
        assert self._key is not None
        return self._key

    def __lt__(self, other: Atom) -> bool:
        return self.sort_key() < other.sort_key()

    def __str__(self) -> str:
        if not self.op:
            return self.name
        left, right = self.args
        if self.op in _INFIX:
            return f"{_parenthesised(left)}{_INFIX[self.op]}{_parenthesised(right)}"
        return f"{self.op}({left}, {right})"


MAX_TERMS = 4096  # a product of k two-term sums has 2**k terms: untrusted text must not choose k freely
_INFIX = {"floordiv": "//", "mod": "%"}
# A monomial is a sorted tuple of (atom, exponent); the empty tuple is the constant term.
Monomial = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A non-constant polynomial over atoms, in canonical form.

    Created by :func:`symbol`, :func:`parse_dim` and the operators ``+ - * // %``. Constant results are returned as
    ``int``.
    """

    terms: tuple[tuple[Monomial, int], ...]
    _symbols: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)
    kept_function: Callable[[Mapping[str, int]], int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The function made by :func:`byoc_core.dims.values.value_function`."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out the symbols and the function, which follow from the terms."""
        return (DimExpr, (self.terms,))

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols; kept, because types and passes ask for the symbols of each size again and again."""
        if self._symbols is None:
            found: set[str] = set()
            for monomial, _ in self.terms:
                for atom, _ in monomial:
                    if atom.op:
                        found.update(*(arg.symbols for arg in atom.args if not isinstance(arg, int)))
                    else:
                        found.add(atom.name)
            object.__setattr__(self, "_symbols", frozenset(found))
        assert self._symbols is not None
        return self._symbols

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
        if other == 0:
            return self
        return from_terms([*self.terms, *terms_of(other)])

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
        if isinstance(other, int):  # the order of the terms stays
            return DimExpr(tuple((monomial, factor * other) for monomial, factor in self.terms)) if other else 0
        check_product(self, other, MAX_TERMS)
        return from_terms(
            (_multiply(left, right), left_factor * right_factor)
            for left, left_factor in terms_of(self)
            for right, right_factor in terms_of(other)
        )

    __rmul__ = __mul__

    # Imported late: division compares sizes, and comparison uses the operators above.
    def __floordiv__(self, other: Dim) -> Dim:
        from byoc_core.dims.division import floordiv

        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        from byoc_core.dims.division import floordiv

        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        from byoc_core.dims.division import mod

        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        from byoc_core.dims.division import mod

        return mod(other, self)


Dim = int | DimExpr
"""A size: a number, or an expression of symbols."""


def symbol(name: str) -> DimExpr:
    """Return the symbol of this name.

    Raises:
        IRTypeError: the name does not satisfy :func:`is_name`, or is a function of the algebra.
    """
    if not is_name(name) or name in CALL_NAMES:
        raise IRTypeError("dim", f"{name!r} cannot name a symbol", expected="a Python identifier")
    return DimExpr(((((Atom("", name), 1),), 1),))


def is_name(text: str) -> bool:
    """Return whether text is an identifier preserved by Python's parser: no keyword, and NFKC-normalised."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.is_normalized("NFKC", text)


def product(dims: Iterable[Dim], *, max_terms: int = MAX_TERMS) -> Dim:
    """Return the product of dimensions; 1 for none.

    Raises:
        IRTypeError: the product would have more than ``max_terms`` terms before equal terms are joined.
    """
    result: Dim = 1
    for dim in dims:
        check_product(result, dim, max_terms)
        result = result * dim
    return result


def only_atom(dim: Dim) -> Atom | None:
    """Return the atom if a dimension is a single atom, else ``None``."""
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    monomial, factor = dim.terms[0]
    return monomial[0][0] if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    """Return the terms of a dimension as pairs of monomial and factor; none for 0."""
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def _monomial_key(monomial: Monomial) -> tuple[int, list[tuple[tuple[str, str, str], int]]]:
    degree = sum(exponent for _, exponent in monomial)
    return (-degree, [(atom.sort_key(), exponent) for atom, exponent in monomial])


def from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    """Return the sum of terms, in any order and with repetitions."""
    collected: dict[Monomial, int] = {}
    for monomial, factor in terms:
        collected[monomial] = collected.get(monomial, 0) + factor
    nonzero = [(monomial, factor) for monomial, factor in collected.items() if factor]
    if not nonzero:
        return 0
    if len(nonzero) > 1:
        nonzero.sort(key=lambda item: _monomial_key(item[0]))
    elif not nonzero[0][0]:
        return nonzero[0][1]
    return DimExpr(tuple(nonzero))


def total(dims: Iterable[Dim]) -> Dim:
    """Return the sum of dimensions; linear in the number of terms, whereas repeated addition is quadratic."""
    return from_terms(term for dim in dims for term in terms_of(dim))


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted(exponents.items()))


def divide_monomials(left: Monomial, right: Monomial) -> Monomial | None:
    """Return the quotient of two monomials; ``None`` if ``left`` is not divisible by ``right``."""
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


def call(op: str, left: Dim, right: Dim, *, commutative: bool = False) -> DimExpr:
    """Return the call of an op on two dimensions, with sorted arguments if the op is commutative."""
    args = tuple(sorted((left, right), key=str)) if commutative else (left, right)
    return DimExpr(((((Atom(op, "", args), 1),), 1),))


def _parenthesised(dim: Dim) -> str:
    text = str(dim)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _parenthesised_atom(atom: Atom) -> str:
    return f"({atom})" if atom.op in _INFIX else str(atom)


def check_product(left: Dim, right: Dim, max_terms: int) -> None:
    """Raise ``IRTypeError`` if a product would have too many terms."""
    if len(terms_of(left)) * len(terms_of(right)) > max_terms:
        raise IRTypeError("dim", "a product of sums is too large", expected=f"at most {max_terms} terms")
