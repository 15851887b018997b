"""Measure the structure of the packages: ``python -m docs.structure``, from the root of the repository.

    python -m docs.structure                    a table: core, each plugin, the kit, the C runtime
    python -m docs.structure --tree PATH        the same of another checkout
    python -m docs.structure --list             the locations counted by some of the figures
    python -m docs.structure --json             the table as a file of `benchmarks/results`

A *package* is ``core/src/byoc_core``, each ``plugins/*/src/*``, ``conformance/src/byoc_conformance``, or
``rt/src/byoc_rt``. The figures:

Python lines, Python files
    All lines of the package's ``.py`` files, blank lines included; the number of these files.
other lines
    Lines of the package's other text files: C, headers, templates, the report's page, stubs, data.
lines of the C extension
    Lines of all files in the folder ``csrc`` of the distribution.
median file, files over 400 lines
    Over the Python files.
functions, functions over 50 lines
    Methods and nested functions included; a function's length counts from ``def`` to its last line, docstring included.
op names compared
    Decisions by the name of an op; `docs.op_name_uses` defines the counted locations. For core only.
default_ops() calls, backends() calls
    Calls of the functions returning the op registry and the backend registry of the process (``default_ops``;
    ``backends`` of ``byoc_core.backend``, under any local name). Calls in facades do not count: a facade is an
    ``__init__.py``.
such calls in driver and cli
    The calls of both kinds in ``byoc_core.driver`` and ``byoc_core.cli``: these packages choose a default for a user.
    The calls are part of the two figures above.
imports of core, unstable imports of core
    Names imported by a plugin or the kit from modules of core; the share of these names from modules missing in the
    list of ``docs/api-stability.md``, in per cent.
lazy imports
    Import statements inside functions.
`Any` test parameters
    Parameters annotated with ``Any``, of functions in the package's tests.
that/what/which/who, pronouns
    Words of ``RELATIVES`` and of ``PRONOUNS`` (`docs.source_counts`) per 1,000 words of the docstrings.
docstrings that begin with "Gives"
    The share of all docstrings, in per cent.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from benchmarks.results import Column, Result, Row, Table, to_json
from docs.op_name_uses import op_name_lines
from docs.source_counts import (
    any_parameters,
    core_imports,
    default_calls,
    docstring_words,
    function_lengths,
    lazy_imports,
)
from docs.stable_modules import MARKS

__all__ = ["Figure", "Package", "figures_of", "find_packages", "main", "stable_modules"]

CORE = "byoc_core"
BINARY = frozenset({".so", ".pyd", ".pyc", ".dylib"})
LONG_FILE, LONG_FUNCTION = 400, 50
CHOOSING = ("driver", "cli")
"""The parts of core choosing a default for a user."""


@dataclass(frozen=True)
class Package:
    """A package of the tree: the source folder ``src/<name>`` inside the folder of the distribution."""

    source: Path
    distribution: Path

    @property
    def name(self) -> str:
        """The name of the import package."""
        return self.source.name

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """The text of each Python file, by path in the package."""
        return _texts(self.source, "*.py")

    @cached_property
    def tests(self) -> Mapping[str, str]:
        """The text of each Python file of the tests."""
        return _texts(self.distribution / "tests", "*.py")

    def is_module(self, name: str) -> bool:
        """Return whether a dotted name is a module of the package."""
        path = self.source.parent.joinpath(*name.split("."))
        return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@dataclass(frozen=True)
class Figure:
    """A figure of a package: the number as text, and the counted locations if the figure has locations."""

    name: str
    unit: str
    number: str
    locations: tuple[str, ...] = ()


def find_packages(tree: Path) -> list[Package]:
    """Return the packages of a checkout: core, the plugins by name, the kit, the C runtime.

    Raises:
        ValueError: the folder holds no core.
    """
    core = tree / "core" / "src" / CORE
    if not core.is_dir():
        raise ValueError(f"{tree}: holds no {core.relative_to(tree)}")
    patterns = ("plugins/*/src/*", "conformance/src/*", "rt/src/*")
    sources = [core, *(path for pattern in patterns for path in sorted(tree.glob(pattern)))]
    return [Package(path, path.parents[1]) for path in sources if (path / "__init__.py").is_file()]


def stable_modules(page: str) -> frozenset[str]:
    """Return the modules listed by the page on stability.

    The list is a table between two marks, or the block ``MODULES`` in older states of the page.

    Raises:
        ValueError: the page has no such list.
    """
    begin, end = MARKS
    if begin in page:
        return frozenset(re.findall(r"^\| `([\w.]+)` \|", page.partition(begin)[2].partition(end)[0], re.MULTILINE))
    block = re.search(r'^MODULES = """\n(.*?)"""', page, re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError("the page on stability has no list of modules")
    return frozenset(block[1].split())


def figures_of(package: Package, core: Package, stable: frozenset[str]) -> Iterator[Figure]:
    """Yield the figures of a package."""
    sources = package.modules.values()
    sizes = [_num_lines(text) for text in sources]
    yield Figure("Python lines", "lines", str(sum(sizes)))
    yield Figure("Python files", "files", str(len(sizes)))
    other_texts = _texts(package.source, "*", without=".py").values()
    yield Figure("other lines", "lines", str(sum(map(_num_lines, other_texts))))
    extension = _texts(package.distribution / "csrc", "*").values()
    yield Figure("lines of the C extension", "lines", str(sum(map(_num_lines, extension))))
    yield Figure("median file", "lines", f"{statistics.median(sizes):.0f}")
    over = [f"{path}: {size}" for path, size in zip(package.modules, sizes, strict=True) if size > LONG_FILE]
    yield Figure("files over 400 lines", "files", str(len(over)), tuple(over))
    lengths = [length for text in sources for length in function_lengths(text)]
    yield Figure("functions", "functions", str(len(lengths)))
    yield Figure("functions over 50 lines", "functions", str(sum(length > LONG_FUNCTION for length in lengths)))
    if package is core:
        locations = tuple(f"{path}:{line}" for path, text in package.modules.items() for line in op_name_lines(text))
        yield Figure("op names compared", "places", str(len(locations)), locations)
    yield from _default_calls(package)
    if package is not core:
        imports = [name for text in sources for name in core_imports(text, core.is_module)]
        unstable = [name for name in imports if name not in stable]
        yield Figure("imports of core", "names", str(len(imports)))
        percent = 100 * len(unstable) / max(1, len(imports))
        modules = tuple(f"{name}: {unstable.count(name)}" for name in sorted(set(unstable)))
        yield Figure("unstable imports of core", "%", f"{percent:.0f}", modules)
    lazy = tuple(f"{path}:{line}" for path, text in package.modules.items() for line in lazy_imports(text))
    yield Figure("lazy imports", "statements", str(len(lazy)), lazy)
    yield Figure("`Any` test parameters", "parameters", str(sum(map(any_parameters, package.tests.values()))))
    words = docstring_words(sources)
    yield Figure("that/what/which/who", "per 1,000 words", f"{words.relatives_per_1000:.1f}")
    yield Figure("pronouns", "per 1,000 words", f"{words.pronouns_per_1000:.1f}")
    yield Figure('docstrings that begin with "Gives"', "%", f"{words.gives_percent:.0f}")


def _default_calls(package: Package) -> Iterator[Figure]:
    found = [
        (path, f"{path}:{line}", registry)
        for path, text in package.modules.items()
        if Path(path).name != "__init__.py"
        for line, registry in default_calls(text)
    ]
    for name in ("default_ops", "backends"):
        locations = tuple(location for _, location, registry in found if registry == name)
        yield Figure(f"{name}() calls", "calls", str(len(locations)), locations)
    if package.name == CORE:
        choosing = tuple(location for path, location, _ in found if path.split("/")[0] in CHOOSING)
        yield Figure("such calls in driver and cli", "calls", str(len(choosing)))


def _texts(folder: Path, pattern: str, without: str = "") -> dict[str, str]:
    paths = sorted(path for path in folder.rglob(pattern) if path.is_file() and "__pycache__" not in path.parts)
    text_files = (path for path in paths if path.suffix not in BINARY and path.suffix != without)
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in text_files}


def _num_lines(text: str) -> int:
    return text.count("\n")


def measure(tree: Path) -> dict[str, list[Figure]]:
    """Return the figures of each package of a checkout.

    Raises:
        ValueError: the folder is no checkout.
    """
    packages = find_packages(tree)
    stable = stable_modules((tree / "docs" / "api-stability.md").read_text("utf-8"))
    return {package.name: list(figures_of(package, packages[0], stable)) for package in packages}


def to_result(figures: Mapping[str, list[Figure]], revision: str | None) -> Result:
    """Return the figures as a result of today."""
    units = {figure.name: figure.unit for found in figures.values() for figure in found}
    numbers = {name: {figure.name: figure.number for figure in found} for name, found in figures.items()}
    rows = tuple(
        Row(name=name, unit=unit, figures=tuple(numbers[package].get(name) for package in figures))
        for name, unit in units.items()
    )
    columns = tuple(Column(name=name) for name in figures)
    table = Table(
        title="Structure of the packages",
        command="python -m docs.structure",
        rows_are="figure",
        columns=columns,
        rows=rows,
        note="The docstring of `docs/structure.py` defines each figure.",
    )
    today = datetime.now(UTC).date()
    return Result(
        subject="structure",
        title="Size, structure and docstrings of the packages",
        date=today,
        machine="any",
        versions={"revision": revision},
        tables=(table,),
    )


def _revision(tree: Path) -> str | None:
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _print_table(figures: Mapping[str, list[Figure]]) -> None:
    result = to_result(figures, None)
    (table,) = result.tables
    width = max(len(column.name) for column in table.columns) + 2
    print(f"{'':38}{'unit':17}" + "".join(f"{column.name:>{width}}" for column in table.columns))
    for row in table.rows:
        print(f"{row.name:38}{row.unit:17}" + "".join(f"{figure or '':>{width}}" for figure in row.figures))


def _print_locations(figures: Mapping[str, list[Figure]]) -> None:
    for package, found in figures.items():
        for figure in found:
            if figure.locations:
                print(f"\n{package}, {figure.name}: {figure.number}")
                print("\n".join(f"    {location}" for location in figure.locations))


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.structure", description="Measure the structure of the packages."
    )
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="the checkout (this one)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--list", action="store_true", help="also print the locations counted by figures")
    shown.add_argument("--json", action="store_true", help="print a file of benchmarks/results instead of a table")
    arguments = parser.parse_args()
    try:
        figures = measure(arguments.tree)
    except ValueError as error:
        parser.error(str(error))
    if arguments.json:
        print(to_json(to_result(figures, _revision(arguments.tree))), end="")
        return
    _print_table(figures)
    if arguments.list:
        _print_locations(figures)


if __name__ == "__main__":
    main()
