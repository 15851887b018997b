"""The repository as data: its packages, their version, and the table ``[tool.byoc]`` of the root ``pyproject.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["EXAMPLES", "PACKAGES", "RELEASED_FILE", "ROOT", "VERSION_FILE", "Settings", "read_settings", "read_version"]

ROOT = Path(__file__).parents[1]
VERSION_FILE = ROOT / "core" / "src" / "byoc_core" / "version.py"
"""The one place of the version."""

RELEASED_FILE = VERSION_FILE.parent / "plugin" / "released.json"
"""Where byoc-core reads which distributions are released with it."""

PACKAGES = (
    "core",
    *(f"plugins/{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))),
    "conformance",
)
"""The folders of the packages of a release."""

EXAMPLES = tuple(path.parent.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("examples/*/pyproject.toml")))
"""The folders of packages that stand on those of a release, with versions of their own."""

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table ``[tool.byoc]``.

    Attributes:
        pythons: the versions of Python that are supported, oldest first.
        index: the address of the package index that has the packages; empty where none has them.
        urls: the addresses of the project's pages by label, with ``{folder}`` for a package's folder; an empty one is
            unknown.
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
    """Return the version in a text of ``version.py``, by default in that of this checkout."""
    found = _VERSION.search(VERSION_FILE.read_text("utf-8") if text is None else text)
    if found is None:
        raise ValueError(f"{VERSION_FILE}: there is no line __version__ = ...")
    return found[1]
