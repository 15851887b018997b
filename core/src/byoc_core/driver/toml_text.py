"""Plain data as TOML text. The standard library only reads TOML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from byoc_core.errors import OptionsError

__all__ = ["to_toml"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(data: Mapping[str, Any]) -> str:
    """Return a mapping as TOML: plain values first, then a table for each mapping. ``None`` at the top is left out.

    Raises:
        OptionsError: a value has no form in TOML; names the path.
    """
    return "\n".join(_lines(data, ())).strip() + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(tables) < len(table) or not table):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in table.items():
        if key not in tables and (value is not None or path):
            yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, value in tables.items():
        yield from _lines(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: object, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value).replace("infinity", "inf")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, path) for item in value)}]"
    if isinstance(value, Mapping):
        fields = (f"{_key(key)} = {_value(item, (*path, key))}" for key, item in value.items())
        return f"{{{', '.join(fields)}}}"
    raise OptionsError(".".join(path), "cannot be written as TOML", got=repr(value))


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise OptionsError("text", "cannot be written as TOML", got=ascii(text)) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
