"""Tests that run again elsewhere: on other Pythons, without plugins, with old versions, beside other programs.

A test file says so itself, by a mark that the root ``pyproject.toml`` describes.
"""

from __future__ import annotations

from sessions.packages import ROOT

__all__ = ["select"]


def select(*marks: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return pytest's arguments for the tests with one of some marks: the mark, and the files that name it.

    Other files are not collected, since what they import may be missing or too old.
    """
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
    named = tuple(f"pytest.mark.{mark}" for mark in marks)
    chosen = [path for path in files if any(name in path.read_text("utf-8") for name in named)]
    return ("-m", " or ".join(marks), *(str(path.relative_to(ROOT)) for path in chosen))
