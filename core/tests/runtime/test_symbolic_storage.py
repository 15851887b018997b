from __future__ import annotations

from byoc_core.dims import Dim, evaluate, is_nonnegative, parse_dim
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_symbolic
from hypothesis import given
from hypothesis import strategies as st

SIZES = [parse_dim(text) for text in ("4*n", "8*n", "8*n+64", "4*n*m", "4*m", "n//2*8")]


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 8), st.integers(0, 4)), max_size=12))
def test_symbolic_storages_are_large_enough_and_never_shared_at_once(items: list[tuple[Dim, int, int]]) -> None:
    intervals = [SymbolicInterval(size, start, start + length) for size, start, length in items]
    storages, sizes = plan_symbolic(intervals)
    for values in ({"n": 0, "m": 9}, {"n": 7, "m": 1}):
        for interval, storage in zip(intervals, storages, strict=True):
            assert evaluate(interval.nbytes, values) <= evaluate(sizes[storage], values)
    for index, interval in enumerate(intervals):
        for other in range(index):
            if storages[other] == storages[index]:
                assert interval.start > intervals[other].end or intervals[other].start > interval.end


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 8), st.integers(0, 4)), max_size=12))
def test_a_symbolic_buffer_takes_the_best_storage_that_is_free(items: list[tuple[Dim, int, int]]) -> None:
    intervals = [SymbolicInterval(size, start, start + length) for size, start, length in items]
    storages, final = plan_symbolic(intervals)
    sizes: list[Dim] = []
    busy_until: list[int] = []
    for number in sorted(range(len(intervals)), key=lambda n: (intervals[n].start, n)):
        wanted, chosen = intervals[number].nbytes, storages[number]
        free = [storage for storage, end in enumerate(busy_until) if end < intervals[number].start]
        equal = [storage for storage in free if sizes[storage] == wanted]
        larger = [storage for storage in free if is_nonnegative(sizes[storage] - wanted)]
        smaller = [storage for storage in free if is_nonnegative(wanted - sizes[storage])]
        assert chosen in (equal or larger or smaller or [len(sizes)])
        if chosen == len(sizes):
            sizes.append(wanted)
            busy_until.append(0)
        elif chosen not in larger:
            sizes[chosen] = wanted
        busy_until[chosen] = intervals[number].end
    assert final == tuple(sizes)


def test_symbolic_reuse() -> None:
    small, large, other = parse_dim("4*n"), parse_dim("8*n"), parse_dim("4*m")

    def reuse(*sizes: Dim) -> tuple[tuple[int, ...], tuple[Dim, ...]]:
        return plan_symbolic([SymbolicInterval(size, index, index) for index, size in enumerate(sizes)])

    assert reuse(small, small) == ((0, 0), (small,))
    assert reuse(large, small) == ((0, 0), (large,))
    assert reuse(small, large) == ((0, 0), (large,))
    assert reuse(small, other) == ((0, 1), (small, other))
    assert plan_symbolic([SymbolicInterval(small, 0, 1), SymbolicInterval(small, 1, 2)]).storages == (0, 1)
