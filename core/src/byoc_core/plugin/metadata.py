"""The declarations of installed distributions as text: entry points, versions, requirements. No plugin code runs here.

Cost: one pass over ``sys.path``, a few milliseconds per hundred distributions. Importing ``importlib.metadata`` takes
some 20 ms, so ``importlib.metadata`` is used only if already imported, or if distributions lie outside pip's usual
places. Versions are compared later, on the first request for a plugin.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from byoc_core.plugin.info_folder import InfoFolder

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["Declaration", "Metadata", "Snapshot", "normalise", "read_metadata"]

_GROUP_PREFIX = "byoc."


@dataclass(frozen=True, slots=True)
class Declaration:
    """A distribution declaring plugins.

    Attributes:
        distribution: the distribution's name.
        version: the distribution's version.
        requires: the ``Requires-Dist`` lines naming a distribution of byoc.
        entries: group, name and value of each entry point of byoc's groups, sorted, without duplicates.
    """

    distribution: str
    version: str
    requires: tuple[str, ...]
    entries: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """All readable declarations, and the problems of unreadable declarations."""

    declarations: tuple[Declaration, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Metadata and environment variables at one moment."""

    metadata: Metadata
    environment: Mapping[str, str]


def read_metadata(path: Sequence[str] | None = None) -> Metadata:
    """Read the declarations of installed distributions.

    A distribution found on the path twice (an editable install beside a wheel) counts once, at the first place, like in
    an import.

    Args:
        path: folders to look in; by default ``sys.path``.
    """
    declarations: list[Declaration] = []
    problems: list[str] = []
    for distribution in _distinct_distributions(path):
        try:
            declarations.append(_declaration(distribution))
        except Exception as error:  # noqa: BLE001 - foreign metadata may fail in any way; one bad file must not stop the rest
            problems.append(f"distribution `{_name_of(distribution)}` has unreadable metadata: {error}")
    return Metadata(tuple(declarations), tuple(problems))


def normalise(name: str) -> str:
    """Return a distribution's name in packaging's form for comparison: lower case, runs of ``-_.`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _declaration(distribution: Distribution | InfoFolder) -> Declaration:
    entries = {
        (entry.group, entry.name, entry.value)
        for entry in distribution.entry_points
        if entry.group.startswith(_GROUP_PREFIX)
    }
    requires = tuple(line for line in distribution.requires or () if line.lower().startswith("byoc"))
    return Declaration(_name_of(distribution), distribution.version, requires, tuple(sorted(entries)))


def _distinct_distributions(path: Sequence[str] | None) -> Iterator[Distribution | InfoFolder]:
    seen: set[str] = set()
    for distribution in _distributions(path):
        if _mentions_plugins(distribution):
            name = normalise(_name_of(distribution))
            if name not in seen:
                seen.add(name)
                yield distribution


def _distributions(path: Sequence[str] | None) -> Iterator[Distribution | InfoFolder]:
    """Yield the results of ``importlib.metadata.distributions``, in order; use the module if already imported."""
    foreign = any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path)
    if "importlib.metadata" in sys.modules or (path is None and foreign):
        from importlib.metadata import distributions

        yield from distributions() if path is None else distributions(path=list(path))
        return
    for entry in sys.path if path is None else path:
        try:
            folder = os.fsdecode(entry)
            names = os.listdir(folder or ".")  # noqa: PTH208 - names are all that is wanted
        except NotADirectoryError:
            from importlib.metadata import distributions

            yield from distributions(path=[folder])
            continue
        except (OSError, TypeError, ValueError):  # missing, or no path at all: imports skip it too
            continue
        yield from (
            InfoFolder(f"{folder or '.'}/{name}") for name in names if name.lower().endswith((".dist-info", "egg-info"))
        )


def _mentions_plugins(distribution: Distribution | InfoFolder) -> bool:
    try:
        return f"[{_GROUP_PREFIX}" in (distribution.read_text("entry_points.txt") or "")
    except (OSError, ValueError):
        return False


def _name_of(distribution: Distribution | InfoFolder) -> str:
    try:
        name = distribution.metadata["Name"]  # typed `str`, but None where METADATA has no such field
    except Exception:  # noqa: BLE001 - told with the declaration, which cannot be read either
        name = None
    return str(name or getattr(distribution, "path", None) or getattr(distribution, "_path", "unknown"))
