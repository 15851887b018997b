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
_Row = tuple[int, ...]
"""The index of a level for each factor."""
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
    pairs = _MissingPairs([len(factors[name]) for name in names])
    items: dict[_Row, _Item | None] = {}

    def make_row(row: _Row) -> _Item | None:
        if row not in items:
            items[row] = make({name: factors[name][level] for name, level in zip(names, row, strict=True)})
        return items[row]

    base = (0,) * len(names)
    other_levels = [(factor, level) for factor, size in enumerate(pairs.sizes) for level in range(1, size)]
    for row in (base, *((*base[:factor], level, *base[factor + 1 :]) for factor, level in other_levels)):
        item = make_row(row)
        if item is not None:
            pairs.remove(row)
            yield item
    order = random.Random(int(generator.integers(2**63)))  # noqa: S311 - for a few levels many times as fast as numpy's
    for first, second in itertools.combinations(pairs.levels, 2):
        found: list[tuple[int, _Row, _Item]] = []
        for attempt in range(_ATTEMPTS if pairs.are_missing(first, second) else 0):
            row = pairs.complete((first, second), order, is_greedy=attempt < _ATTEMPTS // 2)
            item = make_row(row)
            if item is None:
                continue
            found.append((pairs.count(row), row, item))
            if len(found) == _CANDIDATES:
                break
        if found:
            _, row, item = max(found, key=lambda candidate: candidate[0])
            pairs.remove(row)
            yield item


class _MissingPairs:
    """The pairs of levels in no row so far: for each level a set of levels of other factors, as the bits of a number.

    Args:
        sizes: the number of levels of each factor.

    Attributes:
        sizes: the number of levels of each factor.
        levels: all levels, each as the index of a factor and the index of a level of the factor.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.levels = [(factor, level) for factor, size in enumerate(sizes) for level in range(size)]
        self._firsts = [sum(sizes[:factor]) for factor in range(len(sizes))]
        everything = (1 << len(self.levels)) - 1
        self._missing = [
            everything & ~(((1 << sizes[factor]) - 1) << self._firsts[factor]) for factor, _ in self.levels
        ]

    def are_missing(self, first: tuple[int, int], second: tuple[int, int]) -> bool:
        """Return whether no row has both levels."""
        return bool(self._missing[self._bit(*first)] >> self._bit(*second) & 1)

    def count(self, row: _Row) -> int:
        """Return twice the number of missing pairs in a row."""
        bits = [self._bit(factor, level) for factor, level in enumerate(row)]
        mask = sum(1 << bit for bit in bits)
        return sum((self._missing[bit] & mask).bit_count() for bit in bits)

    def remove(self, row: _Row) -> None:
        """Mark the pairs of a row as seen."""
        bits = [self._bit(factor, level) for factor, level in enumerate(row)]
        mask = sum(1 << bit for bit in bits)
        for bit in bits:
            self._missing[bit] &= ~mask

    def complete(self, pair: Sequence[tuple[int, int]], order: random.Random, *, is_greedy: bool) -> _Row:
        """Return a row with a pair; the other levels cover as many missing pairs as possible, or are random."""
        row, mask = [-1] * len(self.sizes), 0
        for factor, level in pair:
            row[factor] = level
            mask |= 1 << self._bit(factor, level)
        free_factors = [factor for factor, level in enumerate(row) if level < 0]
        order.shuffle(free_factors)
        for factor in free_factors:
            size = self.sizes[factor]
            start = int(order.random() * size)
            row[factor] = self._most_missing(factor, start, mask) if is_greedy and size > 1 else start
            mask |= 1 << self._bit(factor, row[factor])
        return tuple(row)

    def _most_missing(self, factor: int, start: int, mask: int) -> int:
        """Return the level of a factor with the most missing pairs among some levels; the first from ``start`` on."""
        first, size = self._firsts[factor], self.sizes[factor]
        best, most = start, -1
        for level in (*range(start, size), *range(start)):
            count = (self._missing[first + level] & mask).bit_count()
            if count > most:
                best, most = level, count
        return best

    def _bit(self, factor: int, level: int) -> int:
        return self._firsts[factor] + level
