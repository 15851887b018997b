"""Contents of the installed wheel; run by nox, which installs wheels and sets ``BYOC_TEST_INSTALLED``."""

from __future__ import annotations

import os
import sysconfig
from importlib import metadata
from pathlib import Path

import byoc_core
import pytest
from byoc_core.runtime.extension import extension_status

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

SOURCE = Path(__file__).parents[2] / "src"

installed = pytest.mark.skipif(
    os.environ.get("BYOC_TEST_INSTALLED") != "1",
    reason="the source tree is under test; nox sets BYOC_TEST_INSTALLED=1 and tests the installed wheel",
)


def recorded_files() -> set[str]:
    """Return the files of the installed byoc-core, as listed in RECORD."""
    return {path.as_posix() for path in metadata.files("byoc-core") or ()}


@installed
def test_the_wheel_is_what_is_imported() -> None:
    assert byoc_core.__file__ is not None
    assert Path(byoc_core.__file__).parents[1] in {Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")}


@installed
def test_the_wheel_holds_every_source_file() -> None:
    sources = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    c_files = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.[ch]")}
    assert len(sources) > 20
    assert c_files != set()
    kinds = {".css", ".html", ".js", ".json", ".tmpl"}
    data = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.suffix in kinds}
    assert {Path(path).suffix for path in data} == kinds
    assert (sources | c_files | data | {"byoc_core/py.typed"}) - recorded_files() == set()


@installed
def test_the_wheel_holds_the_extension_for_all_versions_of_python() -> None:
    """The extension is optional, so a build without a C compiler succeeds; here there is a compiler."""
    assert "byoc_core/_native.abi3.so" in recorded_files()
    assert extension_status() == (True, "")


@installed
def test_the_wheel_holds_nothing_else() -> None:
    permitted = ("byoc_core/", "byoc_core-", "../../../bin/byoc", "../../Scripts/byoc")
    assert [path for path in sorted(recorded_files()) if not path.startswith(permitted)] == []


@installed
def test_every_installed_wheel_of_ours_is_typed_and_licensed() -> None:
    ours = {found.name: found for found in metadata.distributions() if found.name.startswith("byoc-")}
    assert "byoc-core" in ours
    for name, found in ours.items():
        files = {path.as_posix() for path in found.files or ()}
        assert f"{name.replace('-', '_')}/py.typed" in files
        assert [path for path in files if path.endswith("/LICENSE")] != []
        assert found.metadata["License-Expression"] == "Apache-2.0"
        assert found.metadata["Requires-Python"] == ">=3.11"


@installed
def test_plugins_state_the_range_of_core_versions() -> None:
    others = {"byoc-core", "byoc-rt"}  # the C runtime runs without the core
    plugins = [
        found for found in metadata.distributions() if found.name.startswith("byoc-") and found.name not in others
    ]
    for plugin in plugins:
        (core,) = (line for line in plugin.requires or () if line.startswith("byoc-core"))
        assert ">=" in core
        assert "<" in core


def test_entry_points_are_cores_own() -> None:
    ours = [
        (point.group, point.name)
        for point in metadata.distribution("byoc-core").entry_points
        if point.group.startswith("byoc.")
    ]
    runtimes = [("byoc.runtimes", name) for name in ("csource", "graph", "specialised")]
    assert sorted(ours) == [("byoc.backends", "host"), *runtimes]


def test_onnx_is_an_extra() -> None:
    requirements = metadata.requires("byoc-core") or []
    assert [line for line in requirements if line.startswith("onnx")] == ['onnx>=1.16; extra == "onnx"']
