"""What the site is made of: every page, each in a tree, and every public name."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import byoc_core

from docs.site.build import DOCS, MODULES, gather

TREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^ *from (byoc_(?:core|conformance)[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)


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


def test_the_reference_describes_every_module_that_is_stable() -> None:
    page = (DOCS / "api-stability.md").read_text("utf-8")
    stable = re.findall(r'\nMODULES = """\n(.*?)"""', page, re.DOTALL)[0].split()
    assert sorted(MODULES) == sorted([*stable, "byoc_conformance"])


def test_authors_are_shown_only_what_is_stable() -> None:
    """In the pages, the example of a backend, and what ``byoc new-backend`` writes."""
    root = DOCS.parent
    shown = [*DOCS.rglob("*.md"), *(root / "examples" / "byoc_scipy").rglob("*.py")]
    shown += (root / "core" / "src" / "byoc_core" / "scaffold" / "templates").rglob("*.py.tmpl")
    imports = [(path, *found) for path in shown for found in IMPORT.findall(path.read_text("utf-8"))]
    assert len(imports) > 100
    unstable = []
    for path, module, several, one in imports:
        public = set(import_module(module).__all__) if module in MODULES else set()
        names = {name.split(" as ")[0].strip() for name in (several or one).split(",")} - {""}
        unstable += [f"{path.relative_to(root)}: {module}.{name}" for name in sorted(names - public)]
    assert unstable == []


def test_the_pages_themselves_hold_no_markup_of_the_site() -> None:
    assert [page for page in DOCS.rglob("*.md") if TREE.search(page.read_text("utf-8"))] == []
