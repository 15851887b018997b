from __future__ import annotations

import random
from itertools import pairwise

import pytest
from byoc_core.runtime.plan_storage import Interval, peak_nbytes, plan
from byoc_core.runtime.sweep_storage import sweep
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def buffers(draw: st.DrawFn) -> list[tuple[int, tuple[int, int]]]:
    """Draw sizes with their live ranges."""
    found = []
    for _ in range(draw(st.integers(0, 40))):
        start = draw(st.integers(0, 20))
        found.append((draw(st.integers(0, 9)), (start, start + draw(st.integers(0, 8)))))
    return found


@given(buffers(), st.integers(0, 60), st.booleans(), st.booleans())
def test_sweeps_never_let_buffers_overlap(
    found: list[tuple[int, tuple[int, int]]], ceiling: int, in_turn: bool, backwards: bool
) -> None:
    offsets = sweep(
        [span for _, span in found], [size for size, _ in found], ceiling, in_turn=in_turn, backwards=backwards
    )
    used: dict[tuple[int, int], int] = {}
    for number, (offset, (size, (start, end))) in enumerate(zip(offsets, found, strict=True)):
        assert offset >= 0
        for cell in ((point, byte) for point in range(start, end + 1) for byte in range(offset, offset + size)):
            assert used.setdefault(cell, number) == number


@pytest.mark.parametrize("backwards", [False, True])
def test_a_sweep_from_both_ends_fits_a_chain_into_its_peak(backwards: bool) -> None:
    rng = random.Random(0)
    sizes = [rng.randrange(1, 1000) for _ in range(500)]
    spans = [(index, index + 1) for index in range(500)]
    peak = max(map(sum, pairwise(sizes)))
    offsets = sweep(spans, sizes, peak, in_turn=True, backwards=backwards)
    assert max(map(sum, zip(offsets, sizes, strict=True))) <= peak


def random_intervals(count: int, duration: float, seed: int) -> list[Interval]:
    """Return a buffer per point, most short-lived, of sizes from all orders of magnitude up to 16 KiB."""
    rng = random.Random(seed)
    intervals = []
    for start in range(count):
        length = rng.expovariate(1 / duration) if rng.random() < 0.9 else rng.random() * 20 * duration
        intervals.append(Interval(int(2 ** (14 * rng.random())), start, start + 1 + int(length)))
    return intervals


@pytest.mark.parametrize(("count", "duration"), [(10_000, 200.0), (20_000, 2_000.0), (30_000, 30_000.0)])
def test_plans_of_very_many_live_buffers_stay_near_the_peak(count: int, duration: float) -> None:
    intervals = random_intervals(count, duration, seed=1)
    offsets, total = plan(intervals, 64)
    assert total <= 1.2 * peak_nbytes(intervals, 64)
    # Disjoint in time or place: at each start, the places of what lives there, in order, do not overlap.
    for point in range(0, count, count // 20):
        live = sorted((o, o + i.nbytes) for o, i in zip(offsets, intervals, strict=True) if i.start <= point <= i.end)
        assert all(stop <= start for (_, stop), (start, _) in pairwise(live))
        assert all(stop <= total for _, stop in live)
