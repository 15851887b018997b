"""Contents of the installed wheel; run by nox, which installs wheels and sets ``BYOC_TEST_INSTALLED``."""

from __future__ import annotations

import ast
import email
import os
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import byoc_rt
import pytest

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "rt" / "src"

installed = pytest.mark.skipif(
    os.environ.get("BYOC_TEST_INSTALLED") != "1",
    reason="the source tree is under test; nox sets BYOC_TEST_INSTALLED=1 and tests the installed wheel",
)


def recorded_files() -> set[str]:
    """Return the files of the installed byoc-rt, as listed in RECORD."""
    return {path.as_posix() for path in metadata.files("byoc-rt") or ()}


@installed
def test_the_wheel_holds_sources_header_and_library_and_nothing_else() -> None:
    sources = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    files = {"byoc_rt/py.typed", "byoc_rt/include/byoc_rt.h", f"byoc_rt/lib/{byoc_rt.library_path().name}"}
    recorded = {path for path in recorded_files() if not path.endswith(".pyc")}
    assert {path for path in recorded if not path.startswith("byoc_rt-")} == sources | files
    assert any(path.endswith("/licenses/LICENSE") for path in recorded)


@installed
def test_a_wheel_serves_every_python_of_a_platform() -> None:
    described = email.message_from_string(metadata.distribution("byoc-rt").read_text("WHEEL") or "")
    assert described["Root-Is-Purelib"] == "false"
    tags = described.get_all("Tag") or []
    assert [tag.rpartition("-")[0] for tag in tags] == ["py3-none"] * len(tags)
    assert "py3-none-any" not in tags


@installed
def test_the_header_of_the_wheel_is_that_of_the_repository() -> None:
    header = byoc_rt.include_directory() / "byoc_rt.h"
    assert header.read_bytes() == (ROOT / "rt" / "include" / "byoc_rt.h").read_bytes()
    assert ROOT / "rt" not in header.resolve().parents


def test_nothing_else_is_needed() -> None:
    assert tomllib.loads((ROOT / "rt" / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"] == []
    trees = [ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")]
    assert len(trees) > 2
    imported = {
        name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names) == {"byoc_rt"}


def test_files_shared_with_the_core_are_the_files_of_the_core() -> None:
    shared = list((ROOT / "rt" / "csrc" / "shared").iterdir())
    assert {"byoc_executor.c", "sizes.c"} <= {path.name for path in shared}
    assert [path.name for path in shared if not path.resolve().is_relative_to(ROOT / "core")] == []
