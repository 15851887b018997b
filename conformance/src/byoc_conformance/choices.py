"""Choices of a user in text form: options of backends, and the tests to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from byoc_core.errors import OptionsError, near_names

from byoc_conformance.overrides import select_ids
from byoc_conformance.promise import Item, Level

__all__ = ["choose_items", "parse_levels", "parse_options"]


def parse_options(
    texts: Iterable[str], companions: Sequence[str], flag: str = "--option"
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the options of the backend under test, and the options of companions by name.

    Args:
        texts: ``KEY=VALUE``, or ``NAME.KEY=VALUE`` for a companion. Values are parsed as JSON if possible; other
            values are text.
        companions: the names of the companions.
        flag: the source of the texts, for errors.

    Raises:
        OptionsError: a text has another form.
    """
    options: dict[str, Any] = {}
    of_companions: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise OptionsError(flag, "is malformed", got=repr(text), expected="KEY=VALUE, or NAME.KEY=VALUE")
        name, dot, rest = key.partition(".")
        target = of_companions.setdefault(name, {}) if dot and rest and name in companions else options
        try:
            target[rest if target is not options else key] = json.loads(value)
        except ValueError:
            target[rest if target is not options else key] = value
    return options, of_companions


def parse_levels(texts: Iterable[str], flag: str = "--level") -> tuple[Level, ...]:
    """Return levels by name; all levels if no name is given.

    Raises:
        OptionsError: there is no such level.
    """
    names = {level.value: level for level in Level}
    for text in (requested := tuple(texts)):
        if text not in names:
            raise OptionsError(flag, "names no level", got=repr(text), expected=", ".join(names))
    return tuple(level for level in Level if level.value in requested) or tuple(Level)


def choose_items(
    items: Sequence[Item], levels: Sequence[Level], patterns: Sequence[str] = (), exceptions: Sequence[str] = ()
) -> list[Item]:
    """Return the tests of some levels with ids matching any of the patterns; without patterns, all tests of the levels.

    Args:
        items: all tests.
        levels: of the tests to return.
        patterns: of ids of tests to return.
        exceptions: patterns of ids of tests to leave out.

    Raises:
        OptionsError: a pattern matches no test of these levels, or no test is left. The error mentions matching tests
            of other levels.
    """
    candidates = {item.id: item for item in items if item.promise.level in levels}

    def select(texts: Sequence[str], flag: str) -> set[str]:
        selected: set[str] = set()
        for text in texts:
            found = select_ids(text, candidates)
            if not found:
                raise _no_match_error(text, items, levels, flag)
            selected.update(found)
        return selected

    matching = select(patterns, "--only") if patterns else set(candidates)
    matching -= select(exceptions, "--except")
    if not matching:
        raise OptionsError("--except", "leaves no test", got=", ".join(exceptions))
    return [item for name, item in candidates.items() if name in matching]


def _no_match_error(pattern: str, items: Sequence[Item], levels: Sequence[Level], flag: str) -> OptionsError:
    """Return the error for a pattern without a matching test in the levels."""
    of_all = {item.id: item for item in items}
    elsewhere = {of_all[name].promise.level for name in select_ids(pattern, of_all)}
    if not elsewhere:
        candidates = [name for name, item in of_all.items() if item.promise.level in levels]
        return OptionsError(f"{flag} {pattern}", "matches no test", hint=near_names(pattern, candidates) or None)
    selected, needed = (
        ", ".join(level.value for level in Level if level in group) for group in (frozenset(levels), elsewhere)
    )
    hint = f"Leave out the level {selected}, or choose {needed}."
    return OptionsError(f"{flag} {pattern}", f"matches no test of {selected}, but tests of {needed}", hint=hint)
