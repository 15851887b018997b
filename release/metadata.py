"""Write the version, the range of byoc-core, the Pythons and the project's pages into the metadata of all packages.

The distributions released together are written into byoc-core: byoc-core advises to install only these.

::

    python -m release.metadata           # after a change of version.py or of [tool.byoc]
    python -m release.metadata 0.3.0     # sets the version first
    python -m release.metadata --check   # exits with 1 if a file differs

The version stands in ``byoc_core/version.py`` alone; ``[tool.byoc]`` of the root ``pyproject.toml`` has the rest. Each
package keeps a copy of its part, because an sdist may need no other file of the repository.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import tomllib

from byoc_core.scaffold.package import core_range
from packaging.version import Version

from release.project import EXAMPLES, PACKAGES, RELEASED_FILE, ROOT, VERSION_FILE, Settings, read_settings, read_version

__all__ = ["render"]

_OWN_VERSION = re.compile(r'^version = ".+"$', re.MULTILINE)
_RANGE = re.compile(r'"(byoc-core|byoc-conformance)(\[\w+\])?[<>=][^"]*"')
_PYTHONS = re.compile(r'(?:^    "Programming Language :: Python :: 3\.\d+",\n)+', re.MULTILINE)
_URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)*\n", re.MULTILINE)
_TOOLS = re.compile(r"^\[tool\.setuptools", re.MULTILINE)


def render(text: str, folder: str, version: str, settings: Settings) -> str:
    """Return the ``pyproject.toml`` of a package with all parts derived from the version and the settings.

    Args:
        text: the present file.
        folder: the package's folder; of an example, only the ranges of byoc's packages are derived.
        version: the version of the release.
        settings: the table ``[tool.byoc]``.
    """
    text = _RANGE.sub(lambda found: f'"{found[1]}{found[2] or ""}{core_range(version)}"', text)
    if folder in EXAMPLES:
        return text
    text = _OWN_VERSION.sub(f'version = "{version}"', text)
    lines = "".join(f'    "Programming Language :: Python :: {python}",\n' for python in settings.pythons)
    text = _PYTHONS.sub(lines, text, count=1)
    text = _URLS.sub("", text)
    if urls := settings.urls_of(folder):
        table = "".join(f'{label} = "{url}"\n' for label, url in urls.items())
        text = _TOOLS.sub(f"[project.urls]\n{table}\n[tool.setuptools", text, count=1)
    return text


def find_differences() -> dict[str, tuple[str, str]]:
    """Return the present and the right text of each wrong file, by path."""
    version, settings = read_version(), read_settings()
    found = {}
    for folder in (*PACKAGES, *EXAMPLES):
        text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
        if (right := render(text, folder, version, settings)) != text:
            found[f"{folder}/pyproject.toml"] = (text, right)
    text = RELEASED_FILE.read_text("utf-8") if RELEASED_FILE.exists() else ""
    if (right := render_released()) != text:
        found[RELEASED_FILE.relative_to(ROOT).as_posix()] = (text, right)
    return found


def render_released() -> str:
    """Return the file of the distributions released with byoc-core: distributions by entry point, by group."""
    groups: dict[str, dict[str, str]] = {}
    for folder in PACKAGES:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        if project["name"] != "byoc-core":
            for group, entries in project.get("entry-points", {}).items():
                groups.setdefault(group, {}).update(dict.fromkeys(entries, project["name"]))
    byoc_groups = {group: entries for group, entries in groups.items() if group.startswith("byoc.")}
    return json.dumps(byoc_groups, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m release.metadata", description=__doc__.splitlines()[0])
    parser.add_argument("version", nargs="?", help="the version to set, such as 0.3.0 or 0.3.0.dev0")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    options = parser.parse_args(arguments)
    if options.version and options.check:
        parser.error("--check sets no version")
    if options.version:
        text = VERSION_FILE.read_text("utf-8")
        new = f'__version__ = "{Version(options.version)}"'
        VERSION_FILE.write_text(text.replace(f'__version__ = "{read_version(text)}"', new), "utf-8")
    differences = find_differences()
    for path, (old, new) in differences.items():
        if options.check:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, "expected", lineterm="")
            print("\n".join(lines))
        else:
            (ROOT / path).write_text(new, "utf-8")
            print(f"wrote {path}")
    if options.check and differences:
        print("The metadata differs from version.py and [tool.byoc]: python -m release.metadata", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
