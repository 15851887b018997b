"""Check the names in the code: ``python -m docs.names``, from the root of the repository.

    python -m docs.names             all vague names; exit status 1 if there is any
    python -m docs.names PATH...     the vague names below paths

A name is vague if it says how a value came about or where it stands in a sentence, but not what the value is: ``made``,
``told``, ``whole``, ``what``. Checked are the names of modules, classes, functions, parameters, attributes and local
variables. `VAGUE` holds the words; leading and trailing underscores of a name do not count. Longer names may contain a
word of `VAGUE` (``is_known``), but no word of `ODD`. `PROMISED` lists the exceptions: names that callers pass.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["main", "names_in", "vague_names"]

ROOT = Path(__file__).parents[1]
SOURCES = (
    *("core/src", "plugins/*/src", "conformance/src", "rt/src"),
    *("docs", "sessions", "release", "benchmarks", "examples"),
)

VAGUE = {
    "index, offset, slot, location, rank": ("place", "places"),
    "the noun: facts, sizes, constants": ("known", "given", "stated", "said", "told"),
    "the noun: result, function, nodes": (
        "made",
        "taken",
        "kept",
        "held",
        "chosen",
        "asked",
        "wanted",
        "come",
        "comes",
    ),
    "full, entire, or the noun": ("whole", "wholes"),
    "subject, label, or the noun": ("what",),
    "the noun": ("one", "others", "piece", "pieces", "thing", "things", "here", "there", "again", "wish", "wishes"),
    "task, request": ("job", "jobs"),
    "route, variant, axis": ("way", "ways"),
    "broadcast, range, fill": ("spread",),
}
"""Words that are vague alone, by the names to use instead."""

ODD = frozenset({"told", "wish", "wishes", "forgetful", "lawfully", "rightly", "misclaim", "conduct", "aims"})
"""Words that are no part of any name."""

PROMISED = frozenset(
    (f"core/src/byoc_core/{module}", name)
    for module, name in (
        ("authoring/c/indices.py", "one"),
        ("authoring/c/loops.py", "one"),
        ("authoring/c/nest.py", "one"),
        ("authoring/csource_scope.py", "wanted"),
        ("authoring/csource_scope.py", "what"),
        ("authoring/csource_types.py", "taken"),
        ("backend/handle.py", "given"),
        ("backend/registry.py", "chosen"),
        ("backend/registry.py", "given"),
        ("dims/substitution.py", "given"),
        ("dims/substitution.py", "known"),
        ("errors.py", "known"),
        ("ops/cases.py", "given"),
        ("opset/opdef.py", "given"),
        ("plugin/absence.py", "known"),
        ("runtime/arguments.py", "places"),
        ("runtime/threads/setting.py", "wanted"),
        ("transform/fold_constants.py", "kept"),
    )
)
"""Parameters and fields of public functions and classes, by file: callers pass or read these by name."""


def names_in(source: str) -> Iterator[tuple[str, int]]:
    """Yield each definition of a module as name and line.

    Definitions are classes, functions, parameters, variables, attributes, and names given to imports.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield name, node.lineno


def advice(name: str) -> str | None:
    """Return the names to use instead of a vague name; ``None`` for other names."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    if any(word.lower() in ODD for word in words):
        return "the field's term"
    bare = name.strip("_").lower()
    return next((better for better, vague in VAGUE.items() if bare in vague), None)


def vague_names(root: Path, paths: Sequence[Path] = ()) -> list[str]:
    """Return a line for each vague name of the sources below a root, or of the sources below some paths only."""
    found = []
    for source in sorted(file for pattern in SOURCES for file in root.glob(f"{pattern}/**/*.py")):
        if paths and not any(source.is_relative_to(path) for path in paths):
            continue
        path = source.relative_to(root).as_posix()
        names = dict.fromkeys(((source.stem, 1), *names_in(source.read_text("utf-8"))))
        for name, line in sorted(names, key=lambda item: item[1]):
            if (better := advice(name)) and (path, name) not in PROMISED:
                found.append(f"{path}:{line}: {name}: better: {better}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the vague names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.names", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; everything if omitted")
    options = parser.parse_args(arguments)
    found = vague_names(ROOT, [path.resolve() for path in options.paths])
    print("\n".join((*found, f"{len(found)} vague names")))
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
