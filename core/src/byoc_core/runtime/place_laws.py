"""The law of all memory plans: two buffers live at the same time share no bytes.

The proof knows no planner: buffers in order of the live ranges' starts, and the live buffers in order of addresses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from byoc_core.runtime.interval_index import Interval

__all__ = ["find_overlap"]


def find_overlap(intervals: Sequence[Interval], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Return the numbers of two buffers with common bytes at a point of their live ranges; ``None`` without such two.

    Args:
        intervals: sizes and live ranges.
        offsets: the first byte of each buffer, in one memory.

    Cost: ``O(n log n)``, and moves in a list of the live buffers.
    """
    live: list[tuple[int, int]] = []  # offset and number, disjoint
    ends: list[tuple[int, int]] = []  # end of the live range, and number
    for number in sorted(range(len(intervals)), key=lambda n: (intervals[n].start, n)):
        interval, offset = intervals[number], offsets[number]
        if not interval.nbytes:
            continue
        while ends and ends[0][0] < interval.start:
            _, ended = heappop(ends)
            del live[bisect_left(live, (offsets[ended], ended))]
        index = bisect_left(live, (offset, number))
        if index and live[index - 1][0] + intervals[live[index - 1][1]].nbytes > offset:
            return live[index - 1][1], number
        if index < len(live) and live[index][0] < offset + interval.nbytes:
            return live[index][1], number
        live.insert(index, (offset, number))
        heappush(ends, (interval.end, number))
    return None
