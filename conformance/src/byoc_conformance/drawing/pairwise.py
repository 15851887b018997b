"""Pairwise testing: rows of levels covering every pair of levels of two factors.

Most faults in code with many switches need a single value, or two together (Kuhn, Wallace and Gallo, Software Fault
Interactions and Implications for Software Testing, IEEE TSE 30(6), 2004). Few rows cover all pairs: about the product
of the two largest numbers of levels.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = ["Levels", "cover_pairs"]

Levels = Mapping[str, Any]
"""A level of each factor."""

_Item = TypeVar("_Item")
_Level = tuple[int, int]
"""The index of a factor, and the index of a level of the factor."""
_ATTEMPTS = 40
"""The number of rows tried with a pair before the pair counts as impossible; half of them are completed greedily."""
_CANDIDATES = 3
"""The number of candidate rows with a pair; the row with the most unseen pairs is taken."""


def cover_pairs(
    factors: Mapping[str, Sequence[Any]], make: Callable[[Levels], _Item | None], generator: np.random.Generator
) -> Iterator[_Item]:
    """Yield objects made from rows, together covering every possible pair of levels.

    The first rows have the first level of each factor, or of all but a single factor: base choice coverage (Ammann and
    Offutt, Using Formal Methods to Derive Test Frames in Category-Partition Testing, 1994). A rare level may hide the
    effect of another. The other rows are completed greedily, as in AETG (Cohen, Dalal, Fredman and Patton, IEEE TSE
    23(7), 1997): each next factor gets the level with the most unseen pairs, and the best of a few rows is taken.

    Args:
        factors: the levels of each factor, by name, the most common first; at least a single level of each.
        make: returns the object for a row, or ``None`` for incompatible levels.
        generator: of all random numbers.

    Cost:
        ``O(p * f * v)`` for ``p`` rows tried, ``f`` factors and ``v`` levels.
    """
    names = tuple(factors)
    sizes = [len(factors[name]) for name in names]
    levels = [(factor, level) for factor, size in enumerate(sizes) for level in range(size)]
    missing = {level: {other for other in levels if other[0] != level[0]} for level in levels}
    impossible: set[tuple[_Level, ...]] = set()

    def make_row(row: tuple[_Level, ...]) -> _Item | None:
        item = None if row in impossible else make({names[f]: factors[names[f]][level] for f, level in row})
        if item is None:
            impossible.add(row)
        return item

    base = [(factor, 0) for factor in range(len(names))]
    for changed in [base[0], *(level for level in levels if level not in base)]:
        row = tuple(changed if level[0] == changed[0] else level for level in base)
        item = make_row(row)
        if item is not None:
            _note(row, missing)
            yield item
    order = random.Random(int(generator.integers(2**63)))  # noqa: S311 - for a few levels many times as fast as numpy's
    for first, second in itertools.combinations(levels, 2):
        found: list[tuple[int, tuple[_Level, ...], _Item]] = []
        for attempt in range(_ATTEMPTS if second in missing[first] else 0):
            row = _complete((first, second), sizes, missing, order, is_greedy=attempt < _ATTEMPTS // 2)
            item = make_row(row)
            if item is None:
                continue
            found.append((sum(len(missing[level].intersection(row)) for level in row), row, item))
            if len(found) == _CANDIDATES:
                break
        if found:
            _, row, item = max(found, key=lambda candidate: candidate[0])
            _note(row, missing)
            yield item


def _note(row: tuple[_Level, ...], missing: Mapping[_Level, set[_Level]]) -> None:
    """Mark the pairs of a row as seen."""
    for level in row:
        missing[level].difference_update(row)


def _complete(
    pair: tuple[_Level, _Level],
    sizes: Sequence[int],
    missing: Mapping[_Level, set[_Level]],
    order: random.Random,
    *,
    is_greedy: bool,
) -> tuple[_Level, ...]:
    """Return a row with a pair; the other levels cover as many missing pairs as possible, or are random."""
    row = list(pair)
    free_factors = [factor for factor in range(len(sizes)) if factor not in dict(pair)]
    order.shuffle(free_factors)
    for factor in free_factors:
        start = int(order.random() * sizes[factor])
        if is_greedy:
            levels = [(factor, level) for level in (*range(start, sizes[factor]), *range(start))]
            row.append(max(levels, key=lambda level: len(missing[level].intersection(row))))
        else:
            row.append((factor, start))
    return tuple(sorted(row))
