"""Sizes with calls as parameters: the caller of a function computes every such size once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd

from byoc_core.authoring.c.collecting import Uses, uses_of
from byoc_core.authoring.c.expressions import Expression, Size
from byoc_core.authoring.c.statements import Block, Dispatch, Function, Statement
from byoc_core.authoring.c.traversal import map_expression, map_own, with_blocks
from byoc_core.authoring.size_names import new_symbols
from byoc_core.dims import Dim, has_calls, symbol
from byoc_core.dims.algebra import DimExpr, call, from_terms
from byoc_core.dims.substitution import replace_calls

__all__ = ["name_sizes"]


def name_sizes(function: Function, uses: Uses | None = None) -> tuple[Function, dict[str, Dim]]:
    """Return a function without calls in sizes, and the size behind each new symbol.

    Sizes with quotients, remainders, extrema or broadcasts become new symbols, hence parameters of the printed function
    and fields of its dispatched loops. Sizes equal but for a constant summand or a constant factor share a symbol. The
    symbols are numbered in the order of their uses: functions with equal statements over different sizes become equal.

    Passes with proofs about sizes (simplification, outlining) belong before this pass.

    Args:
        function: the function.
        uses: the function's dependencies, if already known.

    Cost: linear in the expressions.
    """
    symbols = (uses or uses_of(function)).symbols
    if not symbols:
        return function, {}
    named = _NamedSizes(new_symbols(symbols))
    return replace(function, body=named.block(function.body)), {name: dim for dim, name in named.symbols.items()}


@dataclass(frozen=True, slots=True)
class _NamedSizes:
    """The symbols of sizes with calls.

    Attributes:
        free: the symbols not yet used.
        symbols: the symbols by their sizes.
        sizes: the polynomials in place of sizes, by size.
    """

    free: Iterator[str]
    symbols: dict[Dim, str] = field(default_factory=dict)
    sizes: dict[Dim, Dim] = field(default_factory=dict)

    def block(self, block: Block) -> Block:
        """Return a block without calls in sizes."""
        return tuple(map(self._statement, block))

    def _statement(self, statement: Statement) -> Statement:
        inside = with_blocks(statement, self.block)
        if isinstance(inside, Dispatch):
            # A work in picoseconds may overflow an integer: only calls inside are sizes.
            work_ps = replace_calls(inside.work_ps, lambda op, left, right: self._symbol(call(op, left, right)))
            return replace(inside, count=self._size(inside.count), grain=self._size(inside.grain), work_ps=work_ps)
        return map_own(inside, lambda expression: map_expression(expression, self._expression))

    def _expression(self, expression: Expression) -> Expression:
        if isinstance(expression, Size) and has_calls(expression.dim):
            return Size(self._size(expression.dim))
        return expression

    def _size(self, dim: Dim) -> Dim:
        """Return a size as a sum of a constant and a multiple of a new symbol, if the size has calls."""
        if isinstance(dim, int) or not has_calls(dim):
            return dim
        if dim not in self.sizes:
            self.sizes[dim] = self._named(dim)
        return self.sizes[dim]

    def _named(self, dim: DimExpr) -> Dim:
        constant = sum(factor for monomial, factor in dim.terms if not monomial)
        terms = [term for term in dim.terms if term[0]]
        multiple = gcd(*(factor for _, factor in terms)) * (-1 if terms[0][1] < 0 else 1)
        primitive = from_terms((monomial, factor // multiple) for monomial, factor in terms)
        assert isinstance(primitive, DimExpr)
        return symbol(self._symbol(primitive)) * multiple + constant

    def _symbol(self, dim: Dim) -> str:
        if dim not in self.symbols:
            self.symbols[dim] = next(self.free)
        return self.symbols[dim]
