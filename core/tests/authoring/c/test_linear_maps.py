"""Products of a known matrix and vectors: the values, and the small number of operations."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring import c
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.traversal import expressions_of
from hypothesis import given
from hypothesis import strategies as st

LANES = 2
ROWS = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.lists(st.integers(-3, 3), min_size=size, max_size=size), min_size=1, max_size=4)
)


def _function(matrix: list[list[float]]) -> c.Function:
    """Return a function of the vectors ``x`` with the results ``y``."""
    x, y = c.Buffer("x", "float64"), c.Buffer("y", "float64", c.MemoryAccess.WRITE)
    values = [c.Variable("value", c.CType("float64", LANES)) for _ in matrix[0]]
    lets = [c.Let(value, c.Load(x, c.Size(k * LANES), LANES)) for k, value in enumerate(values)]
    stores = c.linear_map(matrix, values, lambda row, value: c.Store(y, c.Size(row * LANES), value))
    return c.verify(c.Function("map", (x, y), (*lets, *stores)))


def _count(block: c.Block, operators: str) -> int:
    """Return the number of operations of some kinds in a block."""

    def of(expression: c.Expression) -> int:
        own = isinstance(expression, c.Binary) and expression.operator in operators and expression.type.lanes == LANES
        return own + sum(map(of, operands_of(expression)))

    return sum(of(expression) for statement in block for expression in expressions_of(statement))


@given(matrix=ROWS, seed=st.integers(0, 99))
def test_the_results_are_those_of_the_matrix(matrix: list[list[float]], seed: int) -> None:
    x, y = np.random.default_rng(seed).integers(-9, 10, (len(matrix[0]), LANES)), np.zeros(len(matrix) * LANES)
    function = _function(matrix)
    c.interpret(function, dict(zip(function.parameters, (x.reshape(-1).astype("float64"), y), strict=True)))
    np.testing.assert_array_equal(y.reshape(-1, LANES), np.array(matrix) @ x)


@pytest.mark.parametrize(
    ("matrix", "sums", "products"),
    [
        ([[1, 1], [1, -1]], 2, 0),
        ([[1, 2, 4], [1, -2, 4]], 3, 2),
        ([[1, 1, 1], [0.5, 2, -2], [0.25, 4, 4]], 5, 4),
    ],
)
def test_opposite_rows_and_columns_share_operations(matrix: list[list[float]], sums: int, products: int) -> None:
    body = _function(matrix).body
    assert (_count(body, "+-"), _count(body, "*")) == (sums, products)
