"""Makes the site: ``python -m docs.site.build out/site``, from the root of the repository.

The pages are Markdown that reads well as it is, so what only a site needs (the tree of its pages, the reference of the
public names) is added to a copy of them.
"""

from __future__ import annotations

import inspect
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

TREE = {
    "Use it": [
        "offload-by-hand",
        "ccompiler-ops",
        "dnnl-ops",
        "generated-code",
        "partition-policies",
        "explain",
        "debug",
        "threads",
        "libraries",
        "native-calls",
    ],
    "Write a backend": [
        "write-a-backend",
        "whole-graph-engine",
        "tutorial/README",
        "hooks/README",
        "plugin-types",
        "ops",
        "patterns",
        "how-partition-decides",
        "threads-memory-constants",
        "conformance",
        "publishing",
    ],
    "Reference": ["api-stability", "api/index", "adr/README"],
}
"""The pages of the site, by the headings of its side bar."""

MODULES = (*STABLE_MODULES, "byoc_conformance")
"""What the reference describes: everything that the modules of ``api-stability.md`` export, and the kit."""


def gather(folder: Path) -> None:
    """Writes what Sphinx reads: a page that stands in no tree is a fault that it finds."""
    for page in sorted(DOCS.rglob("*.md")):
        target = folder / page.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    (folder / "README.md").rename(folder / "index.md")
    _append_trees(folder / "index.md", TREE)
    for section in ("tutorial", "hooks", "adr"):
        pages = [p.stem for p in sorted((folder / section).glob("*.md")) if p.stem != "README"]
        _append_trees(folder / section / "README.md", {"": pages})
    (folder / "api").mkdir()
    described: set[int] = set()
    for name in MODULES:
        (folder / "api" / f"{name}.rst").write_text("\n".join(_reference(name, described)) + "\n", "utf-8")
    index = ["# Reference", "", "Everything that is meant for programs and plugins, by the module that exports it.", ""]
    (folder / "api" / "index.md").write_text("\n".join(index), "utf-8")
    _append_trees(folder / "api" / "index.md", {"": list(MODULES)}, hidden=False)


def _append_trees(page: Path, trees: dict[str, list[str]], *, hidden: bool = True) -> None:
    lines = [page.read_text("utf-8")]
    for caption, pages in trees.items():
        options = [":hidden:"] * hidden + [f":caption: {caption}"] * bool(caption) + [":maxdepth: 1"]
        lines += ["```{toctree}", *options, "", *pages, "```", ""]
    page.write_text("\n".join(lines), "utf-8")


def _reference(name: str, described: set[int]) -> Iterator[str]:
    """Yields the lines of a module's page; an object that another page describes is only named."""
    module = import_module(name)
    yield from (name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", "")
    hooks = {hook.name for hook in hook_specs()}
    if hooks.intersection(module.__all__):
        yield from ("Each hook has :doc:`a page of its own </hooks/README>`.", "")
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
        yield f"Described under another module that exports them too: {', '.join(f'``{n}``' for n in elsewhere)}."


def main() -> None:
    """Makes the site in the folder that the command line names.

    Raises:
        SystemExit: Sphinx found a fault; it says which.
    """
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        gather(source)
        folders = ["-c", str(DOCS / "site"), "-d", str(source / ".trees"), str(source), str(target)]
        options = ["-q", "-j", "auto", "-b", "html", "-n", "-W", "--keep-going"]
        command = [sys.executable, "-m", "sphinx", *options, *folders]
        done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
