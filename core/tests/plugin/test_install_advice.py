"""No text of a stranger becomes a command.

Behind ``pip install`` a message has text of this checkout, or the name of an installed distribution. Names from a file
are doubted, in a single place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / "core/src", ROOT / "conformance/src", *sorted(ROOT.glob("plugins/*/src"))]
COMMAND = re.compile(r"\b(?:pip (?:un)?install|apt-get install|python -m|sudo|curl)\b[^`;,]*$")
INSTALLED = {
    "record.distribution",
    "handle.record.distribution",
    "CORE_DISTRIBUTION",
    "DISTRIBUTION",
    "home",
    "released[name]",
}
"""Placeholders for the name of an installed distribution, or for a constant."""
DOUBTED = "core/src/byoc_core/plugin/absence.py"


def commands_with_names(source: str) -> Iterator[str]:
    """Yield each placeholder inside a command of an f-string."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                name = ast.unparse(part.value)
                if COMMAND.search(text):
                    yield name
                text += name


def test_commands_name_what_is_installed() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for folder in SOURCES
        for path in sorted(folder.rglob("*.py"))
        if (names := set(commands_with_names(path.read_text("utf-8"))) - INSTALLED)
    }
    assert found == {DOUBTED: {"distribution"}}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('f"no: pip install {need.distribution}"', ["need.distribution"]),
        ('f"pip install -U {entry.distribution} {other}"', ["entry.distribution", "other"]),
        ('f"{kind} `{name}`; pip install"', []),
        ('f"`pip install x` brings {name}"', []),
        ('f"pip install x, or remove {name}"', []),
    ],
)
def test_the_check_sees_placeholders_of_commands(source: str, names: list[str]) -> None:
    assert list(commands_with_names(source)) == names
