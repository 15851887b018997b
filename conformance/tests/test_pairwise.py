"""All possible pairs of levels occur, in few rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from byoc_conformance.drawing.pairwise import cover_pairs
from hypothesis import given
from hypothesis import strategies as st

FACTORS = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(
    lambda sizes: {f"f{index}": tuple(range(size)) for index, size in enumerate(sizes)}
)


def pairs_of(row: Mapping[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(itertools.combinations(sorted(row.items()), 2))


def rows_of(factors: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    return [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]


@given(FACTORS, st.integers(0, 3))
def test_every_pair_occurs(factors: dict[str, tuple[int, ...]], seed: int) -> None:
    rows = list(cover_pairs(factors, dict, np.random.default_rng(seed)))
    expected = set[Any]().union(*map(pairs_of, rows_of(factors)))
    assert set[Any]().union(*map(pairs_of, rows)) == expected
    assert rows == list(cover_pairs(factors, dict, np.random.default_rng(seed)))
    assert {tuple(row) for row in rows} == {tuple(factors)}
    for name, levels in factors.items():  # where there is one factor too
        assert {row[name] for row in rows} == set(levels)


@given(FACTORS, st.integers(0, 2**16 - 1))
def test_levels_that_do_not_go_together_are_left_out(factors: dict[str, tuple[int, ...]], mask: int) -> None:
    """Each sum of levels is permitted or not; all pairs possible in some permitted row occur."""

    def make(row: Mapping[str, Any]) -> dict[str, Any] | None:
        return dict(row) if mask >> sum(row.values()) % 16 & 1 else None

    rows = list(cover_pairs(factors, make, np.random.default_rng(0)))
    assert all(make(row) is not None for row in rows)
    all_rows = rows_of(factors)
    those = Counter(pair for row in all_rows for pair in pairs_of(row))
    permitted = Counter(pair for row in all_rows if make(row) is not None for pair in pairs_of(row))
    # A pair that few rows can have is looked for at random, and may be missed.
    expected = {pair for pair, count in permitted.items() if count >= those[pair] / 2}
    assert expected <= set[Any]().union(*map(pairs_of, rows))


def test_the_rows_are_few() -> None:
    factors = {f"f{index}": tuple(range(4)) for index in range(10)}
    rows = list(cover_pairs(factors, dict, np.random.default_rng(0)))
    assert 16 <= len(rows) <= 31 + 40  # of a million: those that differ from the first in one factor, and pairs


@given(FACTORS, st.integers(0, 2**16 - 1))
def test_each_level_is_tried_among_the_most_common_ones(factors: dict[str, tuple[int, ...]], mask: int) -> None:
    def make(row: Mapping[str, Any]) -> dict[str, Any] | None:
        return dict(row) if mask >> sum(row.values()) % 16 & 1 else None

    base = {name: levels[0] for name, levels in factors.items()}
    expected = [{**base, name: level} for name, levels in factors.items() for level in levels]
    rows = list(cover_pairs(factors, make, np.random.default_rng(0)))
    assert all(row in rows for row in expected if make(row) is not None)
    assert len(set(map(str, rows))) == len(rows)
