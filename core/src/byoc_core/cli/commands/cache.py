"""``byoc cache``: the compiled models kept for sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from byoc_core.session import SessionCache

__all__ = ["manage_cache"]

Action = Literal["show", "verify", "clear"]


def manage_cache(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="[show|verify|clear]",
            help="List the entries; check every byte of them, and remove the damaged ones; or remove entries.",
            show_default=False,
        ),
    ] = "show",
    unused_days: Annotated[
        float,
        typer.Option("--unused-days", min=0.0, help="Clear only entries not used within so many days."),
    ] = 0.0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="FOLDER",
            readable=False,
            help="Another folder than the user's, which is `sessions` in $BYOC_CACHE_DIR, or in the cache folder.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON.")] = False,
) -> None:
    """List, verify or clear the compiled models kept for `byoc_core.Session`.

    An entry that is missing is made again when the model is opened. The least recently used entries are dropped beyond
    16 GiB, or the bytes in BYOC_SESSION_CACHE_NBYTES.
    """
    from rich.filesize import decimal

    from byoc_core.cli.console import print_text
    from byoc_core.errors import OptionsError
    from byoc_core.printable import to_printable_lines
    from byoc_core.session import SessionCache

    cache = SessionCache(folder)
    if unused_days and action != "clear":
        raise OptionsError("--unused-days", "applies to `byoc cache clear` only")
    if action == "clear":
        print_text(f"removed {decimal(cache.clear(unused_days=unused_days))}\n")
        return
    damaged = _remove_damaged(cache) if action == "verify" else []
    if as_json:
        entries = [
            {"path": str(entry.path), "nbytes": entry.nbytes, "used": entry.used, "source": entry.source}
            for entry in cache.entries()
        ]
        print_text(json.dumps({"folder": str(cache.folder), "entries": entries, "removed": damaged}, indent=2) + "\n")
        return
    print_text(to_printable_lines("\n".join([_summary(cache), *(f"removed {line}" for line in damaged)])) + "\n")


def _remove_damaged(cache: SessionCache) -> list[str]:
    """Check every byte of all entries, remove the damaged ones, and return a line for each of these."""
    from byoc_core.artifact import verify
    from byoc_core.errors import ByocError

    damaged = []
    for entry in cache.entries():
        try:
            verify(entry.path)
        except (ByocError, OSError) as error:
            damaged.append(f"{entry.path.name}: {error}")
            entry.path.unlink(missing_ok=True)
    return damaged


def _summary(cache: SessionCache) -> str:
    from datetime import UTC, datetime

    from rich.filesize import decimal

    entries = cache.entries()
    total = decimal(sum(entry.nbytes for entry in entries))
    lines = [f"{cache.folder}: {len(entries)} compiled models, {total}"]
    for entry in entries:
        used = datetime.fromtimestamp(entry.used, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        lines.append(f"  {entry.path.stem[:16]}  {decimal(entry.nbytes):>10}  used {used}  {entry.source or 'unknown'}")
    return "\n".join(lines)
