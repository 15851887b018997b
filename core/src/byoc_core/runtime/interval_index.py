"""Live ranges of buffers, and a set of these with a query for the buffers live at the same time as a given buffer."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Interval", "IntervalIndex"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A buffer of ``nbytes`` bytes, live at every point from ``start`` to ``end``, both included."""

    nbytes: int
    start: int
    end: int


class IntervalIndex:
    """A set of intervals with a query for all intervals that overlap a given interval, in ``O(log n + answers)``.

    A segment tree over the start points finds the intervals containing the given start; a sorted list finds the
    intervals starting later.

    Args:
        intervals: all intervals, by number; the set is empty at first.
    """

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._intervals = intervals
        self._points = sorted({interval.start for interval in intervals})
        self._leaves = 1 << max(len(self._points) - 1, 0).bit_length()
        self._nodes: list[list[int]] = [[] for _ in range(2 * self._leaves)]
        self._starts: list[tuple[int, int]] = []

    def add(self, number: int) -> None:
        """Add an interval to the set, by its number."""
        interval = self._intervals[number]
        insort(self._starts, (interval.start, number))
        left = self._leaves + bisect_left(self._points, interval.start)
        right = self._leaves + bisect_right(self._points, interval.end)
        # O(log n) nodes cover exactly the start points inside the interval.
        while left < right:
            if left & 1:
                self._nodes[left].append(number)
                left += 1
            if right & 1:
                right -= 1
                self._nodes[right].append(number)
            left //= 2
            right //= 2

    def overlapping(self, number: int) -> list[int]:
        """Return the numbers of the intervals in the set that overlap an interval, in no special order."""
        interval = self._intervals[number]
        found: list[int] = []
        node = self._leaves + bisect_left(self._points, interval.start)
        # The nodes above a start point hold exactly the intervals containing the point.
        while node:
            found += self._nodes[node]
            node //= 2
        # The other overlapping intervals start later, up to the end; -1 sorts before every number.
        first = bisect_left(self._starts, (interval.start + 1, -1))
        last = bisect_left(self._starts, (interval.end + 1, -1))
        found += (other for _, other in self._starts[first:last])
        return found
