"""The repository as data: packages, version, and the table ``[tool.byoc]`` of the root ``pyproject.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["EXAMPLES", "PACKAGES", "RELEASED_FILE", "ROOT", "VERSION_FILE", "Settings", "read_settings", "read_version"]

ROOT = Path(__file__).parents[1]
VERSION_FILE = ROOT / "core" / "src" / "byoc_core" / "version.py"
"""The only file with the version."""

RELEASED_FILE = VERSION_FILE.parent / "plugin" / "released.json"
"""The list of the distributions released with byoc-core, read by byoc-core."""

PACKAGES = (
    "core",
    *(f"plugins/{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))),
    "conformance",
    "rt",
)
"""The folders of the packages of a release."""

EXAMPLES = tuple(path.parent.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("examples/*/pyproject.toml")))
"""The folders of packages built on the packages of a release, with separate versions."""

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table ``[tool.byoc]``.

    Attributes:
        pythons: the supported versions of Python, oldest first.
        index: the address of the package index with the packages; empty if no index has the packages.
        urls: the addresses of the project's pages by label, with ``{folder}`` for a package's folder; an empty address
            is unknown.
    """

    pythons: tuple[str, ...]
    index: str
    urls: dict[str, str]

    def urls_of(self, folder: str) -> dict[str, str]:
        """Return the known addresses for the package of a folder."""
        return {label: url.replace("{folder}", folder) for label, url in self.urls.items() if url}


@cache
def read_settings() -> Settings:
    """Return the settings of this checkout."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["byoc"]
    return Settings(tuple(table["pythons"]), table["index"], dict(table["urls"]))


def read_version(text: str | None = None) -> str:
    """Return the version in a text of ``version.py``, by default in the file of this checkout."""
    found = _VERSION.search(VERSION_FILE.read_text("utf-8") if text is None else text)
    if found is None:
        raise ValueError(f"{VERSION_FILE}: there is no line __version__ = ...")
    return found[1]
