"""Places for very many buffers: one sweep over time with a list of gaps, for any number of live buffers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

__all__ = ["sweep"]


def sweep(
    spans: Sequence[tuple[int, int]], sizes: Sequence[int], ceiling: int, *, in_turn: bool, backwards: bool
) -> tuple[int, ...]:
    """Return the offset of each buffer; buffers with intersecting live ranges do not overlap.

    Buffers are taken in order of their start, large buffers first among equals, and go into the smallest sufficient
    gap. Without such a gap, the arena grows.

    Args:
        spans: the first and the last point of each buffer's live range.
        sizes: of the buffers, in bytes.
        ceiling: the arena's size to begin with.
        in_turn: every second buffer goes to the upper end of the gap.
        backwards: sweep from the last point to the first.

    Cost: ``O(n log n)``, for any number of simultaneously live buffers.
    """
    # Negative points reverse time: the end of a live range becomes its start.
    first = [-end if backwards else start for start, end in spans]
    last = [-start if backwards else end for start, end in spans]
    order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: (first[i], -sizes[i], i))
    offsets = [0] * len(spans)
    gaps = _Gaps(ceiling)
    busy: list[tuple[int, int]] = []
    for turn, number in enumerate(order):
        # A live range includes its last point: a buffer ending at this point is not free yet.
        while busy and busy[0][0] < first[number]:
            _, done = heappop(busy)
            gaps.give(offsets[done], offsets[done] + sizes[done])
        offsets[number] = gaps.take(sizes[number], at_end=in_turn and turn % 2 == 1)
        heappush(busy, (last[number], number))
    return tuple(offsets)


class _Gaps:
    """The free parts of a growing arena, no two adjacent."""

    def __init__(self, nbytes: int) -> None:
        self._end = 0
        self._stops: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        # Starts of gaps by size; starts of former gaps are dropped during lookup.
        self._by_size: dict[int, list[int]] = {}
        self._sizes: list[int] = []
        if nbytes:
            self._end = nbytes
            self._add(0, nbytes)

    def take(self, size: int, *, at_end: bool) -> int:
        """Return the offset of ``size`` bytes in the smallest sufficient gap; the arena grows if no gap suffices."""
        start = self._smallest(size)
        if start is None:
            # An insufficient gap at the end of the arena becomes the first part of the place.
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
        """Free a part again."""
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
            # A start is stale if its gap is gone or has another size by now.
            while starts and self._stops.get(starts[0]) != starts[0] + found:
                heappop(starts)
            if starts:
                return starts[0]
            del self._by_size[found], self._sizes[position]
        return None
