"""The storage planner against the docstrings, without any index: on a list of placed buffers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from byoc_core.runtime import plan_storage
from byoc_core.runtime.climb_storage import climb
from byoc_core.runtime.plan_storage import Interval, StoragePlan, peak_nbytes, plan, plan_once
from byoc_core.runtime.storage_gaps import highest_gap, lowest_gap
from byoc_core.runtime.sweep_storage import sweep
from hypothesis import given, settings
from hypothesis import strategies as st

Place = tuple[int, int]


def random_intervals(rng: random.Random) -> list[Interval]:
    points, longest, most = rng.choice([6, 12, 20]), rng.choice([0, 2, 6]), rng.choice([3, 9, 200])
    intervals = []
    for _ in range(rng.choice([0, 1, 2, 5, 9, 14, 20])):
        start = rng.randrange(points)
        intervals.append(Interval(rng.randint(0, most), start, start + rng.randint(0, longest)))
    return intervals


def meet(left: Interval, right: Interval) -> bool:
    return left.start <= right.end and right.start <= left.end


def num_pairs(intervals: Sequence[Interval]) -> int:
    return sum(meet(left, right) for at, left in enumerate(intervals) for right in intervals[:at])


def peak(intervals: Sequence[Interval], sizes: Sequence[int]) -> int:
    live = (
        sum(
            size
            for size, interval in zip(sizes, intervals, strict=True)
            if interval.start <= other.start <= interval.end
        )
        for other in intervals
    )
    return max(live, default=0)


def is_free(offset: int, size: int, taken: Iterable[Place]) -> bool:
    return all(offset + size <= start or stop <= offset for start, stop in taken)


def place(intervals: Sequence[Interval], sizes: Sequence[int], order: Iterable[int], ceiling: int | None) -> list[int]:
    """Place buffers in this order at the lowest offset; with a ceiling, every second at the highest offset below."""
    offsets = [0] * len(intervals)
    placed: list[int] = []
    for turn, number in enumerate(order):
        size = sizes[number]
        if not size:
            continue
        taken = [(offsets[i], offsets[i] + sizes[i]) for i in placed if meet(intervals[i], intervals[number])]
        low = [offset for offset in (0, *(stop for _, stop in taken)) if is_free(offset, size, taken)]
        high: list[int] = []
        if ceiling is not None and turn % 2:
            tops = (ceiling, *(start for start, _ in taken))
            high = [top - size for top in tops if size <= top <= ceiling and is_free(top - size, size, taken)]
        offsets[number] = max(high) if high else min(low)
        placed.append(number)
    return offsets


def top_of(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)


def rounds_of(
    intervals: Sequence[Interval], sizes: Sequence[int], order: list[int], ceiling: int | None, count: int
) -> Iterator[list[int]]:
    """Return the placements of some rounds; each begins with the buffers at the top in the round before."""
    for _ in range(count):
        offsets = place(intervals, sizes, order, ceiling)
        yield offsets
        top = top_of(offsets, sizes)
        highest = [n for n in order if sizes[n] and offsets[n] + sizes[n] == top]
        again = highest + [n for n in order if n not in highest]
        if again == order:
            return
        order = again


def swept(
    spans: Sequence[Place], sizes: Sequence[int], ceiling: int, *, in_turn: bool, backwards: bool
) -> tuple[int, ...]:
    """Do as described for :func:`sweep`, with a search for gaps among all live buffers."""
    if backwards:
        spans = [(-end, -start) for start, end in spans]
    offsets = [0] * len(sizes)
    arena = ceiling
    placed: list[int] = []
    order = sorted((n for n in range(len(sizes)) if sizes[n]), key=lambda n: (spans[n][0], -sizes[n], n))
    for turn, number in enumerate(order):
        size = sizes[number]
        live = sorted((offsets[n], offsets[n] + sizes[n]) for n in placed if spans[n][1] >= spans[number][0])
        stops = [0, *(stop for _, stop in live)]
        starts = [*(start for start, _ in live), arena]
        gaps = [(start - stop, stop) for stop, start in zip(stops, starts, strict=True) if start > stop]
        fitting = [gap for gap in gaps if gap[0] >= size]
        if fitting:
            free, offset = min(fitting)
            offsets[number] = offset + (free - size if in_turn and turn % 2 else 0)
        else:
            offsets[number] = stops[-1]
            arena = stops[-1] + size
        placed.append(number)
    return tuple(offsets)


def sweeps(intervals: Sequence[Interval], sizes: Sequence[int], least: int) -> Iterator[list[int]]:
    """Return the placements by sweeps, up to the first at most a 64th above the peak."""
    spans = [(interval.start, interval.end) for interval in intervals]
    for in_turn in (True, False):
        for backwards in (True, False):
            offsets = swept(spans, sizes, least, in_turn=in_turn, backwards=backwards)
            yield list(offsets)
            if 64 * (top_of(offsets, sizes) - least) <= least:
                return


def climbed(
    spans: Sequence[Place], sizes: Sequence[int], order: Sequence[int], goal: int, num_steps: int
) -> tuple[int, ...]:
    """Do as described for :func:`climb`: each step places all buffers again."""
    intervals = [Interval(size, start, end) for size, (start, end) in zip(sizes, spans, strict=True)]
    neighbours = [
        sorted(
            (n for n in range(len(sizes)) if n != number and meet(intervals[n], intervals[number])),
            key=lambda n: (spans[n], n),
        )
        for number in range(len(sizes))
    ]
    order = list(order)
    offsets = place(intervals, sizes, order, None)
    state = 1

    def pick(numbers: Sequence[int]) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        return numbers[(state >> 32) * len(numbers) // (1 << 32)]

    for _ in range(num_steps):
        total = top_of(offsets, sizes)
        if total <= goal:
            break
        number = pick([n for n in order if offsets[n] + sizes[n] == total])
        earlier = order[: order.index(number)]
        near = [n for n in neighbours[number] if n in earlier]
        near += [n for other in near for n in neighbours[other] if n in earlier]
        if not near:
            break
        other = pick(list(dict.fromkeys(near)))
        swapped = [{number: other, other: number}.get(n, n) for n in order]
        tried = place(intervals, sizes, swapped, None)
        if top_of(tried, sizes) <= total:
            order, offsets = swapped, tried
    return tuple(offsets)


def conflicts_first(intervals: Sequence[Interval], sizes: Sequence[int]) -> list[int]:
    def conflicting_nbytes(number: int) -> int:
        return sum(size for size, interval in zip(sizes, intervals, strict=True) if meet(interval, intervals[number]))

    return sorted(range(len(sizes)), key=lambda n: (-conflicting_nbytes(n), -sizes[n], n))


def expected_plan(
    intervals: Sequence[Interval], alignment: int, pairs: int, repairs: int, climbs: int = 0
) -> StoragePlan:
    """Do as described for :func:`plan`."""
    sizes = [(interval.nbytes + alignment - 1) // alignment * alignment for interval in intervals]
    least = peak(intervals, sizes)
    numbers = range(len(sizes))
    largest = sorted(numbers, key=lambda n: (-sizes[n], intervals[n].start, n))
    earliest = sorted(numbers, key=lambda n: (intervals[n].start, -sizes[n], n))
    by_area = sorted(numbers, key=lambda n: (-sizes[n] * (intervals[n].end + 1 - intervals[n].start), n))
    left = pairs // (num_pairs(intervals) + 1)
    best = [sum(sizes[:number]) for number in numbers]
    conflicting = conflicts_first(intervals, sizes)
    tries = ((largest, None), (earliest, least), (by_area, None), (earliest, None), (conflicting, None))
    for order, ceiling in tries:
        count = min(left, 1 if ceiling is not None else 1 + min(16, repairs // (len(sizes) + 1)))
        if not count or top_of(best, sizes) == least:
            break
        left -= count
        best = min((best, *rounds_of(intervals, sizes, order, ceiling, count)), key=lambda found: top_of(found, sizes))
    if not left:
        best = min((best, *sweeps(intervals, sizes, least)), key=lambda found: top_of(found, sizes))
    num_steps = min(300, climbs // (num_pairs(intervals) + len(sizes) + 1))
    spans = [(interval.start, interval.end) for interval in intervals]
    for again in (False, True):
        if num_steps and top_of(best, sizes) > least:
            before = best
            order = sorted(numbers, key=lambda n: (before[n], n)) if again else conflicting
            found = list(climbed(spans, sizes, order, least, num_steps))
            best = min((best, found), key=lambda found: top_of(found, sizes))
    return finished(best, intervals)


def expected_plan_once(
    intervals: Sequence[Interval], alignment: int, pairs: int, _repairs: int, _climbs: int
) -> StoragePlan:
    """Do as described for :func:`plan_once`."""
    sizes = [(interval.nbytes + alignment - 1) // alignment * alignment for interval in intervals]
    if num_pairs(intervals) > pairs:
        found = min(sweeps(intervals, sizes, peak(intervals, sizes)), key=lambda found: top_of(found, sizes))
    else:
        areas = [size * (interval.end + 1 - interval.start) for size, interval in zip(sizes, intervals, strict=True)]
        found = place(intervals, sizes, sorted(range(len(sizes)), key=lambda n: (-areas[n], n)), None)
    return finished(found, intervals)


def finished(offsets: Sequence[int], intervals: Sequence[Interval]) -> StoragePlan:
    return StoragePlan(tuple(offsets), top_of(offsets, [interval.nbytes for interval in intervals]))


@pytest.mark.parametrize(("planner", "expected"), [(plan, expected_plan), (plan_once, expected_plan_once)])
def test_a_plan_is_what_the_docstring_says(
    planner: Callable[..., StoragePlan], expected: Callable[..., StoragePlan]
) -> None:
    for seed in range(10 * settings().max_examples):
        rng = random.Random(seed)
        intervals = random_intervals(rng)
        alignment = rng.choice([1, 1, 16])
        count = num_pairs(intervals)
        per_round = count + 1
        pairs = rng.choice(
            [2_000_000, 2_000_000, count, max(count - 1, 0), 3 * per_round, 18 * per_round, 20 * per_round]
        )
        repairs = rng.choice([5000, 0, 2 * len(intervals), 2 * len(intervals) + 2, 3 * len(intervals) + 1])
        climbs = rng.choice([0, per_round + len(intervals) - 1, 9 * (per_round + len(intervals)), 300_000])
        with patch.multiple(plan_storage, _PAIR_BUDGET=pairs, _REPAIR_BUDGET=repairs, _CLIMB_BUDGET=climbs):
            found = planner(intervals, alignment)
        assert found == expected(intervals, alignment, pairs, repairs, climbs), f"seed {seed}"


def test_each_try_of_a_plan_is_what_the_docstring_says() -> None:
    """A plan shows the best of all tries only."""
    for seed in range(10 * settings().max_examples):
        rng = random.Random(seed)
        intervals = random_intervals(rng)
        sizes = [interval.nbytes for interval in intervals]
        order = rng.sample(range(len(sizes)), len(sizes))
        least = peak(intervals, sizes)
        ceiling = rng.choice([None, least, least + rng.randint(0, 9), 64 * least])
        count = rng.choice([1, 2, 3, 6])
        rounds = list(rounds_of(intervals, sizes, order, ceiling, count))
        found = plan_storage._place_repeatedly(intervals, sizes, order, ceiling, count)
        best = min(rounds, key=lambda offsets: top_of(offsets, sizes))
        assert found == StoragePlan(tuple(best), top_of(best, sizes)), f"seed {seed}"
        first = plan_storage._place_in_order(intervals, sizes, order, ceiling)
        assert first == StoragePlan(tuple(rounds[0]), top_of(rounds[0], sizes)), f"seed {seed}"
        for goal in (least, rng.randint(0, 300)):
            swept_plans = [(list(offsets), total) for offsets, total in plan_storage._sweeps(intervals, sizes, goal)]
            assert swept_plans == [(offsets, top_of(offsets, sizes)) for offsets in sweeps(intervals, sizes, goal)]


def test_all_placements_together_keep_to_the_budget_and_use_it() -> None:
    for seed in range(settings().max_examples):
        rng = random.Random(seed)
        intervals = [interval for interval in random_intervals(rng) if interval.nbytes]
        per_round = num_pairs(intervals) + 1
        repairs = rng.randint(0, 9)
        budget = per_round * rng.randint(0, 40) + rng.randrange(per_round)
        rounds: list[int] = []

        def place_badly(*arguments: Any, taken: list[int] = rounds) -> StoragePlan:
            taken.append(arguments[-1])
            return StoragePlan((0,) * len(arguments[0]), 1 << 40)

        per_buffer = len(intervals) + 1
        room = repairs * per_buffer + rng.randrange(per_buffer)
        budgets: dict[str, Any] = {"_PAIR_BUDGET": budget, "_REPAIR_BUDGET": room, "_CLIMB_BUDGET": 0}
        with patch.multiple(plan_storage, _place_repeatedly=place_badly, **budgets):
            plan(intervals, 1)
        if sum(interval.nbytes for interval in intervals) > peak_nbytes(intervals):
            assert sum(rounds) == min(budget // per_round, 1 + 4 * (1 + repairs)), f"seed {seed}"


def test_a_climb_is_what_the_docstring_says() -> None:
    for seed in range(10 * settings().max_examples):
        rng = random.Random(seed)
        intervals = random_intervals(rng)
        spans = [(interval.start, interval.end) for interval in intervals]
        sizes = [interval.nbytes for interval in intervals]
        order = rng.sample(range(len(sizes)), len(sizes))
        goal = rng.choice([0, peak(intervals, sizes)])
        num_steps = rng.choice([0, 1, 2, 9, 40])
        assert climb(spans, sizes, order, goal, num_steps) == climbed(spans, sizes, order, goal, num_steps), seed


def test_a_climb_ends_at_the_goal_or_lower_than_at_the_start() -> None:
    """Of random orders, half of the climbs and more must gain: a climb without a step would not."""
    gains = []
    for seed in range(40):
        rng = random.Random(seed)
        intervals = [Interval(rng.randint(1, 99), start, start + rng.randint(0, 6)) for start in range(20)]
        spans = [(interval.start, interval.end) for interval in intervals]
        sizes = [interval.nbytes for interval in intervals]
        order = rng.sample(range(20), 20)
        first, last = (top_of(climb(spans, sizes, order, 0, steps), sizes) for steps in (0, 100))
        assert last <= first
        gains.append(last < first)
    assert sum(gains) > len(gains) // 2


def test_a_sweep_is_what_the_docstring_says() -> None:
    for seed in range(20 * settings().max_examples):
        rng = random.Random(seed)
        intervals = random_intervals(rng)
        spans = [(interval.start, interval.end) for interval in intervals]
        sizes = [interval.nbytes for interval in intervals]
        ceiling = rng.choice([0, 1, peak(intervals, sizes), 5, 300])
        ways = {"in_turn": rng.random() < 0.5, "backwards": rng.random() < 0.5}
        assert sweep(spans, sizes, ceiling, **ways) == swept(spans, sizes, ceiling, **ways), f"seed {seed}"


def test_the_peak_is_the_most_that_is_needed_at_one_point() -> None:
    for seed in range(settings().max_examples):
        intervals = random_intervals(random.Random(seed))
        assert peak_nbytes(intervals) == peak(intervals, [interval.nbytes for interval in intervals])
        assert peak_nbytes(intervals, 16) == peak(intervals, [-(-interval.nbytes // 16) * 16 for interval in intervals])


@pytest.mark.parametrize("planner", [plan, plan_once])
def test_offsets_are_multiples_of_64_unless_told_otherwise(planner: Callable[..., StoragePlan]) -> None:
    assert planner([Interval(65, 0, 0), Interval(1, 0, 0)]) == ((0, 128), 129)


GAPS: list[tuple[list[Place], int, int, int | None]] = [
    ([], 4, 0, 4),
    ([(0, 4)], 4, 4, 4),  # as large as the room below the ceiling
    ([(4, 8)], 4, 0, 0),  # as large as the room at the bottom
    ([(0, 2), (2, 4)], 4, 4, 4),
    ([(0, 2), (6, 8)], 4, 2, 2),
    ([(0, 8)], 4, 8, None),
    ([(1, 8)], 1, 0, 0),
    ([(2, 4), (4, 7)], 1, 0, 7),
    ([(0, 1), (5, 8)], 4, 1, 1),
    ([(0, 6), (1, 2)], 2, 6, 6),  # one within the other
    ([(4, 12)], 5, 12, None),  # reaches beyond the ceiling
    ([(9, 12)], 8, 0, 0),  # lies beyond it
]
"""The occupied ranges, a size, the lowest free offset, and the highest free offset below a ceiling of 8."""


@pytest.mark.parametrize(("taken", "size", "lowest", "highest"), GAPS)
def test_gaps_that_fit_exactly_are_taken(taken: list[Place], size: int, lowest: int, highest: int | None) -> None:
    assert lowest_gap(taken, size) == lowest
    assert highest_gap(taken, size, 8) == highest


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=5), st.integers(1, 5), st.integers(0, 12))
def test_gaps_are_those_that_are_free(spans: list[tuple[int, int]], size: int, ceiling: int) -> None:
    taken = sorted((start, start + length) for start, length in spans)
    free = [offset for offset in range(16) if is_free(offset, size, taken)]
    assert lowest_gap(taken, size) == min(free)
    below = [offset for offset in free if offset + size <= ceiling]
    assert highest_gap(taken, size, ceiling) == max(below, default=None)
