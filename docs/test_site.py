"""What the site is made of: every page, each in a tree, and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import byoc_core

from docs.site.build import DOCS, gather

TREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages_in_trees(folder: Path) -> set[Path]:
    """Gives the files that the trees of all pages name."""
    found: set[Path] = set()
    for page in folder.rglob("*.md"):
        for tree in TREE.findall(page.read_text("utf-8")):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            found.update(page.parent / name for name in names)
    return found


def test_every_page_stands_in_a_tree(tmp_path: Path) -> None:
    gather(tmp_path)
    pages = {page.with_suffix("") for page in tmp_path.rglob("*.md") if page.name != "index.md"}
    missing = {page for page in pages if page not in pages_in_trees(tmp_path)}
    assert missing == set()
    assert len(pages) >= len(list(DOCS.rglob("*.md"))) - 1


def test_the_reference_describes_every_name_of_the_facade(tmp_path: Path) -> None:
    gather(tmp_path)
    text = (tmp_path / "api" / "byoc_core.rst").read_text("utf-8")
    modules = {name for name in byoc_core.__all__ if type(getattr(byoc_core, name)).__name__ == "module"}
    described = set(re.findall(r":: byoc_core\.(\w+)$", text, re.MULTILINE))
    assert described == set(byoc_core.__all__) - modules


def test_the_pages_themselves_hold_no_markup_of_the_site() -> None:
    assert [page for page in DOCS.rglob("*.md") if TREE.search(page.read_text("utf-8"))] == []
