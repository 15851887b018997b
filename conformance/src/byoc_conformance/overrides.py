"""Tests with an expected failure, each with a reason. There is no other way to make the kit ask for less."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from byoc_core.errors import OptionsError, near_names

__all__ = ["Overrides", "read_overrides", "select_ids"]

_MIN_WORDS = 3


class Overrides:
    """Reasons by test.

    Args:
        reasons: by the id of a test, or by a pattern of ids: ``*`` matches any text and ``?`` a single character. Ids
            take precedence over patterns, and earlier patterns over later patterns.
        ids: of all tests of the kit.
        where: the source of the reasons, for errors.

    Raises:
        OptionsError: the reasons are no texts by test, a reason has fewer than three words, or a key names no test.
    """

    def __init__(self, reasons: Mapping[str, object], ids: Iterable[str], *, where: str = "xfail") -> None:
        all_ids = tuple(ids)
        if not isinstance(reasons, Mapping):
            raise OptionsError(where, "is no table of reasons by test", got=repr(reasons))
        self._reasons: dict[str, str] = {}
        for key, reason in sorted(reasons.items(), key=lambda pair: pair[0] not in all_ids):
            if not isinstance(reason, str) or len(reason.split()) < _MIN_WORDS:
                expected = f"a reason of at least {_MIN_WORDS} words"
                raise OptionsError(f"{where}, `{key}`", "gives no reason", got=repr(reason), expected=expected)
            found = [key] if key in all_ids else select_ids(key, all_ids)
            if not found:
                hint = near_names(key, all_ids) or "`byoc conformance --list` shows all promises."
                raise OptionsError(f"{where}, `{key}`", "names no test of the kit", hint=hint)
            for name in found:
                self._reasons.setdefault(name, reason)

    def reason(self, name: str) -> str | None:
        """Return the reason for an expected failure of a test; ``None`` if no failure is expected."""
        return self._reasons.get(name)


def select_ids(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids matched by a pattern: ``*`` matches any text and ``?`` a single character.

    Brackets match literally, since ids contain brackets.
    """
    regex = re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern))
    return [name for name in ids if regex.fullmatch(name)]


def read_overrides(path: Path) -> dict[str, str]:
    """Return the reasons of a TOML file: the table ``xfail``, with ids or patterns as keys.

    Raises:
        OptionsError: the file has another form.
        OSError: the file cannot be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path}", f"is no TOML file: {error}") from error
    table = values.get("xfail")
    if values.keys() != {"xfail"} or not isinstance(table, dict):
        keys = ", ".join(f"`{key}`" for key in values) or "nothing"
        raise OptionsError(f"{path}", "is no file of overrides", got=keys, expected="a single table `xfail`")
    for key, reason in table.items():
        if not isinstance(reason, str):
            raise OptionsError(f"{path}, `{key}`", "gives no reason", got=repr(reason), expected="text")
    return table
