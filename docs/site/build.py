"""Build the site: ``python -m docs.site.build out/site``, from the root of the repository.

The pages are Markdown, readable without the site. Parts needed only by the site (the tree of pages, the reference of
the public names) are added to a copy of the pages.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from byoc_core.backend import hook_specs

from docs.stable_modules import STABLE_MODULES

__all__ = ["gather", "main"]

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
LINK = re.compile(r"(?<=\]\()(?!https?://|#)[^)#\s]+")

TREE = {
    "Use byoc": [
        "session",
        "states",
        "weights",
        "from-onnx-runtime",
        "serving",
        "inspect",
        "foreign-operators",
        "onnx-suite",
        "exported-models",
        "offload-by-hand",
        "ccompiler-ops",
        "dnnl-ops",
        "partition-policies",
        "passes",
        "explain",
        "generated-code",
        "tune",
        "calibrate",
        "profile",
        "bench",
        "debug",
        "threads",
        "native-calls",
        "benchmarks/README",
        "libraries",
        "c-export",
        "c-runtime",
        "api-stability",
        "api/index",
        "glossary",
    ],
    "Write a backend": [
        "write-a-backend",
        "tutorial/README",
        "patterns",
        "how-partition-decides",
        "c-kit",
        "lowering",
        "whole-graph-engine",
        "own-ops",
        "threads-memory-constants",
        "hooks/README",
        "plugin-types",
        "ops",
        "conformance",
        "publishing",
    ],
    "Contribute": [
        "algorithms",
        "adr/README",
        "plugins/ccompiler/docs/notes/README",
        "plugins/dnnl/docs/notes/README",
    ],
}
"""The pages of the site, by the headings of its side bar."""

SECTIONS = ("tutorial", "hooks", "adr", "plugins/ccompiler/docs/notes", "plugins/dnnl/docs/notes", "benchmarks")
"""Folders of the site with a README as the index of their other pages."""
MODULES = (*STABLE_MODULES, "byoc_conformance")
"""The modules of the reference: the modules of ``api-stability.md`` with all their exports, and the kit."""
_SPHINX = "import gc, runpy; gc.disable(); runpy.run_module('sphinx', run_name='__main__', alter_sys=True)"
"""A process of Sphinx without garbage collection: all trees take 700 MB, the collector a quarter of the time."""


def gather(folder: Path) -> None:
    """Write the input of Sphinx; for Sphinx, a page outside all trees is a fault."""
    outside = (*ROOT.glob("plugins/*/docs/notes/*.md"), *ROOT.glob("benchmarks/*.md"))
    for page in (*sorted(DOCS.rglob("*.md")), *sorted(outside)):
        target = folder / _path_in_site(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_relinked(page), "utf-8")
    (folder / "drawings").mkdir()
    for drawing in sorted(DOCS.glob("drawings/*.svg")):
        shutil.copyfile(drawing, folder / "drawings" / drawing.name)
    (folder / "README.md").rename(folder / "index.md")
    _append_trees(folder / "index.md", TREE)
    for section in SECTIONS:
        pages = [p.stem for p in sorted((folder / section).glob("*.md")) if p.stem != "README"]
        _append_trees(folder / section / "README.md", {"": pages})
    (folder / "api").mkdir()
    described: set[int] = set()
    for name in MODULES:
        (folder / "api" / f"{name}.rst").write_text("\n".join(_reference(name, described)) + "\n", "utf-8")
    index = ["# Reference", "", "All names for programs and plugins, by exporting module.", ""]
    (folder / "api" / "index.md").write_text("\n".join(index), "utf-8")
    _append_trees(folder / "api" / "index.md", {"": list(MODULES)}, hidden=False)


def _path_in_site(page: Path) -> Path:
    """Return the site's path of a page: pages of ``docs`` at the root, all others by their path in the repository."""
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT)


def _relinked(page: Path) -> str:
    """Return the text of a page with the links to other pages adapted to the site."""
    folder = _path_in_site(page).parent

    def relink(link: re.Match[str]) -> str:
        target = (page.parent / link[0]).resolve()
        return os.path.relpath(_path_in_site(target), folder) if target.is_file() else link[0]

    return LINK.sub(relink, page.read_text("utf-8"))


def _append_trees(page: Path, trees: dict[str, list[str]], *, hidden: bool = True) -> None:
    lines = [page.read_text("utf-8")]
    for caption, pages in trees.items():
        options = [":hidden:"] * hidden + [f":caption: {caption}"] * bool(caption) + [":maxdepth: 1"]
        lines += ["```{toctree}", *options, "", *pages, "```", ""]
    page.write_text("\n".join(lines), "utf-8")


def _reference(name: str, described: set[int]) -> Iterator[str]:
    """Yield the lines of a module's page; an object described by another page is only named."""
    module = import_module(name)
    yield from (name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", "")
    hooks = {hook.name for hook in hook_specs()}
    if hooks.intersection(module.__all__):
        yield from ("Each hook has :doc:`a separate page </hooks/README>`.", "")
    elsewhere = []
    for public in sorted(module.__all__):
        value = getattr(module, public)
        if inspect.ismodule(value) or public in hooks:
            continue
        if id(value) in described:
            elsewhere.append(public)
            continue
        described.add(id(value))
        if isinstance(value, type):
            yield from (f".. autoclass:: {name}.{public}", "   :members:", "")
        elif inspect.isroutine(value):
            yield from (f".. autofunction:: {name}.{public}", "")
        else:
            yield from (f".. py:data:: {name}.{public}", "", f"   A ``{type(value).__qualname__}``.", "")
    if elsewhere:
        yield f"Described under another exporting module: {', '.join(f'``{n}``' for n in elsewhere)}."


def main() -> None:
    """Build the site in the folder named on the command line; ``--theme basic`` builds plain pages in half the time.

    Raises:
        SystemExit: Sphinx found a fault, and has printed the fault.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--theme", help="a theme of Sphinx in place of the theme of conf.py")
    parser.add_argument("--jobs", default="auto", help="the number of processes (default: all processors)")
    command_line = parser.parse_args()
    target = command_line.folder.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        gather(source)
        folders = ["-c", str(DOCS / "site"), "-d", str(source / ".trees"), str(source), str(target)]
        theme = ["-D", f"html_theme={command_line.theme}"] if command_line.theme else []
        options = ["-q", "-j", command_line.jobs, "-b", "html", "-n", "-W", "--keep-going", *theme]
        command = [sys.executable, "-c", _SPHINX, *options, *folders]
        done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
