"""Indices: minimum and maximum, remainders, positions along axes."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring import c
from byoc_core.dims import Dim, product, symbol
from hypothesis import given
from hypothesis import strategies as st

INDEX, OUT = c.Variable("i"), c.Buffer("out", "int64", c.MemoryAccess.WRITE)


def _value(expression: c.Expression, index: int) -> int:
    """Return the value of an expression over the variable ``i``."""
    out = np.zeros(1, np.int64)
    function = c.Function("f", (OUT, INDEX), (c.Store(OUT, c.Size(0), expression),))
    c.interpret(function, {OUT: out, INDEX: index})
    return int(out[0])


def test_variables_are_new_ones_for_indices() -> None:
    row, column = c.variables("row column")
    assert (row.name, column.name) == ("row", "column")
    assert row.type == column.type == c.INDEX
    assert c.variables("row") != (row,)
    assert c.variables("") == ()


@pytest.mark.parametrize("index", [-7, -1, 0, 3, 4, 9])
def test_bounds_and_remainders(index: int) -> None:
    assert _value(c.index_min(INDEX, 3), index) == min(index, 3)
    assert _value(c.index_max(INDEX, 3), index) == max(index, 3)
    assert _value(c.index_mod(INDEX, 4), index) == index % 4


def test_bounds_of_sizes_are_sizes() -> None:
    assert c.index_min(c.Size(3), 5) == c.Size(3)
    assert c.index_max(c.Size(3), 5) == c.Size(5)
    assert isinstance(c.index_min(c.Size(symbol("n")), 5), c.Size)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_a_position_is_the_one_that_numpy_finds(sizes: list[int], data: st.DataObject) -> None:
    dims: list[Dim] = list(sizes)
    index = data.draw(st.integers(0, int(str(product(dims))) - 1))
    places = [_value(place, index) for place in c.unravelled(INDEX, dims)]
    assert places == [int(place) for place in np.unravel_index(index, sizes)]


def test_the_outermost_axis_that_has_more_than_one_takes_no_remainder() -> None:
    assert c.unravelled(INDEX, (1, 3)) == [c.Size(0), INDEX]
    assert c.unravelled(INDEX, (1, 3, 4)) == [c.Size(0), INDEX // 4, INDEX % 4]
    assert c.unravelled(INDEX, (2, 3)) == [INDEX // 3, INDEX % 3]
