"""Check how plainly docstrings, messages and pages are written: ``python -m docs.prose``, from the repository's root.

    python -m docs.prose                         a table of all areas; exit status 1 if an area exceeds its limits
    python -m docs.prose --worst 20 PATH...      the texts with the most relative words and pronouns below paths

Two figures are counted per 1,000 words (see `docs.source_counts`): relative words (that, what, which, who) and pronouns
(it, they, them, its, those, one, ones). Well-kept libraries have 10 to 12 relative words and 7 to 10 pronouns. An
*area* is a folder of core, the modules beside these folders, a plugin, the conformance kit, the C runtime's package, a
folder of tools, the messages of a package, or the pages. Messages are all other strings of at least four words: errors,
reasons, help, descriptions. Code blocks of pages do not count.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.source_counts import DocstringWords, docstrings_in, messages_in, words_of

__all__ = ["LIMITS", "Limits", "areas", "main", "problems"]

ROOT = Path(__file__).parents[1]
CORE = "core/src/byoc_core"
PAGES = (
    *("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/tutorial/**/*.md", "core/*.md", "plugins/*/*.md"),
    *("conformance/*.md", "rt/*.md", "examples/*/README.md", "published/README.md", "benchmarks/README.md"),
    "docs/hooks/*.md",
)
PACKAGES = ("plugins/*/src/*", "conformance/src/*", "rt/src/*")
TOOLS = ("docs", "sessions", "release", "benchmarks", "examples")
"""Folders with programs of the repository itself."""

RECORDS = ("docs/adr/*.md", "plugins/*/docs/notes/*.md")

NOT_PROSE = ("ops.md",)
"""Names of pages of facts only: the generated tables of ops."""


@dataclass(frozen=True)
class Limits:
    """The most relative words and pronouns in 1,000 words."""

    relatives: float
    pronouns: float


LIMITS = Limits(16, 14)


def areas(root: Path) -> dict[str, dict[str, list[str]]]:
    """Return the texts of each area by file, in the order of the table."""
    found: dict[str, dict[str, list[str]]] = {}
    core = root / CORE
    folders = sorted(path for path in core.iterdir() if path.is_dir() and any(path.rglob("*.py")))
    _add(found, "core: other modules", root, core.glob("*.py"))
    for folder in folders:
        _add(found, f"core: {folder.name}", root, folder.rglob("*.py"))
    packages = sorted(path for pattern in PACKAGES for path in root.glob(pattern))
    packages = [source for source in packages if (source / "__init__.py").is_file()]
    for source in packages:
        _add(found, source.name, root, source.rglob("*.py"))
    for tools in TOOLS:
        _add(found, tools, root, (root / tools).rglob("*.py"))
    for source in (core, *packages):
        _add(found, f"{source.name}: messages", root, source.rglob("*.py"), messages_in)
    for area, patterns in (("pages", PAGES), ("records and notes", RECORDS)):
        pages = sorted({path for pattern in patterns for path in root.glob(pattern) if path.name not in NOT_PROSE})
        if texts := {str(path.relative_to(root)): [_without_code(path.read_text("utf-8"))] for path in pages}:
            found[area] = texts
    return found


def problems(root: Path, limits: Limits = LIMITS) -> list[str]:
    """Return a line for each area with more relative words or pronouns than allowed."""
    counts = {area: _words(files) for area, files in areas(root).items()}
    return [
        f"{area}: {_figures(words)}; at most {limits.relatives:g} and {limits.pronouns:g}"
        for area, words in counts.items()
        if words.relatives_per_1000 > limits.relatives or words.pronouns_per_1000 > limits.pronouns
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the worst docstrings; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.prose", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; everything if omitted")
    parser.add_argument("--worst", type=int, metavar="N", help="print the N texts with the highest counts")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.paths] or [ROOT]
    selected = {area: _below(files, paths) for area, files in areas(ROOT).items()}
    if options.worst is not None:
        texts = [(name, text) for files in selected.values() for name, found in files.items() for text in found]
        for name, text in sorted(texts, key=lambda item: _score(item[1]), reverse=True)[: options.worst]:
            print(
                f"{name}: {_score(text)} in {words_of([text]).words} words\n    " + text.replace("\n", "\n    ") + "\n"
            )
        return 0
    for area, files in selected.items():
        if files:
            print(f"{area:26} {_figures(_words(files))}, {sum(map(len, files.values()))} texts")
    found = [] if options.paths else problems(ROOT)
    print("\n".join(("", *found)) if found else "")
    return int(bool(found))


def _add(
    found: dict[str, dict[str, list[str]]],
    area: str,
    root: Path,
    paths: Iterable[Path],
    read: Callable[[str], Iterable[str]] = docstrings_in,
) -> None:
    files = {str(path.relative_to(root)): list(read(path.read_text("utf-8"))) for path in sorted(paths)}
    if any(files.values()):
        found[area] = files


def _below(files: Mapping[str, list[str]], paths: Sequence[Path]) -> dict[str, list[str]]:
    return {name: found for name, found in files.items() if any((ROOT / name).is_relative_to(path) for path in paths)}


def _words(files: Mapping[str, Iterable[str]]) -> DocstringWords:
    return words_of([text for found in files.values() for text in found])


def _figures(words: DocstringWords) -> str:
    return f"{words.relatives_per_1000:5.1f} relative words, {words.pronouns_per_1000:5.1f} pronouns per 1,000 words"


def _score(text: str) -> int:
    words = words_of([text])
    return words.relatives + words.pronouns


def _without_code(page: str) -> str:
    """Return a page without its code: blocks between fences, indented blocks, and code in a line."""
    return re.sub(r"`[^`\n]*`", " ", "\n".join(_prose_lines(page)))


def _prose_lines(page: str) -> Iterator[str]:
    fence = ""
    for line in page.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and not line.startswith("    "):
            yield line


if __name__ == "__main__":
    raise SystemExit(main())
