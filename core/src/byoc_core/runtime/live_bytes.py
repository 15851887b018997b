"""Live bytes at each point of time, with a query for the most live bytes in a range of points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from byoc_core.runtime.interval_index import Interval

__all__ = ["LiveBytes"]


class LiveBytes:
    """The sum of the bytes of all live buffers, by point.

    A segment tree over the start points: the most live bytes are always reached at a start. Every node holds the bytes
    added to all its points, and the maximum of its points with these bytes.

    Args:
        intervals: all possible buffers, each added once at most; none is live at first.
    """

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._points = sorted({interval.start for interval in intervals})
        # The leaves of the points stand between two leaves without points, as borders for queries.
        self._leaves = 1 << (len(self._points) + 1).bit_length()
        self._total = sum(interval.nbytes for interval in intervals)
        self._added = [0] * (2 * self._leaves)
        self._highest = [0] * (2 * self._leaves)

    def add(self, interval: Interval) -> None:
        """Add a buffer, in ``O(log n)``."""
        left, right = self._leaves_of(interval)
        first, last = left, right - 1
        while left < right:
            if left & 1:
                self._raise(left, interval.nbytes)
                left += 1
            if right & 1:
                right -= 1
                self._raise(right, interval.nbytes)
            left //= 2
            right //= 2
        for leaf in (first, last):
            node = leaf // 2
            while node:
                below = max(self._highest[2 * node], self._highest[2 * node + 1])
                self._highest[node] = below + self._added[node]
                node //= 2

    def peak(self, interval: Interval) -> int:
        """Return the most live bytes at a start from the start to the end of an interval, in ``O(log n)``."""
        left, right = self._leaves_of(interval)
        # The maxima beside the two borders, with all bytes added to the nodes above so far; negative without any node.
        lower = upper = -self._total
        left -= 1
        while left ^ right ^ 1:
            if not left & 1:
                lower = max(lower, self._highest[left + 1])
            if right & 1:
                upper = max(upper, self._highest[right - 1])
            left //= 2
            right //= 2
            lower += self._added[left]
            upper += self._added[right]
        highest = max(lower, upper)
        while left > 1:
            left //= 2
            highest += self._added[left]
        return highest

    def _leaves_of(self, interval: Interval) -> tuple[int, int]:
        first = self._leaves + 1
        return first + bisect_left(self._points, interval.start), first + bisect_right(self._points, interval.end)

    def _raise(self, node: int, nbytes: int) -> None:
        self._highest[node] += nbytes
        self._added[node] += nbytes
