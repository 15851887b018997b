"""Places for very many buffers: one sweep over time with a list of gaps, whatever the number alive at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

__all__ = ["sweep"]


def sweep(
    spans: Sequence[tuple[int, int]], sizes: Sequence[int], ceiling: int, *, in_turn: bool, backwards: bool
) -> tuple[int, ...]:
    """Gives the offset of each buffer; buffers that are needed at once do not overlap.

    Buffers are taken in order of their start, large ones first among equals, and go into the smallest gap that holds
    them. Where none does, the arena grows.

    Args:
        spans: the first and the last point at which each buffer is needed.
        sizes: of the buffers, in bytes.
        ceiling: the arena's size to begin with.
        in_turn: every second buffer goes to the upper end of its gap.
        backwards: sweep from the last point to the first.

    Cost: ``O(n log n)``, however many are needed at once.
    """
    first = [-end if backwards else start for start, end in spans]
    last = [-start if backwards else end for start, end in spans]
    order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: (first[i], -sizes[i], i))
    offsets = [0] * len(spans)
    gaps = _Gaps(ceiling)
    busy: list[tuple[int, int]] = []
    for turn, number in enumerate(order):
        while busy and busy[0][0] < first[number]:
            _, done = heappop(busy)
            gaps.give(offsets[done], offsets[done] + sizes[done])
        offsets[number] = gaps.take(sizes[number], at_end=in_turn and turn % 2 == 1)
        heappush(busy, (last[number], number))
    return tuple(offsets)


class _Gaps:
    """The free parts of an arena that can grow, no two of them adjacent."""

    def __init__(self, nbytes: int) -> None:
        self._end = 0
        self._stops: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        # Starts of gaps by size; those of gaps that are no more are dropped when they come up.
        self._by_size: dict[int, list[int]] = {}
        self._sizes: list[int] = []
        if nbytes:
            self._end = nbytes
            self._add(0, nbytes)

    def take(self, size: int, *, at_end: bool) -> int:
        """Gives the offset of ``size`` bytes of the smallest gap that has them; the arena grows where none has."""
        start = self._smallest(size)
        if start is None:
            start = self._starts.get(self._end, self._end)
            if start < self._end:
                self._remove(start)
            self._end = start + size
            return start
        stop = self._remove(start)
        if at_end:
            start, rest = stop - size, (start, stop - size)
        else:
            rest = (start + size, stop)
        if rest[0] < rest[1]:
            self._add(*rest)
        return start

    def give(self, start: int, stop: int) -> None:
        """Makes a part free again."""
        if start in self._starts:
            start = self._starts[start]
            self._remove(start)
        if stop in self._stops:
            stop = self._remove(stop)
        self._add(start, stop)

    def _add(self, start: int, stop: int) -> None:
        self._stops[start] = stop
        self._starts[stop] = start
        size = stop - start
        if size not in self._by_size:
            self._by_size[size] = []
            insort(self._sizes, size)
        heappush(self._by_size[size], start)

    def _remove(self, start: int) -> int:
        stop = self._stops.pop(start)
        del self._starts[stop]
        return stop

    def _smallest(self, size: int) -> int | None:
        position = bisect_left(self._sizes, size)
        while position < len(self._sizes):
            found = self._sizes[position]
            starts = self._by_size[found]
            while starts and self._stops.get(starts[0]) != starts[0] + found:
                heappop(starts)
            if starts:
                return starts[0]
            del self._by_size[found], self._sizes[position]
        return None
