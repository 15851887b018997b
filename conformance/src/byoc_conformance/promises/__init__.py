"""All promises of the kit, one folder or module a level."""

from __future__ import annotations

import importlib
from functools import cache

from byoc_conformance.promise import Item, Level, Promise

__all__ = ["all_items", "all_promises", "find_item"]

_FOLDERS = {
    Level.L0: "l0_declares",
    Level.L1: "l1_partition",
    Level.L2: "l2_numerics",
    Level.L3: "l3_artifacts",
    Level.L4: "l4_behaviour",
}


@cache
def _promises_of(level: Level) -> tuple[Promise, ...]:
    promises: tuple[Promise, ...] = importlib.import_module(f"{__name__}.{_FOLDERS[level]}").PROMISES
    return promises


@cache
def all_promises() -> tuple[Promise, ...]:
    """Return the promises, level by level."""
    return tuple(promise for level in Level for promise in _promises_of(level))


@cache
def all_items() -> tuple[Item, ...]:
    """Return the tests, level by level."""
    return tuple(item for promise in all_promises() for item in promise.items)


def find_item(id: str) -> Item:  # noqa: A002 - the name used everywhere
    """Return the test with an id; import the promises of the level only, and find the cases of the promise only.

    Raises:
        KeyError: no test has the id.
    """
    name = id.partition("[")[0]
    level, _, promise = name.partition("-")
    return _items_of(level, promise)[id]


@cache
def _items_of(level: str, name: str) -> dict[str, Item]:
    promises = _promises_of(Level(level)) if level in _FOLDERS else ()
    return {item.id: item for promise in promises if promise.name == name for item in promise.items}
