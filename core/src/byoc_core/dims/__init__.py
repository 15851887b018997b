"""Symbolic dimensions: a small exact integer algebra.

A :data:`Dim` is a Python ``int`` or a :class:`DimExpr`, a polynomial with integer coefficients over *atoms*.
An atom is a named symbol, or a call of ``floordiv``, ``mod``, ``min``, ``max`` or ``broadcast``.
Expressions are kept in a canonical form, so ``==`` decides equality of polynomials; constants are always plain ints.
Symbols stand for sizes: integers of zero or more.

``str(expr)`` returns Python syntax (``2*n+1``, ``n//4``, ``max(m, n)``), and :func:`parse_dim` parses this text.
The package is in the lowest layer because both the compiler and the VM evaluate sizes.
"""

from byoc_core.dims.algebra import Dim, DimExpr, is_name, product, symbol, total
from byoc_core.dims.bounds import is_nonnegative, is_positive, upper_bound
from byoc_core.dims.division import ceildiv, exact_div
from byoc_core.dims.rough import rough_product
from byoc_core.dims.selection import broadcast_dim, dim_max, dim_min
from byoc_core.dims.substitution import (
    LinearTerms,
    bound_symbols,
    broadcast_pairs,
    evaluate,
    evaluate_at_one,
    has_calls,
    linear_form,
    linear_terms,
    match_symbols,
    shape_symbols,
    solve_symbol,
    substitute,
    symbols_of,
    typical_value,
)
from byoc_core.dims.text import parse_dim, read_dim, read_problem

__all__ = [
    "Dim",
    "DimExpr",
    "LinearTerms",
    "bound_symbols",
    "broadcast_dim",
    "broadcast_pairs",
    "ceildiv",
    "dim_max",
    "dim_min",
    "evaluate",
    "evaluate_at_one",
    "exact_div",
    "has_calls",
    "is_name",
    "is_nonnegative",
    "is_positive",
    "linear_form",
    "linear_terms",
    "match_symbols",
    "parse_dim",
    "product",
    "read_dim",
    "read_problem",
    "rough_product",
    "shape_symbols",
    "solve_symbol",
    "substitute",
    "symbol",
    "symbols_of",
    "total",
    "typical_value",
    "upper_bound",
]
