"""Tests run again elsewhere: on other Pythons, without plugins, with old versions, beside other programs.

A mark in the test file selects these tests; the root ``pyproject.toml`` describes the marks.
"""

from __future__ import annotations

from sessions.packages import ROOT

__all__ = ["select"]


def select(*marks: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return pytest's arguments for the tests with at least one of the marks: the marks, and the files naming a mark.

    Other files are not collected, because their imports may be missing or too old.
    """
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
    named = tuple(f"pytest.mark.{mark}" for mark in marks)
    marked_files = [path for path in files if any(name in path.read_text("utf-8") for name in named)]
    return ("-m", " or ".join(marks), *(str(path.relative_to(ROOT)) for path in marked_files))
