from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from unittest.mock import patch

import pytest
from byoc_core.runtime.plan_storage import (
    Interval,
    StoragePlan,
    peak_nbytes,
    plan,
    plan_once,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def chain(sizes: Sequence[int]) -> list[Interval]:
    """A chain of buffers, each read by the op making the next."""
    return [Interval(size, index, index + 1) for index, size in enumerate(sizes)]


@st.composite
def interval_lists(draw: st.DrawFn, *, max_size: int, longest: int = 6) -> list[Interval]:
    intervals = []
    for _ in range(draw(st.integers(0, max_size))):
        start = draw(st.integers(0, 12))
        intervals.append(Interval(draw(st.integers(0, 200)), start, start + draw(st.integers(0, longest))))
    return intervals


def meet(left: Interval, right: Interval) -> bool:
    return left.start <= right.end and right.start <= left.end


@given(interval_lists(max_size=25), st.sampled_from([1, 16, 64]), st.sampled_from([plan, plan_once]), st.booleans())
def test_buffers_that_are_needed_at_once_never_overlap(
    intervals: list[Interval], alignment: int, planner: Callable[..., StoragePlan], many: bool
) -> None:
    with patch("byoc_core.runtime.plan_storage._PAIR_BUDGET", -1) if many else nullcontext():
        offsets, total = planner(intervals, alignment)
    for index, (offset, interval) in enumerate(zip(offsets, intervals, strict=True)):
        assert offset % alignment == 0
        assert 0 <= offset <= offset + interval.nbytes <= total or not interval.nbytes
        for other_offset, other in zip(offsets[:index], intervals[:index], strict=True):
            if meet(interval, other):
                assert (
                    offset + interval.nbytes <= other_offset
                    or other_offset + other.nbytes <= offset
                    or 0 in (interval.nbytes, other.nbytes)
                )
    assert total >= peak_nbytes(intervals)
    assert total <= sum(-(-interval.nbytes // alignment) * alignment for interval in intervals)


def optimum(intervals: Sequence[Interval]) -> int:
    """Return the smallest arena, by search of all orders.

    An optimal plan exists with each buffer at the lowest gap among the buffers with smaller offsets: only orders of
    ascending offsets count.
    """
    lower_bound = peak_nbytes(intervals)
    best = sum(interval.nbytes for interval in intervals)

    def search(placed: list[tuple[int, Interval]], left: list[Interval], total: int) -> None:
        nonlocal best
        if not left:
            best = min(best, total)
        for index, interval in enumerate(left):
            offset = 0
            for start, other in placed:
                if meet(interval, other):
                    if start - offset >= interval.nbytes:
                        break
                    offset = max(offset, start + other.nbytes)
            stop = max(total, offset + interval.nbytes)
            if stop < best and best > lower_bound and (not placed or offset >= placed[-1][0]):
                search([*placed, (offset, interval)], left[:index] + left[index + 1 :], stop)

    search([], list(intervals), 0)
    return best


@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
@given(interval_lists(max_size=8))
def test_small_plans_are_near_the_optimum(intervals: list[Interval]) -> None:
    assert optimum(intervals) <= plan(intervals, 1).total <= 1.1 * optimum(intervals)


def test_plans_of_up_to_eight_random_buffers_reach_the_optimum() -> None:
    for seed in range(6 * settings().max_examples):
        rng = random.Random(seed)
        starts = [rng.randrange(10) for _ in range(rng.randint(2, 8))]
        intervals = [Interval(rng.randint(1, 200), start, start + rng.randint(0, 6)) for start in starts]
        assert plan(intervals, 1).total == optimum(intervals), f"seed {seed}"


EIGHT = [
    chain([3, 9, 4, 7, 7, 2, 8, 5]),
    [Interval(size, start, end) for size, start, end in [
        (4, 0, 3), (6, 1, 2), (5, 2, 5), (3, 3, 6), (7, 4, 7), (2, 0, 7), (8, 6, 8), (4, 7, 8),
    ]],
    [Interval(size, 0, 1) for size in (1, 2, 3, 4, 5, 6, 7, 8)],
    [Interval(10, 0, 9), *chain([10, 20, 30, 40, 30, 20, 10])],
]  # fmt: skip


@pytest.mark.parametrize("intervals", EIGHT)
def test_plans_of_eight_buffers_reach_the_optimum(intervals: list[Interval]) -> None:
    assert plan(intervals, 1).total == optimum(intervals)


def test_known_chain() -> None:
    assert plan(chain([10, 20, 100, 40, 50, 50]), 1) == ((0, 100, 0, 100, 0, 50), 140)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_chains_reach_the_peak(sizes: list[int]) -> None:
    assert plan(chain(sizes), 1).total == peak_nbytes(chain(sizes))


def test_edge_cases() -> None:
    assert plan([]) == plan_once([]) == ((), 0)
    assert plan([Interval(0, 0, 5), Interval(10, 0, 5), Interval(1, 2, 3)], 64) == ((0, 0, 64), 65)


def test_ten_thousand_buffers() -> None:
    intervals = [Interval(1 + index * 7919 % 100_003, index, index + 1) for index in range(10_000)]
    assert plan(intervals, 64).total <= peak_nbytes(intervals, 64)


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_a_sufficient_plan_is_enough_only_within_the_size(seed: int, percent: int) -> None:
    """The search goes on as long as the arena exceeds the sufficient size."""
    rng = random.Random(seed)
    intervals = [Interval(rng.randint(1, 99), start, start + rng.randint(0, 9)) for start in range(30)]
    best = plan(intervals, 1).total
    sufficient = best * (100 + percent) // 100
    assert best <= plan(intervals, 1, sufficient).total <= sufficient
