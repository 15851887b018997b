"""Symbols in dimensions: which there are, replacing them, evaluating, solving for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.dims.algebra import CALLS, Atom, Dim, floordiv, mod, symbol
from byoc_core.errors import IRTypeError

__all__ = ["evaluate", "solve_symbol", "substitute", "symbols_of"]

_REBUILD: dict[str, Callable[[Dim, Dim], Dim]] = {**CALLS, "floordiv": floordiv, "mod": mod}


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


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if not atom.op:
        value = values.get(atom.name)
        return symbol(atom.name) if value is None else value
    left, right = (substitute(arg, values) for arg in atom.args)
    return _REBUILD[atom.op](left, right)
