"""A fault of a plugin's source, as data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["PlantedFault", "source_of"]

_PLUGINS = Path(__file__).resolve().parents[3] / "plugins"


class PlantedFault(NamedTuple):
    """A replacement in a source file of a plugin.

    Attributes:
        name: of the fault.
        plugin: of the plugin, and of its backend.
        file: the source file, relative to the folder ``src`` of the plugin.
        before: the right text, with a single occurrence in the file.
        after: the wrong text.
        description: a sentence on the inputs computed wrongly.
        tests: the tests of the kit expected to catch the fault, as patterns of ids.
    """

    name: str
    plugin: str
    file: str
    before: str
    after: str
    description: str
    tests: tuple[str, ...]

    @property
    def package(self) -> str:
        """The name of the plugin's package."""
        return self.file.partition("/")[0]

    def faulty_text(self) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: ``before`` does not occur exactly once, so the fault has to be adapted to the source.
        """
        text = (source_of(self.plugin) / self.file).read_text(encoding="utf-8")
        count = text.count(self.before)
        if count != 1:
            raise ValueError(f"fault `{self.name}`: the text occurs {count} times in {self.file}, expected once")
        return text.replace(self.before, self.after)


def source_of(plugin: str) -> Path:
    """Return the folder ``src`` of a plugin."""
    return _PLUGINS / plugin / "src"
