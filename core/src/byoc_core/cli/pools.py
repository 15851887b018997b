"""The option ``--pool``: the memories of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.runtime.pools import Pool

__all__ = ["parse_pool"]


def parse_pool(text: str) -> Pool:
    """Return a pool from ``name=bytes``, ``name=any``, ``name=bytes:alignment`` or ``name=bytes:read``.

    Raises:
        OptionsError: the text has another form.
    """
    from byoc_core.runtime.pools import Pool

    name, equals, rest = text.partition("=")
    limit, *details = rest.split(":")
    numbers = [item for item in details if item.isascii() and item.isdigit()]
    is_limit = limit == "any" or (limit.isascii() and limit.isdigit())
    if not (name and equals and is_limit) or len(numbers) > 1 or set(details) - {*numbers, "read"}:
        raise OptionsError("--pool", "is malformed", got=repr(text), expected="NAME=BYTES[:ALIGNMENT][:read]")
    return Pool(
        name.strip(),
        None if limit == "any" else int(limit),
        alignment=int(numbers[0]) if numbers else 64,
        accesses=frozenset({"read"}) if "read" in details else frozenset({"read", "write"}),
    )
