"""All promises of the kit, one folder or module a level."""

from __future__ import annotations

from functools import cache

from byoc_conformance.promise import Item, Promise

__all__ = ["all_items", "all_promises", "find_item"]


@cache
def all_promises() -> tuple[Promise, ...]:
    """Return the promises, level by level."""
    from byoc_conformance.promises import l0_declares, l1_partition, l2_numerics, l3_artifacts, l4_behaviour

    levels = (l0_declares, l1_partition, l2_numerics, l3_artifacts, l4_behaviour)
    return tuple(promise for level in levels for promise in level.PROMISES)


@cache
def all_items() -> tuple[Item, ...]:
    """Return the tests, level by level."""
    return tuple(item for promise in all_promises() for item in promise.items)


def find_item(id: str) -> Item:  # noqa: A002 - the name used everywhere
    """Return the test with an id.

    Raises:
        KeyError: no test has the id.
    """
    return _items_by_id()[id]


@cache
def _items_by_id() -> dict[str, Item]:
    return {item.id: item for item in all_items()}
