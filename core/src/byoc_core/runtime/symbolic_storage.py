"""Storages for buffers of symbolic sizes: two share one where it is provably large enough for both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from byoc_core.dims import Dim, is_nonnegative

__all__ = ["SymbolicInterval", "SymbolicPlan", "plan_symbolic"]


@dataclass(frozen=True, slots=True)
class SymbolicInterval:
    """A buffer of symbolic size that is needed at every point from ``start`` to ``end``, both included."""

    nbytes: Dim
    start: int
    end: int


class SymbolicPlan(NamedTuple):
    """Which storage each buffer has, and the sizes of the storages."""

    storages: tuple[int, ...]
    sizes: tuple[Dim, ...]


def plan_symbolic(intervals: Sequence[SymbolicInterval]) -> SymbolicPlan:
    """Gives each buffer a storage of its own for as long as it is needed.

    In order of first use, a buffer takes a free storage of equal size; else the first free one that is provably not
    smaller; else the first free one that is provably not larger, which grows; else a new one.

    Cost: ``O(n log n)`` plus, for each buffer without an equal one, the number of different sizes that are free.
    """
    chosen = [0] * len(intervals)
    sizes: list[Dim] = []
    free: dict[Dim, list[int]] = {}
    busy: list[tuple[int, int]] = []
    for number in sorted(range(len(intervals)), key=lambda i: (intervals[i].start, i)):
        interval = intervals[number]
        while busy and busy[0][0] < interval.start:
            _, storage = heappop(busy)
            free.setdefault(sizes[storage], []).append(storage)
        size = _fitting_size(interval.nbytes, free)
        if size is None:
            storage = len(sizes)
            sizes.append(interval.nbytes)
        else:
            storage = free[size].pop()
            if not free[size]:
                del free[size]
            if not is_nonnegative(size - interval.nbytes):
                sizes[storage] = interval.nbytes
        chosen[number] = storage
        heappush(busy, (interval.end, storage))
    return SymbolicPlan(tuple(chosen), tuple(sizes))


def _fitting_size(nbytes: Dim, free: Iterable[Dim]) -> Dim | None:
    sizes = list(free)
    if nbytes in sizes:
        return nbytes
    larger = next((size for size in sizes if is_nonnegative(size - nbytes)), None)
    return larger if larger is not None else next((size for size in sizes if is_nonnegative(nbytes - size)), None)
