"""Symbols in dimensions: collecting, substituting, evaluating and solving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from byoc_core.dims.algebra import Atom, Dim, DimExpr, from_terms, only_atom, terms_of
from byoc_core.dims.division import exact_div, floordiv, mod
from byoc_core.dims.selection import CALLS, dim_max
from byoc_core.dims.values import value_function
from byoc_core.errors import IRTypeError

__all__ = [
    "LinearTerms",
    "bound_symbols",
    "broadcast_pairs",
    "evaluate",
    "evaluate_at_one",
    "has_calls",
    "linear_form",
    "linear_terms",
    "match_symbols",
    "replace_calls",
    "shape_symbols",
    "solve_symbol",
    "substitute",
    "symbols_of",
    "typical_value",
]

LinearTerms = tuple[int, tuple[tuple[str, int], ...]]
"""A constant, and a factor for each symbol."""

_NO_SYMBOLS: frozenset[str] = frozenset()
_REBUILD: dict[str, Callable[[Dim, Dim], Dim]] = {**CALLS, "floordiv": floordiv, "mod": mod}


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the value of a dimension for known symbols.

    Raises:
        IRTypeError: a symbol is missing, a divisor is zero, or ``broadcast`` meets sizes that do not fit.
    """
    if isinstance(dim, int):
        return dim
    try:
        return value_function(dim)(sizes)
    except (KeyError, ZeroDivisionError):
        value = substitute(dim, sizes)
    if isinstance(value, int):
        return value
    raise IRTypeError("dim", f"the size of {', '.join(sorted(symbols_of(value)))} in {dim} is not known")


def evaluate_at_one(dim: Dim) -> int:
    """Return the value of a dimension with every symbol 1; see :func:`typical_value`."""
    return typical_value(dim, 1)


def typical_value(dim: Dim, size: int) -> int:
    """Return the value of a dimension with the same size for all symbols; 0 if a divisor is zero.

    A broadcast size is the larger of the two sizes, whether they fit or not. The value is a heuristic, never a proof.
    """
    try:
        value = _rebuilt(dim, dict.fromkeys(symbols_of(dim), size), {**_REBUILD, "broadcast": dim_max})
    except IRTypeError:
        return 0
    assert isinstance(value, int)  # no symbol is left
    return value


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Replace symbols by dimensions, all simultaneously."""
    if isinstance(dim, int) or not values:
        return dim
    atom = only_atom(dim)
    if atom is not None and not atom.op:  # most sizes in calls are a single symbol
        return values.get(atom.name, dim)
    return _rebuilt(dim, values, _REBUILD)


def symbols_of(dim: Dim) -> frozenset[str]:
    """Return the names of all symbols inside a dimension."""
    return _NO_SYMBOLS if isinstance(dim, int) else dim.symbols


def broadcast_pairs(dim: Dim) -> list[tuple[Dim, Dim]]:
    """Return the pairs of sizes assumed to broadcast by a dimension, innermost first."""
    pairs: list[tuple[Dim, Dim]] = []
    if isinstance(dim, DimExpr):
        for monomial, _ in dim.terms:
            for atom, _ in monomial:
                for arg in atom.args:
                    pairs += broadcast_pairs(arg)
                if atom.op == "broadcast":
                    pairs.append((atom.args[0], atom.args[1]))
    return pairs


def has_calls(dim: Dim) -> bool:
    """Return whether a dimension is no polynomial: it contains a quotient, remainder, extremum or broadcast."""
    return not isinstance(dim, int) and any(atom.op for monomial, _ in dim.terms for atom, _ in monomial)


def replace_calls(dim: Dim, symbol_of: Callable[[str, Dim, Dim], str]) -> Dim:
    """Return a polynomial: a dimension with a symbol in place of each outermost call.

    Args:
        dim: the dimension.
        symbol_of: returns the symbol for a call from the function's name and both arguments; different calls have
            different symbols.
    """
    if isinstance(dim, int) or not has_calls(dim):
        return dim

    def replaced(atom: Atom) -> Atom:
        return Atom("", symbol_of(atom.op, *atom.args)) if atom.op else atom

    return from_terms(
        (tuple(sorted((replaced(atom), exponent) for atom, exponent in monomial)), factor)
        for monomial, factor in dim.terms
    )


def solve_symbol(dim: Dim, value: int) -> tuple[str, int] | None:
    """Solve ``k*s + c == value`` for the only symbol ``s`` of a linear dimension.

    Returns:
        The symbol's name and its size, or ``None`` if the dimension is not linear in exactly one symbol
        or has no non-negative integer solution.
    """
    if isinstance(dim, int):
        return None
    linear = linear_form(dim)
    if linear is None:
        return None
    name, factor, constant = linear
    if (value - constant) % factor:
        return None
    size = (value - constant) // factor
    return (name, size) if size >= 0 else None


def match_symbols(declared: Iterable[Dim], given: Iterable[Dim]) -> dict[str, Dim]:
    """Return the values of the symbols of declared sizes, matched with given sizes, which have symbols of their own.

    A symbol is matched if it is the only symbol of a size ``k*s + c`` and ``k`` divides the given size less ``c``.
    The first match decides. Other symbols are left out.
    """
    found: dict[str, Dim] = {}
    for dim, size in zip(declared, given, strict=True):
        linear = None if isinstance(dim, int) else linear_form(dim)
        if linear is None or linear[0] in found:
            continue
        name, factor, constant = linear
        quotient = exact_div(size - constant, factor)
        if quotient is not None:
            found[name] = quotient
    return found


def linear_form(dim: DimExpr) -> tuple[str, int, int] | None:
    """Return (symbol, factor, constant) of ``factor * symbol + constant``; ``None`` for another form."""
    constant, name, factor = 0, None, 0
    for monomial, coefficient in dim.terms:
        if not monomial:
            constant = coefficient
        elif name is None and len(monomial) == 1 and monomial[0][1] == 1 and not monomial[0][0].op:
            name, factor = monomial[0][0].name, coefficient
        else:
            return None
    return None if name is None else (name, factor, constant)


def linear_terms(dim: Dim) -> LinearTerms | None:
    """Return the constant, and (symbol, factor) for each symbol of a linear sum; ``None`` for another form."""
    constant, factors = 0, []
    for monomial, coefficient in terms_of(dim):
        if not monomial:
            constant = coefficient
        elif len(monomial) == 1 and monomial[0][1] == 1 and not monomial[0][0].op:
            factors.append((monomial[0][0].name, coefficient))
        else:
            return None
    return constant, tuple(factors)


def shape_symbols(shape: Iterable[Dim]) -> frozenset[str]:
    """Return the names of all symbols in a shape."""
    return frozenset().union(*map(symbols_of, shape))


def bound_symbols(shapes: Iterable[Iterable[Dim]], known: Iterable[str] = ()) -> frozenset[str]:
    """Return the symbols determined by the shapes of arrays for all sizes, and the symbols in ``known``.

    A dimension determines a symbol if it is ``k*s + c`` with an integer ``k`` for all sizes of the known symbols.
    """
    bound = set(known)
    pending = [dim for shape in shapes for dim in shape if isinstance(dim, DimExpr)]
    while pending:
        rest: list[DimExpr] = []
        for dim in pending:
            name = _linear_symbol(dim, bound)
            if name is not None:
                bound.add(name)
            elif not symbols_of(dim) <= bound:
                rest.append(dim)
        if len(rest) == len(pending):
            break
        pending = rest
    return frozenset(bound)


def _linear_symbol(dim: DimExpr, bound: set[str]) -> str | None:
    unknown = symbols_of(dim) - bound
    if len(unknown) != 1:
        return None
    (name,) = unknown
    try:
        probes = [_with_known(dim, bound, size) for size in (1, 2)]
        probe = probes[0]
        # A coefficient depending on a known symbol could vanish, so such dimensions do not count.
        if not isinstance(probe, DimExpr) or not isinstance(probe - probes[1], int):
            return None
        return name if solve_symbol(probe, evaluate(probe, {name: 1})) == (name, 1) else None
    except IRTypeError:
        return None


def _with_known(dim: Dim, bound: Iterable[str], size: int) -> Dim:
    values: Mapping[str, Dim] = dict.fromkeys(symbols_of(dim) & frozenset(bound), size)
    return substitute(dim, values)


def _rebuilt(dim: Dim, values: Mapping[str, Dim], calls: Mapping[str, Callable[[Dim, Dim], Dim]]) -> Dim:
    """Return a dimension with replaced symbols, and with each call computed by a function."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        part: Dim = factor
        for atom, exponent in monomial:
            value = _rebuilt_atom(atom, values, calls)
            for _ in range(exponent):
                part = part * value
        total = total + part
    return total


def _rebuilt_atom(atom: Atom, values: Mapping[str, Dim], calls: Mapping[str, Callable[[Dim, Dim], Dim]]) -> Dim:
    if not atom.op:
        value = values.get(atom.name)
        return DimExpr(((((atom, 1),), 1),)) if value is None else value
    left, right = (_rebuilt(arg, values, calls) for arg in atom.args)
    return calls[atom.op](left, right)
