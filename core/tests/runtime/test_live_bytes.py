"""Live bytes by point, and the buffers live at the same time, against a count of all points and pairs."""

from __future__ import annotations

from byoc_core.runtime.interval_index import Interval, IntervalIndex
from byoc_core.runtime.live_bytes import LiveBytes
from hypothesis import given
from hypothesis import strategies as st


def _interval(nbytes: int, start: int, length: int) -> Interval:
    return Interval(nbytes, start, start + length)


INTERVALS = st.lists(
    st.builds(_interval, st.integers(0, 9), st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=25
)


@given(INTERVALS)
def test_the_peak_beside_a_buffer_is_the_most_live_bytes(intervals: list[Interval]) -> None:
    live = LiveBytes(intervals)
    for number, interval in enumerate(intervals):
        others = intervals[:number]
        points = range(interval.start, interval.end + 1)
        assert live.peak(interval) == max(sum(o.nbytes for o in others if o.start <= p <= o.end) for p in points)
        live.add(interval)


@given(INTERVALS)
def test_overlapping_intervals_share_a_point(intervals: list[Interval]) -> None:
    index = IntervalIndex(intervals)
    for number, interval in enumerate(intervals):
        others = [n for n, o in enumerate(intervals[:number]) if o.start <= interval.end and interval.start <= o.end]
        assert sorted(index.overlapping(number)) == others
        index.add(number)
