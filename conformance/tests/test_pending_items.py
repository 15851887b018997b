"""The next test for each of several takers."""

from __future__ import annotations

from collections import Counter

from byoc_conformance.pending_items import PendingItems
from byoc_conformance.promise import Item, Level
from hypothesis import given
from hypothesis import strategies as st

from conformance.tests.samples import new_item


def new_items(counts: dict[Level, int]) -> list[Item]:
    """Return as many tests of each level."""
    return [new_item(level, "promise", str(number)) for level, count in counts.items() for number in range(count)]


@given(
    counts=st.dictionaries(st.sampled_from(Level), st.integers(1, 5)),
    num_takers=st.integers(1, 4),
    data=st.data(),
)
def test_takers_share_a_level_only_if_no_other_level_is_left(
    counts: dict[Level, int], num_takers: int, data: st.DataObject
) -> None:
    items = new_items(counts)
    pending = PendingItems(items)
    levels: dict[int, Level | None] = dict.fromkeys(range(num_takers))
    left, taken = Counter(counts), list[Item]()
    while levels:
        taker = data.draw(st.sampled_from(sorted(levels)))
        before = levels[taker]
        item = pending.take(before)
        if item is None:
            assert not +left
            del levels[taker]
            continue
        level = item.promise.level
        if level is not before:
            others = {levels[other] for other in levels if other != taker}
            assert before is None or not left[before]
            assert level not in others or set(+left) <= others
        left[level] -= 1
        levels[taker] = level
        taken.append(item)
    assert sorted(item.id for item in taken) == sorted(item.id for item in items)
    for level in counts:
        assert [item for item in taken if item.promise.level is level] == [
            item for item in items if item.promise.level is level
        ]


def test_one_taker_takes_level_after_level() -> None:
    items = new_items({Level.L0: 2, Level.L2: 3, Level.L1: 1})
    pending, level, taken = PendingItems(items), None, []
    while (item := pending.take(level)) is not None:
        level = item.promise.level
        taken.append(item)
    assert taken == items


def test_takers_without_a_level_left_help_with_the_longest() -> None:
    pending = PendingItems(new_items({Level.L0: 1, Level.L1: 3, Level.L2: 5}))
    first = [pending.take(None) for _ in range(3)]
    assert [item.promise.level for item in first if item] == [Level.L0, Level.L1, Level.L2]
    helped = pending.take(Level.L0)
    assert helped is not None
    assert helped.promise.level is Level.L2
