"""Placement of buffers in several memories, such as a small fast memory and a large slow memory.

A buffer states its size, its live range, and the requirements on its memory. A pool states its limits. Pools come in
order of preference: :func:`plan_pools` puts often used buffers into the first pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from byoc_core.errors import InternalError, MemoryLimitError, OptionsError, near_names
from byoc_core.runtime.interval_index import Interval, IntervalIndex
from byoc_core.runtime.live_bytes import LiveBytes
from byoc_core.runtime.memory import ACCESSES, Pool, check_accesses, check_alignment
from byoc_core.runtime.place_laws import find_overlap
from byoc_core.runtime.plan_storage import StoragePlan, peak_nbytes, plan
from byoc_core.runtime.storage_gaps import lowest_gap

__all__ = ["ACCESSES", "Pool", "PoolBuffer", "PoolPlan", "plan_pools"]

_MAX_ROUNDS = 8
_PLAN_BUDGET = 3000
"""The number of buffers in all complete plans made in search of a place for a further buffer."""
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class PoolBuffer:
    """A buffer, live at every point from ``start`` to ``end``, both included.

    Attributes:
        nbytes: the size.
        start: the first point of the live range.
        end: the last point of the live range.
        alignment: a power of two: the alignment of the buffer's first byte.
        accesses: the required accesses: ``read`` for a constant, ``read`` and ``write`` for an intermediate.
        pools: the names of the permitted pools; ``None`` permits all pools.
        weight: the number of reads and writes of the whole buffer.
        name: the name in errors; a plan does not depend on names.

    Raises:
        OptionsError: a field has no meaning.
    """

    nbytes: int
    start: int
    end: int
    alignment: int = 1
    accesses: frozenset[str] = ACCESSES
    pools: tuple[str, ...] | None = None
    weight: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        """Check the fields."""
        where = f"buffer `{self.name}`"
        if self.nbytes < 0:
            raise OptionsError(where, "has a negative size", got=self.nbytes)
        if self.end < self.start:
            raise OptionsError(where, "ends before the start", got=f"{self.start} to {self.end}")
        if self.weight < 0:
            raise OptionsError(where, "has a negative weight", got=self.weight)
        object.__setattr__(self, "accesses", check_accesses(where, self.accesses))
        check_alignment(where, self.alignment)

    @property
    def interval(self) -> Interval:
        """Size and live range."""
        return Interval(self.nbytes, self.start, self.end)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The places of buffers.

    Attributes:
        pools: the index of the pool of each buffer, in the given order of buffers and pools.
        offsets: the offset of each buffer in its pool.
        nbytes: the bytes used of each pool.
        lower_bounds: for each pool, the peak of live bytes of the pool's buffers: no plan of these buffers is smaller.
    """

    pools: tuple[int, ...]
    offsets: tuple[int, ...]
    nbytes: tuple[int, ...]
    lower_bounds: tuple[int, ...]


def plan_pools(buffers: Sequence[PoolBuffer], pools: Sequence[Pool]) -> PoolPlan:
    """Return pool and offset of each buffer; simultaneously live buffers in a pool do not overlap.

    Buffers with the largest weight (bytes of traffic per byte of size) come first, short live ranges first among
    equals. Each buffer goes to the first permitted pool with a plan (:func:`~byoc_core.runtime.plan_storage.plan`) of
    the pool's buffers within the limit. If buffers are left over, the placement begins again with these buffers in
    front, a few times. The result depends on the buffers' order and fields except for the names. Each plan is proved:
    see :mod:`byoc_core.runtime.place_laws`.

    Args:
        buffers: the buffers.
        pools: the memories, in order of preference.

    Raises:
        OptionsError: two pools have the same name, or a buffer permits an unknown pool.
        MemoryLimitError: a buffer fits into no permitted pool; names pools, bytes needed, the lower bound, and the
            largest buffers at the peak.

    Cost: the cost of ``plan`` for each pool; with limits, also ``O(log n)`` and the number of buffers live at the same
    time for each buffer, and plans of a fixed number of buffers in total.
    """
    candidates = _candidates(buffers, pools)
    order = sorted(range(len(buffers)), key=lambda n: (*_rank(buffers[n]), n))
    intervals = [buffer.interval for buffer in buffers]
    budget = _PlanBudget(_PLAN_BUDGET)
    first_round = None
    for _ in range(_MAX_ROUNDS):
        contents = [_PoolContent(pool, intervals, budget) for pool in pools]
        left = [number for number in order if not any(contents[index].admit(number) for index in candidates[number])]
        if not left:
            return _proved(_finish(contents, len(buffers)), intervals, pools)
        # The first round follows the weights: its leftovers are easier to understand than later leftovers.
        first_round = first_round or (contents, left)
        is_left = frozenset(left)
        order = [*left, *(number for number in order if number not in is_left)]
    assert first_round is not None
    raise _limit_error(buffers, pools, candidates, *first_round)


def _rank(buffer: PoolBuffer) -> tuple[int, int, int, int]:
    return -buffer.weight, buffer.end - buffer.start, -buffer.nbytes, buffer.start


def _candidates(buffers: Sequence[PoolBuffer], pools: Sequence[Pool]) -> list[list[int]]:
    """Return the indexes of the possible pools of each buffer, whatever the limits.

    Raises:
        OptionsError: two pools have the same name, or a buffer permits an unknown pool.
        MemoryLimitError: a buffer has no possible pool.
    """
    names = [pool.name for pool in pools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise OptionsError(f"pool `{name}`", "is given twice", expected="a name for each pool")
    candidates = []
    for buffer in buffers:
        for name in buffer.pools or ():
            if name not in names:
                raise OptionsError(
                    f"buffer `{buffer.name}`",
                    f"permits the unknown pool `{name}`",
                    expected=", ".join(names) or "no pool at all",
                    hint=near_names(name, names) or None,
                )
        obstacles = {pool.name: _obstacle(buffer, pool) for pool in pools}
        candidates.append([index for index, name in enumerate(names) if obstacles[name] is None])
        if not candidates[-1]:
            reasons = "; ".join(f"pool `{name}` {reason}" for name, reason in obstacles.items())
            raise MemoryLimitError(f"buffer `{buffer.name}`", f"has no possible pool: {reasons or 'no pool is given'}")
    return candidates


def _obstacle(buffer: PoolBuffer, pool: Pool) -> str | None:
    """Return the reason against a buffer in an empty pool; ``None`` without a reason."""
    if buffer.pools is not None and pool.name not in buffer.pools:
        return "is not permitted"
    if not buffer.accesses <= pool.accesses:
        return f"has no access to {' and '.join(sorted(buffer.accesses - pool.accesses))}"
    if buffer.alignment > pool.alignment:
        return f"is aligned to {pool.alignment}, not {buffer.alignment}"
    if pool.nbytes is not None and buffer.nbytes > pool.nbytes:
        return f"has {pool.nbytes:,} bytes, not {buffer.nbytes:,}"
    return None


@dataclass(slots=True)
class _PlanBudget:
    """The number of buffers that complete plans may still place.

    Attributes:
        left: the number.
    """

    left: int

    def spend(self, num_buffers: int) -> bool:
        """Return whether a plan of some buffers is within the budget; if so, the plan is counted."""
        if num_buffers > self.left:
            return False
        self.left -= num_buffers
        return True


class _PoolContent:
    """The buffers of a pool, with places."""

    def __init__(self, pool: Pool, intervals: Sequence[Interval], budget: _PlanBudget) -> None:
        self._pool = pool
        self._all = intervals
        self._budget = budget
        self._placed = IntervalIndex(intervals)
        self._live = LiveBytes(intervals)
        self.offsets: dict[int, int] = {}

    @property
    def intervals(self) -> list[Interval]:
        return [self._all[number] for number in self.offsets]

    def admit(self, number: int) -> bool:
        """Add a buffer if a plan of all buffers is within the limit; return whether the buffer is added."""
        interval, limit = self._all[number], self._pool.nbytes
        if limit is None or not interval.nbytes:
            self.offsets[number] = 0  # without a limit, all places come from the final plan
            return True
        if self._live.peak(interval) + interval.nbytes > limit:
            return False
        offset = self._gap(number)
        if offset + interval.nbytes <= limit:
            self.offsets[number] = offset
        elif not self._plan_with(number, limit):
            return False
        self._placed.add(number)
        self._live.add(interval)
        return True

    def plan(self) -> StoragePlan:
        """Return the smallest known plan of the buffers, in order of admission."""
        intervals = self.intervals
        planned = plan(intervals, self._pool.alignment)
        if self._pool.nbytes is None:
            return planned
        ends = (offset + interval.nbytes for offset, interval in zip(self.offsets.values(), intervals, strict=True))
        admitted = StoragePlan(tuple(self.offsets.values()), max(ends, default=0))
        return min(planned, admitted, key=lambda found: found.total)

    def _plan_with(self, number: int, limit: int) -> bool:
        """Place all buffers again, and one more; return whether a plan within the limit is found."""
        numbers = (*self.offsets, number)
        if not self._budget.spend(len(numbers)):
            return False
        offsets, total = plan([self._all[n] for n in numbers], self._pool.alignment, sufficient_nbytes=limit)
        if total > limit:
            return False
        self.offsets = dict(zip(numbers, offsets, strict=True))
        return True

    def _gap(self, number: int) -> int:
        """Return the lowest offset for a buffer beside the present places."""
        alignment = self._pool.alignment
        # All gaps begin at multiples of the alignment.
        occupied = (
            (self.offsets[other], self.offsets[other] + -(-self._all[other].nbytes // alignment) * alignment)
            for other in self._placed.overlapping(number)
        )
        return lowest_gap(sorted(occupied), self._all[number].nbytes)


def _finish(contents: Iterable[_PoolContent], num_buffers: int) -> PoolPlan:
    pools, offsets = [0] * num_buffers, [0] * num_buffers
    totals, lower_bounds = [], []
    for index, content in enumerate(contents):
        found = content.plan()
        for number, offset in zip(content.offsets, found.offsets, strict=True):
            pools[number], offsets[number] = index, offset
        totals.append(found.total)
        lower_bounds.append(peak_nbytes(content.intervals))
    return PoolPlan(tuple(pools), tuple(offsets), tuple(totals), tuple(lower_bounds))


def _proved(found: PoolPlan, intervals: Sequence[Interval], pools: Sequence[Pool]) -> PoolPlan:
    """Return a plan without overlaps and within the limits.

    Raises:
        InternalError: the plan breaks a law.
    """
    for index, pool in enumerate(pools):
        numbers = [number for number, home in enumerate(found.pools) if home == index]
        offsets = [found.offsets[number] for number in numbers]
        overlap = find_overlap([intervals[number] for number in numbers], offsets)
        end = max((found.offsets[number] + intervals[number].nbytes for number in numbers), default=0)
        is_inside = all(offset >= 0 and offset % pool.alignment == 0 for offset in offsets)
        limit = found.nbytes[index] if pool.nbytes is None else min(pool.nbytes, found.nbytes[index])
        if overlap is not None or not is_inside or end > limit:
            raise InternalError(f"pool `{pool.name}`", "has a plan with overlaps, or beyond the limit", got=offsets)
    return found


def _limit_error(
    buffers: Sequence[PoolBuffer],
    pools: Sequence[Pool],
    candidates: Sequence[Sequence[int]],
    contents: Sequence[_PoolContent],
    left: Sequence[int],
) -> MemoryLimitError:
    """Return the error for buffers without a place: the state of each possible pool, with these buffers added."""
    indexes = sorted({index for number in left for index in candidates[number]})
    lines = []
    for index in indexes:
        pool = pools[index]
        numbers = sorted({*contents[index].offsets, *(n for n in left if index in candidates[n])})
        intervals = [buffers[number].interval for number in numbers]
        needed, lower_bound = plan(intervals, pool.alignment).total, peak_nbytes(intervals)
        lines.append(
            f"pool `{pool.name}`: {needed:,} bytes needed (lower bound {lower_bound:,}), limit {pool.nbytes:,} bytes"
        )
        lines.append(f"  largest buffers at the peak: {_describe_peak([buffers[number] for number in numbers])}")
    names = ", ".join(f"`{pools[index].name}`" for index in indexes)
    return MemoryLimitError(
        f"pool{'s' if len(indexes) > 1 else ''} {names}",
        f"too small for {_count(len(left))}: {_name_some([buffers[number] for number in left])}",
        hint="Raise the limit of a pool, or add a pool.",
        detail="\n".join(lines),
    )


def _describe_peak(buffers: Sequence[PoolBuffer]) -> str:
    """Return the largest buffers at the point with the most live bytes."""

    def live_at(point: int) -> list[PoolBuffer]:
        return [buffer for buffer in buffers if buffer.start <= point <= buffer.end]

    points = sorted({buffer.start for buffer in buffers})
    peak = max(points, key=lambda point: sum(buffer.nbytes for buffer in live_at(point)))
    return f"{_name_some(live_at(peak))}, at point {peak}"


def _name_some(buffers: Sequence[PoolBuffer]) -> str:
    """Return names and sizes of the largest buffers."""
    ordered = sorted(buffers, key=lambda buffer: -buffer.nbytes)
    names = [f"`{buffer.name}` ({buffer.nbytes:,} bytes)" for buffer in ordered[:_MAX_NAMED]]
    return ", ".join([*names, f"{len(ordered) - _MAX_NAMED} more"] if len(ordered) > _MAX_NAMED else names)


def _count(number: int) -> str:
    return f"{number} buffer{'' if number == 1 else 's'}"
