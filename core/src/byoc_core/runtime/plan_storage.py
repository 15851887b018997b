"""Storage plans for buffers with different live ranges.

Sizes are known here; :mod:`byoc_core.runtime.symbolic_storage` handles symbolic sizes. Lowering places the registers of
a program in the arena by :func:`plan`; the numpy host places values in the workspace by :func:`plan_once`. An overlap
of live buffers would give wrong results. A smaller arena is the only gain from a better search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, product
from typing import NamedTuple

from byoc_core.runtime.climb_storage import climb
from byoc_core.runtime.interval_index import Interval, IntervalIndex
from byoc_core.runtime.storage_gaps import highest_gap, lowest_gap
from byoc_core.runtime.sweep_storage import sweep

__all__ = ["Interval", "StoragePlan", "peak_nbytes", "plan", "plan_once"]


_MAX_REPAIRS = 16
_REPAIR_BUDGET = 5000
_PAIR_BUDGET = 2_000_000
"""The number of pairs of simultaneously live buffers that all greedy placements together may examine."""
_MAX_STEPS = 300
_CLIMB_BUDGET = 300_000
"""The number of buffers and pairs of simultaneously live buffers that each hill climb may examine."""


class StoragePlan(NamedTuple):
    """The places of buffers.

    Attributes:
        offsets: the offset of each buffer, in the given order.
        total: bytes of the arena.
    """

    offsets: tuple[int, ...]
    total: int


def plan(intervals: Sequence[Interval], alignment: int = 64, sufficient_nbytes: int = 0) -> StoragePlan:
    """Return offsets for buffers in a small arena; simultaneously live buffers do not overlap.

    Greedy: one buffer after the other goes to the lowest offset with enough space among the placed buffers live at the
    same time. The orders are: largest first; then earliest first, from both ends of an arena of the peak's size in
    turn; then largest in bytes times duration; then earliest first; then most conflicting bytes first (bytes of the
    other buffers live at the same time). With few buffers, the buffers ending at the arena's top are placed again
    before all others, a few times over. Hill climbs (:func:`~byoc_core.runtime.climb_storage.climb`) then swap buffers
    in two orders: most conflicting bytes first, and lowest offset in the best plan first. With too many simultaneously
    live buffers for these methods, sweeps over time (:func:`~byoc_core.runtime.sweep_storage.sweep`) replace the
    placements. The smallest arena wins, and the search stops at the peak of live bytes. The result depends on sizes,
    intervals and order only.

    Args:
        intervals: the buffers.
        alignment: every offset is a multiple of the alignment.
        sufficient_nbytes: the search stops at an arena of this size too.

    Cost: ``O(n log n)`` plus, for each buffer, the number of buffers live at the same time, up to a fixed total.
    """
    sizes = [-(-interval.nbytes // alignment) * alignment for interval in intervals]
    lower_bound = peak_nbytes(intervals, alignment)
    sufficient = max(lower_bound, sufficient_nbytes)
    # A plan without any sharing, always valid.
    best = StoragePlan(tuple(accumulate(sizes, initial=0))[:-1], sum(sizes))
    num_pairs = _count_pairs(intervals)
    # A placement examines each pair once, when the second buffer of the pair is placed.
    placements = _PAIR_BUDGET // (num_pairs + 1)
    for order, ceiling in _greedy_orders(intervals, sizes, lower_bound):
        rounds = 1 if ceiling is not None else 1 + min(_MAX_REPAIRS, _REPAIR_BUDGET // (len(intervals) + 1))
        rounds = min(rounds, placements)
        if not rounds or best.total <= sufficient:
            break
        placements -= rounds
        best = min(best, _place_repeatedly(intervals, sizes, order, ceiling, rounds), key=_arena_size)
    # The budget is spent, or too small for a single placement.
    if not placements:
        best = min((best, *_sweeps(intervals, sizes, lower_bound)), key=_arena_size)
    num_steps = min(_MAX_STEPS, _CLIMB_BUDGET // (num_pairs + len(intervals) + 1))
    if num_steps and best.total > sufficient:
        best = _climb_twice(intervals, sizes, best, sufficient, num_steps)
    return _without_padding(best, intervals)


def plan_once(intervals: Sequence[Interval], alignment: int = 64) -> StoragePlan:
    """Return a plan of a single placement: a somewhat larger arena than from :func:`plan`, in a fraction of the time.

    The order is largest in bytes times duration first: no other single order comes closer to the peak. With too many
    simultaneously live buffers, sweeps over time are used.

    Cost: ``O(n log n)`` plus, for each buffer, the number of buffers live at the same time, up to a fixed total.
    """
    sizes = [-(-interval.nbytes // alignment) * alignment for interval in intervals]
    if _count_pairs(intervals) > _PAIR_BUDGET:
        best = min(_sweeps(intervals, sizes, peak_nbytes(intervals, alignment)), key=_arena_size)
    else:
        areas = [size * (interval.end - interval.start + 1) for size, interval in zip(sizes, intervals, strict=True)]
        best = _place_in_order(
            intervals, sizes, sorted(range(len(sizes)), key=lambda number: (-areas[number], number)), None
        )
    return _without_padding(best, intervals)


def _greedy_orders(
    intervals: Sequence[Interval], sizes: Sequence[int], lower_bound: int
) -> Iterator[tuple[list[int], int | None]]:
    """Yield the orders of greedy placement, each with the ceiling of the placement from both ends, if any."""
    numbers = range(len(sizes))
    yield sorted(numbers, key=lambda n: (-sizes[n], intervals[n].start, n)), None
    by_start = sorted(numbers, key=lambda n: (intervals[n].start, -sizes[n], n))
    # Chains fit into the peak when their buffers come from both ends in turn.
    yield by_start, lower_bound
    yield sorted(numbers, key=lambda n: (-sizes[n] * (intervals[n].end - intervals[n].start + 1), n)), None
    yield by_start, None
    yield _order_by_conflicts(intervals, sizes), None


def _order_by_conflicts(intervals: Sequence[Interval], sizes: Sequence[int]) -> list[int]:
    """Return the buffers by the bytes of all buffers live at the same time, most bytes first, in ``O(n log n)``."""
    starting = _SizeSums((interval.start for interval in intervals), sizes)
    ending = _SizeSums((interval.end for interval in intervals), sizes)
    conflicting_nbytes = [starting.up_to(interval.end) - ending.up_to(interval.start - 1) for interval in intervals]
    return sorted(range(len(sizes)), key=lambda n: (-conflicting_nbytes[n], -sizes[n], n))


def _climb_twice(
    intervals: Sequence[Interval], sizes: Sequence[int], best: StoragePlan, goal: int, num_steps: int
) -> StoragePlan:
    """Return the smallest of a plan and the plans of hill climbs from two orders."""
    spans = [(interval.start, interval.end) for interval in intervals]
    # Placement in ascending order of offsets never gives a larger arena than the offsets.
    for order in (_order_by_conflicts(intervals, sizes), sorted(range(len(sizes)), key=best.offsets.__getitem__)):
        offsets = climb(spans, sizes, order, goal, num_steps)
        total = max(offset + size for offset, size in zip(offsets, sizes, strict=True))
        best = min(best, StoragePlan(offsets, total), key=_arena_size)
        if best.total <= goal:
            break
    return best


def _without_padding(found: StoragePlan, intervals: Sequence[Interval]) -> StoragePlan:
    """Return a plan without the unneeded padding of the last buffer."""
    ends = (offset + interval.nbytes for offset, interval in zip(found.offsets, intervals, strict=True))
    return StoragePlan(found.offsets, max(ends, default=0))


def peak_nbytes(intervals: Iterable[Interval], alignment: int = 1) -> int:
    """Return the peak of live bytes, each size rounded up to the alignment: no plan is smaller."""
    changes: dict[int, int] = {}
    for interval in intervals:
        size = -(-interval.nbytes // alignment) * alignment
        changes[interval.start] = changes.get(interval.start, 0) + size
        # The buffer is still live at its end.
        changes[interval.end + 1] = changes.get(interval.end + 1, 0) - size
    peak = live = 0
    for point in sorted(changes):
        live += changes[point]
        peak = max(peak, live)
    return peak


def _count_pairs(intervals: Iterable[Interval]) -> int:
    """Return the number of pairs of simultaneously live buffers."""
    ordered = sorted((interval.start, interval.end) for interval in intervals)
    starts = [start for start, _ in ordered]
    # Each pair counts at its first buffer in this order: the second buffer starts no later than the first ends.
    return sum(bisect_right(starts, end) - index - 1 for index, (_, end) in enumerate(ordered))


def _sweeps(intervals: Sequence[Interval], sizes: Sequence[int], ceiling: int) -> Iterator[StoragePlan]:
    """Yield the plans from sweeps over time, until an arena is hardly larger than the ceiling."""
    spans = [(interval.start, interval.end) for interval in intervals]
    for in_turn, backwards in product((True, False), repeat=2):
        offsets = sweep(spans, sizes, ceiling, in_turn=in_turn, backwards=backwards)
        total = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
        yield StoragePlan(offsets, total)
        if total <= ceiling + ceiling // 64:
            return


def _arena_size(found: StoragePlan) -> int:
    return found.total


def _place_repeatedly(
    intervals: Sequence[Interval], sizes: Sequence[int], order: Sequence[int], ceiling: int | None, rounds: int
) -> StoragePlan:
    """Return the smallest plan of some rounds; each round places the topmost buffers of the last round first."""
    best = found = _place_in_order(intervals, sizes, order, ceiling)
    for _ in range(rounds - 1):
        is_top = [size > 0 and offset + size == found.total for size, offset in zip(sizes, found.offsets, strict=True)]
        moved = [n for n in order if is_top[n]] + [n for n in order if not is_top[n]]
        # The same order gives the same plan in all further rounds.
        if moved == list(order):
            break
        order = moved
        found = _place_in_order(intervals, sizes, order, ceiling)
        best = min(best, found, key=_arena_size)
    return best


def _place_in_order(
    intervals: Sequence[Interval], sizes: Sequence[int], order: Sequence[int], ceiling: int | None
) -> StoragePlan:
    """Place buffers in this order at the lowest sufficient gap.

    With a ceiling, every second buffer goes to the highest sufficient gap below the ceiling, if any.
    """
    offsets = [0] * len(intervals)
    total = 0
    placed = IntervalIndex(intervals)
    for turn, number in enumerate(order):
        size = sizes[number]
        if not size:
            continue
        occupied = sorted((offsets[i], offsets[i] + sizes[i]) for i in placed.overlapping(number))
        offset = highest_gap(occupied, size, ceiling) if ceiling is not None and turn % 2 else None
        offsets[number] = offset = lowest_gap(occupied, size) if offset is None else offset
        total = max(total, offset + size)
        placed.add(number)
    return StoragePlan(tuple(offsets), total)


class _SizeSums:
    """Sums of sizes by points."""

    def __init__(self, points: Iterable[int], sizes: Sequence[int]) -> None:
        ordered = sorted(zip(points, sizes, strict=True))
        self._points = [point for point, _ in ordered]
        self._sums = list(accumulate((size for _, size in ordered), initial=0))

    def up_to(self, point: int) -> int:
        """Return the sum of the sizes at points up to a point, the point included."""
        return self._sums[bisect_right(self._points, point)]
