"""Buffers in several memories: the laws of a plan, on random buffers and pools, and the texts of errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from byoc_core.errors import ByocError, MemoryLimitError, OptionsError
from byoc_core.runtime.plan_storage import peak_nbytes, plan
from byoc_core.runtime.pools import Pool, PoolBuffer, PoolPlan, plan_pools
from hypothesis import assume, given
from hypothesis import strategies as st

READ = frozenset({"read"})
POOLS = st.lists(
    st.builds(
        Pool,
        st.sampled_from(["sram", "dram", "flash"]),
        st.none() | st.integers(0, 400),
        st.sampled_from([1, 4, 16]),
        st.sampled_from([frozenset({"read", "write"}), READ]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda pool: pool.name,
)


@st.composite
def buffer_lists(draw: st.DrawFn) -> list[PoolBuffer]:
    buffers = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 8))
        buffers.append(
            PoolBuffer(
                draw(st.integers(0, 120)),
                start,
                start + draw(st.integers(0, 4)),
                draw(st.sampled_from([1, 1, 4, 16])),
                draw(st.sampled_from([frozenset({"read", "write"}), READ])),
                None,
                draw(st.integers(0, 5)),
                f"b{number}",
            )
        )
    return buffers


def check(buffers: Sequence[PoolBuffer], pools: Sequence[Pool], found: PoolPlan) -> None:
    """Check the laws of a plan."""
    assert len(found.pools) == len(found.offsets) == len(buffers)
    assert len(found.nbytes) == len(found.lower_bounds) == len(pools)
    for number, (buffer, index, offset) in enumerate(zip(buffers, found.pools, found.offsets, strict=True)):
        pool = pools[index]
        assert offset % pool.alignment == 0
        assert buffer.alignment <= pool.alignment
        assert buffer.accesses <= pool.accesses
        assert buffer.pools is None or pool.name in buffer.pools
        assert offset >= 0
        assert offset + buffer.nbytes <= found.nbytes[index] or not buffer.nbytes
        for other in range(number):
            is_live = buffers[other].start <= buffer.end and buffer.start <= buffers[other].end
            if is_live and found.pools[other] == index and buffer.nbytes and buffers[other].nbytes:
                other_offset = found.offsets[other]
                assert offset + buffer.nbytes <= other_offset or other_offset + buffers[other].nbytes <= offset
    for index, pool in enumerate(pools):
        members = [buffer.interval for buffer, home in zip(buffers, found.pools, strict=True) if home == index]
        assert found.lower_bounds[index] == peak_nbytes(members) <= found.nbytes[index]
        assert pool.nbytes is None or found.nbytes[index] <= pool.nbytes


@given(buffer_lists(), POOLS, st.randoms(use_true_random=False))
def test_plans_keep_the_laws_and_depend_on_no_name(
    buffers: list[PoolBuffer], pools: list[Pool], rng: random.Random
) -> None:
    names = {pool.name: f"memory {rng.randrange(10**6)} {number}" for number, pool in enumerate(pools)}
    renamed = [replace(buffer, name=str(rng.random())) for buffer in buffers]
    renamed_pools = [replace(pool, name=names[pool.name]) for pool in pools]
    try:
        found = plan_pools(buffers, pools)
    except MemoryLimitError:
        with pytest.raises(MemoryLimitError):
            plan_pools(renamed, renamed_pools)
        return
    check(buffers, pools, found)
    assert plan_pools(renamed, renamed_pools) == found


@given(buffer_lists(), st.integers(0, 300), st.integers(1, 3))
def test_a_pool_without_limit_at_the_end_takes_everything_left(
    buffers: list[PoolBuffer], limit: int, num_permitted: int
) -> None:
    pools = [Pool("sram", limit, 16), Pool("dram", None, 16)]
    choices = (None, ("dram",), ("sram", "dram"))
    buffers = [replace(buffer, pools=choices[n % num_permitted]) for n, buffer in enumerate(buffers)]
    found = plan_pools(buffers, pools)
    check(buffers, pools, found)
    # Each buffer of the second pool was too much for the first pool, or not permitted there.
    inside = [buffer for buffer, index in zip(buffers, found.pools, strict=True) if not index]
    heaviest = max((buffer.weight for buffer, index in zip(buffers, found.pools, strict=True) if index), default=0)
    for buffer, index in zip(buffers, found.pools, strict=True):
        if index and buffer.weight == heaviest and buffer.pools != ("dram",):
            heavier = [other.interval for other in inside if other.weight >= heaviest]
            # The order of the buffers decides the padding of the last buffer, so the padding counts here.
            total = plan([*heavier, buffer.interval], 16).total
            assert -(-total // 16) * 16 > limit or buffer.nbytes == 0


@given(buffer_lists())
def test_one_pool_without_limit_is_the_plan_of_an_arena(buffers: list[PoolBuffer]) -> None:
    found = plan_pools(buffers, [Pool("arena", None, 16)])
    order = sorted(range(len(buffers)), key=lambda n: found.offsets[n])
    assert len(order) == len(buffers)
    bound = peak_nbytes([buffer.interval for buffer in buffers], 16)
    assume(bound)
    assert found.nbytes[0] <= 1.25 * bound


def test_often_used_buffers_get_the_fast_memory() -> None:
    pools = [Pool("sram", 128), Pool("dram")]
    buffers = [PoolBuffer(64, 0, 9, weight=weight) for weight in (2, 9, 3, 5)]
    assert plan_pools(buffers, pools) == PoolPlan((1, 0, 1, 0), (64, 0, 0, 64), (128, 128), (128, 128))


def test_constants_lie_in_memory_without_writes() -> None:
    pools = [Pool("flash", 1000, accesses=READ), Pool("sram", 500)]
    weights, value = PoolBuffer(600, 0, 3, accesses=READ, name="weights"), PoolBuffer(300, 1, 2, name="value")
    assert plan_pools([weights, value], pools).pools == (0, 1)
    with pytest.raises(MemoryLimitError, match="`value`: has no possible pool: pool `flash` has no access to write"):
        plan_pools([weights, value], pools[:1])


def test_a_buffer_without_a_choice_displaces_buffers_with_a_choice() -> None:
    """By weight alone, the constant would take the only memory for intermediates."""
    pools = [Pool("sram", 100, 1), Pool("flash", 1000, 1, accesses=READ)]
    constant, value = PoolBuffer(80, 0, 9, accesses=READ, weight=9), PoolBuffer(50, 0, 9, weight=1)
    assert plan_pools([constant, value], pools).pools == (1, 0)


def test_a_pool_is_filled_up_to_the_limit() -> None:
    """Admission one by one needs new places for earlier buffers to reach the peak of 140 bytes."""
    sizes = [10, 20, 100, 40, 50, 50]
    buffers = [PoolBuffer(size, index, index + 1) for index, size in enumerate(sizes)]
    assert plan_pools(buffers, [Pool("sram", 140, 1)]).nbytes == (140,)
    with pytest.raises(MemoryLimitError):
        plan_pools(buffers, [Pool("sram", 139, 1)])


def test_the_order_of_pools_is_the_preference() -> None:
    buffers = [PoolBuffer(10, 0, 1)]
    assert plan_pools(buffers, [Pool("a"), Pool("b")]).pools == (0,)
    assert plan_pools([replace(buffers[0], pools=("b",))], [Pool("a"), Pool("b")]).pools == (1,)
    assert plan_pools([], [Pool("a")]) == PoolPlan((), (), (0,), (0,))


TOO_SMALL = """\
pools `sram`, `tcm`: too small for 2 buffers: `y` (90 bytes), `v` (16 bytes). Raise the limit of a pool, or add a pool.
pool `sram`: 204 bytes needed (lower bound 204), limit 100 bytes
  largest buffers at the peak: `y` (90 bytes), `x` (80 bytes), `z` (18 bytes), `v` (16 bytes), at point 2
pool `tcm`: 33 bytes needed (lower bound 33), limit 20 bytes
  largest buffers at the peak: `w` (17 bytes), `v` (16 bytes), at point 2"""


def test_too_small_pools_name_the_bytes_and_the_largest_buffers() -> None:
    pools = [Pool("sram", 100, 1), Pool("tcm", 20, 1)]
    buffers = [
        PoolBuffer(80, 0, 3, name="x", weight=3),
        PoolBuffer(90, 2, 4, name="y", weight=2),
        PoolBuffer(18, 2, 4, name="z"),
        PoolBuffer(17, 2, 4, name="w"),
        PoolBuffer(16, 2, 4, name="v"),
    ]
    with pytest.raises(MemoryLimitError) as caught:
        plan_pools(buffers, pools)
    assert str(caught.value) == TOO_SMALL


ONE_TOO_MANY = """\
pool `sram`: too small for 1 buffer: `late` (60 bytes). Raise the limit of a pool, or add a pool.
pool `sram`: 110 bytes needed (lower bound 110), limit 100 bytes
  largest buffers at the peak: `late` (60 bytes), `whole` (50 bytes), at point 3"""


def test_the_peak_of_an_error_is_the_point_with_the_most_bytes() -> None:
    buffers = [
        PoolBuffer(50, 0, 5, name="whole", weight=2),
        PoolBuffer(20, 1, 2, name="early"),
        PoolBuffer(60, 3, 4, name="late"),
        PoolBuffer(10, 5, 5, name="last"),
    ]
    with pytest.raises(MemoryLimitError) as caught:
        plan_pools(buffers, [Pool("sram", 100, 1)])
    assert str(caught.value) == ONE_TOO_MANY


def test_short_live_ranges_come_first_among_equals_then_large_buffers() -> None:
    pools = [Pool("sram", 64), Pool("dram")]
    assert plan_pools([PoolBuffer(64, 0, 9), PoolBuffer(64, 8, 9)], pools).pools == (1, 0)
    assert plan_pools([PoolBuffer(32, 0, 9), PoolBuffer(64, 0, 9)], pools).pools == (1, 0)


def test_a_buffer_as_large_as_the_pool_fits() -> None:
    assert plan_pools([PoolBuffer(100, 0, 0)], [Pool("sram", 100)]).nbytes == (100,)


def test_all_missing_accesses_are_named() -> None:
    with pytest.raises(MemoryLimitError, match="pool `rom` has no access to write"):
        plan_pools([PoolBuffer(1, 0, 0)], [Pool("rom", accesses=READ)])
    with pytest.raises(OptionsError, match="unknown accesses; got jump, run, expected"):
        PoolBuffer(1, 0, 0, accesses=frozenset({"run", "jump"}))


def test_a_pool_that_is_not_permitted_is_named() -> None:
    with pytest.raises(
        MemoryLimitError, match="`x`: has no possible pool: pool `a` has 9 bytes, not 50; pool `b` is not"
    ):
        plan_pools([PoolBuffer(50, 0, 0, pools=("a",), name="x")], [Pool("a", 9), Pool("b")])


def test_errors_name_at_most_five_buffers() -> None:
    buffers = [PoolBuffer(10 + n, 0, 0, name=f"b{n}") for n in range(9)]
    with pytest.raises(MemoryLimitError, match=r"for 8 buffers: `b7` \(17 bytes\), .*`b3` \(13 bytes\), 3 more"):
        plan_pools(buffers, [Pool("sram", 25, 1)])


A = Pool("a")
WRONG: list[tuple[Any, type[ByocError], str]] = [
    (lambda: Pool(""), OptionsError, "pool: has an empty name"),
    (lambda: Pool("a", -1), OptionsError, "pool `a`: has a negative limit; got -1"),
    (
        lambda: Pool("a", alignment=12),
        OptionsError,
        "pool `a`: has an impossible alignment; got 12, expected a power of two",
    ),
    (
        lambda: Pool("a", alignment=0),
        OptionsError,
        "pool `a`: has an impossible alignment; got 0, expected a power of two",
    ),
    (
        lambda: Pool("a", accesses=frozenset({"read", "run"})),
        OptionsError,
        "pool `a`: has unknown accesses; got run, expected read, write, or both",
    ),
    (
        lambda: Pool("a", accesses=frozenset()),
        OptionsError,
        "pool `a`: has no access; expected read, write, or both",
    ),
    (lambda: PoolBuffer(-1, 0, 0, name="x"), OptionsError, "buffer `x`: has a negative size; got -1"),
    (lambda: PoolBuffer(1, 2, 1, name="x"), OptionsError, "buffer `x`: ends before the start; got 2 to 1"),
    (lambda: PoolBuffer(1, 0, 1, weight=-1, name="x"), OptionsError, "buffer `x`: has a negative weight; got -1"),
    (
        lambda: PoolBuffer(1, 0, 1, alignment=3, name="x"),
        OptionsError,
        "buffer `x`: has an impossible alignment; got 3, expected a power of two",
    ),
    (lambda: plan_pools([], [A, A]), OptionsError, "pool `a`: is given twice; expected a name for each pool"),
    (
        lambda: plan_pools([PoolBuffer(1, 0, 0, pools=("sram",), name="x")], [Pool("sram1")]),
        OptionsError,
        "buffer `x`: permits the unknown pool `sram`; expected sram1. Did you mean 'sram1'?",
    ),
    (
        lambda: plan_pools([PoolBuffer(1, 0, 0, name="x")], []),
        MemoryLimitError,
        "buffer `x`: has no possible pool: no pool is given",
    ),
    (
        lambda: plan_pools([PoolBuffer(50, 0, 0, 8, pools=("a", "c"), name="x")], [Pool("a", 9), Pool("c", None, 4)]),
        MemoryLimitError,
        "buffer `x`: has no possible pool: pool `a` has 9 bytes, not 50; pool `c` is aligned to 4, not 8",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_meaningless_pools_and_buffers_are_refused(call: Any, kind: type[ByocError], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_many_buffers_in_a_pool_with_a_limit() -> None:
    rng = random.Random(0)
    buffers = [
        PoolBuffer(rng.randint(1, 4000), start, start + rng.randint(1, 30), weight=rng.randint(1, 9))
        for start in range(1000)
    ]
    pools = [Pool("sram", 16384), Pool("dram")]
    found = plan_pools(buffers, pools)
    check(buffers, pools, found)
    weights = [[b.weight for b, home in zip(buffers, found.pools, strict=True) if home == index] for index in (0, 1)]
    assert sum(weights[0]) / len(weights[0]) > 1.5 * sum(weights[1]) / len(weights[1])
