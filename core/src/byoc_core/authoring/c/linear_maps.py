"""Products of a known matrix and a few vectors, unrolled to the few operations permitted by the signs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from byoc_core.authoring.c.expressions import Binary, Expression, Literal, Unary, Variable
from byoc_core.authoring.c.statements import Block, Let, Statement
from byoc_core.authoring.c.vectors import Broadcast

__all__ = ["linear_map"]


def linear_map(
    matrix: Sequence[Sequence[float]], values: Sequence[Expression], store: Callable[[int, Expression], Statement]
) -> Block:
    """Return the statements to store ``matrix @ values``.

    Neighbouring columns share a sum and a difference if equal but for the signs of the odd rows. If no columns do,
    neighbouring rows share two sums if equal but for the signs of the odd columns. Matrices for evaluating or
    interpolating polynomials at opposite points have this property.

    Args:
        matrix: the coefficients, row by row.
        values: vectors; each is read more than once.
        store: returns the statement to store a result, by its number.
    """
    block: list[Statement] = []

    def let(name: str, value: Expression) -> Variable:
        variable = Variable(name, value.type)
        block.append(Let(variable, value))
        return variable

    zero = Broadcast(Literal(0, values[0].type.with_lanes(1)), values[0].type.lanes)
    even, odd = dict(enumerate(values)), dict(enumerate(values))
    for column, has_opposite in _opposites([*zip(*matrix, strict=True)]):
        if has_opposite:
            left, right = values[column], values[column + 1]
            even[column], odd[column] = let("plus", left + right), let("minus", left - right)
            del even[column + 1], odd[column + 1]
    has_all = len(even) == len(values)
    for row, has_opposite in _opposites(matrix) if has_all else zip(range(len(matrix)), repeat(False)):
        terms = [(matrix[row][column], value) for column, value in (odd if row % 2 else even).items()]
        if has_opposite:
            even_sum, odd_sum = let("even", _sum_of(terms[0::2], zero)), let("odd", _sum_of(terms[1::2], zero))
            block += [store(row, even_sum + odd_sum), store(row + 1, even_sum - odd_sum)]
        else:
            block.append(store(row, _sum_of(terms, zero)))
    return tuple(block)


def _opposites(rows: Sequence[Sequence[float]]) -> Iterator[tuple[int, bool]]:
    """Yield the number of each row, and whether the next row is opposite; an opposite next row is skipped."""
    number = 0
    while number < len(rows):
        mirrored = [-value if column % 2 else value for column, value in enumerate(rows[number])]
        has_opposite = number + 1 < len(rows) and list(rows[number + 1]) == mirrored
        yield number, has_opposite
        number += 2 if has_opposite else 1


def _sum_of(terms: Sequence[tuple[float, Expression]], zero: Expression) -> Expression:
    """Return a sum of multiples, or zero; terms of factor 1 come first, so the others can be contracted."""
    ordered = sorted((term for term in terms if term[0] != 0.0), key=lambda term: (abs(term[0]) != 1.0, term[0] != 1.0))
    total: Expression | None = None
    for factor, value in ordered:
        size = Broadcast(Literal(abs(factor), value.type.with_lanes(1)), value.type.lanes)
        scaled = value if abs(factor) == 1.0 else size * value
        if total is not None:
            total = Binary("+" if factor > 0 else "-", total, scaled)
        else:
            total = scaled if factor > 0 else Unary("-", scaled)
    return zero if total is None else total
