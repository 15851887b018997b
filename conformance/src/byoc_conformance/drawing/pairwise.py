"""Rows of levels in which every pair of levels of two factors occurs: pairwise testing.

Most faults in code with many switches need one value, or two together (Kuhn, Wallace and Gallo, Software Fault
Interactions and Implications for Software Testing, IEEE TSE 30(6), 2004), and the rows that show all pairs are few:
about the product of the two largest numbers of levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = ["Levels", "cover_pairs"]

Levels = Mapping[str, Any]
"""One level of each factor."""

_Made = TypeVar("_Made")
_Pair = tuple[tuple[int, int], tuple[int, int]]
_ATTEMPTS = 40
"""How many rows with a pair are tried before the pair is taken for one that cannot be."""


def cover_pairs(
    factors: Mapping[str, Sequence[Any]], make: Callable[[Levels], _Made | None], generator: np.random.Generator
) -> Iterator[_Made]:
    """Yield objects made of rows that together show every pair of levels which can occur in a row.

    Rows are completed greedily, as in AETG (Cohen, Dalal, Fredman and Patton, IEEE TSE 23(7), 1997): each next factor
    gets the level that shows the most pairs not seen yet.

    Args:
        factors: the levels of each factor, by its name; one or more of each.
        make: return what is made of a row, or ``None`` where its levels do not go together.
        generator: of all random numbers.

    Cost:
        ``O(p * f * v)`` for ``p`` rows tried, ``f`` factors and ``v`` levels.
    """
    names = tuple(factors)
    if len(names) == 1:
        yield from (made for level in factors[names[0]] if (made := make({names[0]: level})) is not None)
        return
    sizes = [len(factors[name]) for name in names]
    missing: dict[_Pair, None] = dict.fromkeys(
        ((first, i), (second, j))
        for first, second in itertools.combinations(range(len(names)), 2)
        for i, j in itertools.product(range(sizes[first]), range(sizes[second]))
    )
    while missing:
        wanted = next(iter(missing))
        for attempt in range(_ATTEMPTS):
            row = _complete(wanted, sizes, missing, generator, is_greedy=attempt < _ATTEMPTS // 2)
            made = make({name: factors[name][level] for name, level in zip(names, row, strict=True)})
            if made is not None:
                for pair in itertools.combinations(enumerate(row), 2):
                    missing.pop(pair, None)
                yield made
                break
        else:
            del missing[wanted]


def _complete(
    pair: _Pair, sizes: Sequence[int], missing: Mapping[_Pair, None], generator: np.random.Generator, *, is_greedy: bool
) -> list[int]:
    """Return a row with a pair; the other levels show as many missing pairs as can be, or are random."""
    row = dict(pair)
    others = [factor for factor in range(len(sizes)) if factor not in row]
    for factor in generator.permutation(others).tolist():
        levels = generator.permutation(sizes[factor]).tolist()
        row[factor] = max(levels, key=lambda level: _num_shown(factor, level, row, missing)) if is_greedy else levels[0]
    return [row[factor] for factor in range(len(sizes))]


def _num_shown(factor: int, level: int, row: Mapping[int, int], missing: Mapping[_Pair, None]) -> int:
    """Return how many missing pairs a level shows together with those of a row."""
    return sum(
        (((factor, level), item) if factor < item[0] else (item, (factor, level))) in missing for item in row.items()
    )
