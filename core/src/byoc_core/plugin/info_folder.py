"""The metadata of an installed distribution, read from the folder left by pip or setuptools.

Formats: "Recording installed projects" (the folder), "Core metadata" (the file ``METADATA``, with a head in the form of
a mail header) and "Entry points" (``entry_points.txt``) of the PyPA specifications; and the ``*.egg-info`` of
setuptools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Entry", "InfoFolder"]


class Entry(NamedTuple):
    """An entry point."""

    name: str
    value: str
    group: str


@dataclass(frozen=True, slots=True)
class InfoFolder:
    """A folder ``*.dist-info`` or ``*.egg-info``, read as far as discovery needs.

    The results equal the results of an ``importlib.metadata.Distribution`` of the same folder. Importing that module
    takes some 20 ms, several times as long as reading a hundred folders.

    Attributes:
        path: the folder.
    """

    path: str

    def read_text(self, name: str) -> str | None:
        """Return the text of a file; ``None`` if missing or unreadable."""
        try:
            with open(f"{self.path}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - pathlib would cost more than this
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            return None

    @property
    def metadata(self) -> Mapping[str, str | None]:
        """The fields ``Name`` and ``Version``; ``None`` for a missing field."""
        return {name: next(iter(self._fields(name)), None) for name in ("Name", "Version")}

    @property
    def version(self) -> str:
        """The version; empty if the metadata names none."""
        return self.metadata["Version"] or ""

    @property
    def requires(self) -> list[str]:
        """The lines ``Requires-Dist``, or the equivalent written by older versions of setuptools."""
        lines = self._fields("Requires-Dist")
        if not lines and self.read_text("requires.txt"):
            from importlib.metadata import PathDistribution
            from pathlib import Path

            lines = PathDistribution(Path(self.path)).requires or []
        return lines

    @property
    def entry_points(self) -> list[Entry]:
        """All entry points, in order.

        Raises:
            ValueError: a line is neither a group nor an entry.
        """
        entries = []
        group = ""
        for line in map(str.strip, (self.read_text("entry_points.txt") or "").splitlines()):
            if line.startswith("[") and line.endswith("]"):
                group = line[1:-1]
            elif line and not line.startswith("#"):
                name, equals, value = line.partition("=")
                if not equals:
                    raise ValueError(f"entry_points.txt: {line!r} is not an entry point")
                entries.append(Entry(name.strip(), value.strip(), group))
        return entries

    def _fields(self, field_name: str) -> list[str]:
        """Return the values of all fields of a name."""
        values: list[str] = []
        name = ""
        for line in (self.read_text("METADATA") or self.read_text("PKG-INFO") or "").split("\n"):
            if line[:1] in (" ", "\t"):  # continues the previous line
                if name == field_name.lower():
                    values[-1] += line.rstrip()
                continue
            head, colon, value = line.partition(":")
            if not colon:
                break  # the description begins here
            name = head.lower()
            if name == field_name.lower():
                values.append(value.strip())
        return values
