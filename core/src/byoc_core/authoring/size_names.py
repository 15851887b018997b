"""C variables for the sizes of a C function: every quotient, remainder, extremum and broadcast is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from byoc_core.authoring.csource_scalars import without_parentheses
from byoc_core.dims import Dim, DimExpr
from byoc_core.dims.algebra import call, only_atom
from byoc_core.dims.substitution import replace_calls
from byoc_core.native.c_text import c_dim, c_real, c_symbol

__all__ = ["SizeNames", "new_symbols"]


class SizeNames:
    """The C variables for calls in the sizes of a straight C function, defined in the order of first use.

    Args:
        symbols: the symbols of the function, already C variables (:func:`c_symbol`).
    """

    def __init__(self, symbols: Iterable[str]) -> None:
        self._new_symbols = new_symbols(symbols)
        self._symbols: dict[DimExpr, str] = {}
        self._polynomials: dict[Dim, Dim] = {}
        self._definitions: list[str] = []

    @property
    def definitions(self) -> Sequence[str]:
        """The definitions of the variables used so far, in order, to be placed before the uses."""
        return self._definitions

    def text(self, dim: Dim) -> str:
        """Return a size as a C expression without calls; parenthesised if needed."""
        return c_dim(self._without_calls(dim))

    def real(self, dim: Dim) -> str:
        """Return a size as a C expression of type ``double`` without calls (:func:`c_real`)."""
        replaced = self._without_calls(dim)
        return f"{replaced}.0" if isinstance(replaced, int) else c_real(replaced)

    def variable(self, dim: Dim) -> str:
        """Return a size as a C variable or a number; a polynomial gets a variable of its own."""
        polynomial = self._without_calls(dim)
        atom = only_atom(polynomial)
        if isinstance(polynomial, int) or (atom is not None and not atom.op):
            return c_dim(polynomial)
        return c_symbol(self._defined(polynomial))

    def _without_calls(self, dim: Dim) -> Dim:
        if dim not in self._polynomials:
            self._polynomials[dim] = replace_calls(dim, self._symbol_of_call)
        return self._polynomials[dim]

    def _symbol_of_call(self, op: str, left: Dim, right: Dim) -> str:
        return self._defined(call(op, self._without_calls(left), self._without_calls(right)))

    def _defined(self, dim: DimExpr) -> str:
        """Return the symbol of a call on polynomials, or of a polynomial."""
        if dim not in self._symbols:
            self._symbols[dim] = next(self._new_symbols)
            self._definitions.append(
                f"const int64_t {c_symbol(self._symbols[dim])} = {without_parentheses(c_dim(dim))};"
            )
        return self._symbols[dim]


def new_symbols(reserved: Iterable[str]) -> Iterator[str]:
    """Yield ``size_0``, ``size_1`` and so on, without the reserved symbols."""
    used = frozenset(reserved)
    return (name for number in count() if (name := f"size_{number}") not in used)
