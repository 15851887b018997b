"""``byoc new-backend``: written files and refusals."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_core.errors import OptionsError
from byoc_core.scaffold.kind import Kind
from byoc_core.scaffold.package import core_range, render_package, write_package
from byoc_core.version import __version__
from packaging.requirements import Requirement

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

ROOT = Path(__file__).parents[3]
# The shortest and the longest name there can be: a line that is too long, or that the formatter would join, shows.
NAMES = ("x", "an_engine_of_24_letters_")


@pytest.fixture(params=[(name, kind) for name in NAMES for kind in Kind], ids="-".join)
def written(request: pytest.FixtureRequest, tmp_path: Path, look_again: Callable[[], None]) -> Path:
    """The folder of a new backend."""
    look_again()
    name, kind = request.param
    write_package(name, kind, tmp_path / "new")
    return tmp_path / "new"


def run(folder: Path, *command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", Kind)
def test_the_files_of_a_package(kind: Kind) -> None:
    files = render_package("my_npu", kind)
    own = {
        Kind.GRAPH: ("engine.py", "runtime.py"),
        Kind.ENGINE: ("engine.py", "library.py", "runner.py", "runtime.py", "translation.py"),
        Kind.CSOURCE: ("codegen.py",),
        Kind.LOWERING: ("library.c", "lowering.py"),
    }
    modules = ("__init__.py", "backend.py", "options.py", "patterns.py", "py.typed", *own[kind])
    assert list(files) == sorted(
        [
            ".github/workflows/ci.yml",
            ".gitignore",
            "CHANGELOG.md",
            "README.md",
            "pyproject.toml",
            "tests/test_backend.py",
            "tests/test_conformance.py",
            *(["tests/test_engine.py"] if kind is Kind.ENGINE else []),
            *(f"src/byoc_my_npu/{module}" for module in modules),
        ]
    )
    assert f"src/byoc_my_npu/{kind.first_file}" in files
    for path, text in files.items():
        assert not re.search(r"@\w+@", text), path
        assert "\r" not in text
        assert text == "" or text.endswith("\n"), path


@pytest.mark.parametrize("kind", Kind)
def test_equal_arguments_give_equal_text(kind: Kind) -> None:
    assert dict(render_package("my_npu", kind)) == dict(render_package("my_npu", kind))
    other = {path.replace("mynpu", "abcde"): text for path, text in render_package("mynpu", kind).items()}
    renamed = {path: text.replace("mynpu", "abcde").replace("Mynpu", "Abcde") for path, text in other.items()}
    assert renamed == dict(render_package("abcde", kind))  # nothing of it depends on the name but the name


BOTH = ["backends", "runtimes"]


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("graph", BOTH), ("engine", BOTH), ("csource", ["backends"]), ("lowering", ["backends"])],
)
def test_the_metadata_is_what_byoc_reads(kind: str, groups: list[str]) -> None:
    files = render_package("my_npu", Kind(kind))
    project = tomllib.loads(files["pyproject.toml"])["project"]
    points = {
        f"byoc.{group}": {"my_npu": f"byoc_my_npu.{half}"}
        for group, half in zip(groups, ["backend", "runtime"], strict=False)
    }
    assert (project["name"], project["license"], project["entry-points"]) == ("byoc-my_npu", "Apache-2.0", points)
    for module in (module for group in points.values() for module in group.values()):
        assert f"src/{module.replace('.', '/')}.py" in files
    (core,) = (Requirement(line) for line in project["dependencies"] if line.startswith("byoc-core"))
    assert core.specifier == Requirement(f"byoc-core{core_range(__version__)}").specifier
    # A newer kit may ask more of a backend that is green.
    (kit,) = (Requirement(line) for line in project["optional-dependencies"]["test"] if line.startswith("byoc-"))
    assert (kit.name, kit.specifier) == ("byoc-conformance", core.specifier)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.1.0", ">=0.1,<0.2"),
        ("0.9.3", ">=0.9,<0.10"),
        ("0.2.0.dev0", ">=0.2.0.dev0,<0.3"),
        ("1.4.0", ">=1.4,<2"),
        ("1.5.0rc1", ">=1.5.0rc1,<2"),
    ],
)
def test_the_range_of_core_versions(version: str, expected: str) -> None:
    assert core_range(version) == expected


def test_the_code_compiles_and_says_what_it_is(written: Path) -> None:
    sources = list(written.rglob("*.py"))
    assert len(sources) >= 7
    for path in sources:
        text = path.read_text("utf-8")
        compile(text, str(path), "exec", dont_inherit=True)
        assert text.startswith('"""'), path
        assert len(text.splitlines()) < 120, path


def test_style_is_clean_by_its_own_rules_and_by_ours(written: Path) -> None:
    pytest.importorskip("ruff")
    run(written, "ruff", "check", "--no-cache", ".")
    run(written, "ruff", "format", "--no-cache", "--check", ".")
    run(written, "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), ".")


def test_types_are_clean(written: Path) -> None:
    pytest.importorskip("mypy")
    cache = str(written.parents[1] / ".mypy_cache")
    tests = [f"tests/{path.name}" for path in sorted((written / "tests").iterdir()) if "conformance" not in path.name]
    run(written, "mypy", "--cache-dir", cache, "--follow-imports=silent", "src", *tests)


BAD_NAMES = {
    "My-NPU": "is not a valid name; got 'My-NPU', expected a lower-case word: letters, digits and `_`, a letter "
    "first, 24 at most",
    "": "is not a valid name; got '', expected a lower-case word: letters, digits and `_`, a letter first, 24 at most",
    "a" * 25: f"is not a valid name; got '{'a' * 25}', expected a lower-case word: letters, digits and `_`, a letter "
    "first, 24 at most",
    "byoc-mynpu": "begins with `byoc`; got 'byoc-mynpu'. The package will be called byoc-NAME.",
    "lambda": "`lambda` is a keyword of Python",
    "conformance": "byoc-conformance is a package of the byoc project",
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        write_package(name, Kind.GRAPH, tmp_path / "new")
    assert str(caught.value) == f"name of the backend: {BAD_NAMES[name]}"
    assert not (tmp_path / "new").exists()


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "byoc_leftover.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {
        "host": f"backend `host` is installed already, by plugin `host` (byoc-core {__version__})",
        "csource": f"runtime `csource` is installed already, by plugin `csource` (byoc-core {__version__})",
        "leftover": "module `byoc_leftover` is installed already",
    }.items():
        with pytest.raises(OptionsError) as caught:
            write_package(name, Kind.GRAPH, tmp_path / "new")
        assert str(caught.value) == f"name of the backend: {text}"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for folder, problem in ((tmp_path, "holds files already"), (tmp_path / "mine", "is a file")):
        with pytest.raises(OptionsError) as caught:
            write_package("mynpu", Kind.GRAPH, folder)
        hint = "Name another folder with --output; nothing is overwritten."
        assert str(caught.value) == f"folder `{folder}`: {problem}. {hint}"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    paths = write_package("mynpu", Kind.CSOURCE, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == list(render_package("mynpu", Kind.CSOURCE))
    assert all(path.is_file() for path in paths)
