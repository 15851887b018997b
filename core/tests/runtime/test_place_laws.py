"""The proof that live buffers share no bytes, against all pairs of buffers; and plans broken on purpose."""

from __future__ import annotations

from itertools import combinations

import pytest
from byoc_core.errors import InternalError
from byoc_core.runtime import pools
from byoc_core.runtime.place_laws import find_overlap
from byoc_core.runtime.plan_storage import Interval, StoragePlan, plan
from byoc_core.runtime.pools import Pool, PoolBuffer, plan_pools
from hypothesis import given
from hypothesis import strategies as st

INTERVALS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)).map(
        lambda item: Interval(item[0], item[1], item[1] + item[2])
    ),
    max_size=9,
)


def overlaps(intervals: list[Interval], offsets: list[int], one: int, two: int) -> bool:
    a, b = intervals[one], intervals[two]
    is_live = a.start <= b.end and b.start <= a.end
    shared = min(offsets[one] + a.nbytes, offsets[two] + b.nbytes) - max(offsets[one], offsets[two])
    return is_live and bool(a.nbytes) and bool(b.nbytes) and shared > 0


@given(INTERVALS, st.data())
def test_an_overlap_is_found_if_and_only_if_live_buffers_share_bytes(
    intervals: list[Interval], data: st.DataObject
) -> None:
    offsets = data.draw(st.lists(st.integers(0, 30), min_size=len(intervals), max_size=len(intervals)))
    found = find_overlap(intervals, offsets)
    pairs = [pair for pair in combinations(range(len(intervals)), 2) if overlaps(intervals, offsets, *pair)]
    assert (found is None) == (not pairs)
    assert found is None or overlaps(intervals, offsets, *found)


@given(INTERVALS)
def test_plans_have_no_overlap(intervals: list[Interval]) -> None:
    assert find_overlap(intervals, plan(intervals, 4).offsets) is None


@pytest.mark.parametrize("offsets", [(0, 0), (0, 32), (0, 64), (-64, 64)])
def test_a_wrong_plan_never_leaves_the_planner(monkeypatch: pytest.MonkeyPatch, offsets: tuple[int, int]) -> None:
    """Places with common bytes, without alignment, beyond the limit, and before the pool."""
    buffers = [PoolBuffer(64, 0, 1), PoolBuffer(64, 0, 1)]
    found = StoragePlan(offsets, 128)
    monkeypatch.setattr(pools._PoolContent, "plan", lambda self: found)
    limit = 127 if offsets == (0, 64) else 128
    monkeypatch.setattr(pools._PoolContent, "admit", lambda self, number: self.offsets.setdefault(number, 0) == 0)
    with pytest.raises(InternalError, match="pool `sram`: has a plan with overlaps, or beyond the limit"):
        plan_pools(buffers, [Pool("sram", limit)])
