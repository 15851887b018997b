"""Native machines of installed distributions: loaded once; a faulty one is a warning, and Python runs everything."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest
from byoc_core.native.toolchain import Toolchain, find_toolchain
from byoc_core.plugin import MACHINES_GROUP, Catalog, PluginRecord
from byoc_core.runtime.extension import extension_status
from byoc_core.runtime.native_machines import NativeMachine, NativeMachines

needs_extension = pytest.mark.skipif(not extension_status()[0], reason="the C extension is not built")
needs_compiler = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
pytestmark = needs_extension

HERE = "core.tests.runtime.test_native_machines"
library: object = None
"""The result of :func:`find_library`, set by a test."""


def find_library() -> object:
    return library


def fail_to_find() -> object:
    raise FileNotFoundError("the library is not built")


def machines(value: str) -> NativeMachines:
    return NativeMachines(Catalog(MACHINES_GROUP, [PluginRecord("fast", MACHINES_GROUP, value, "byoc-fast", "1.0")]))


def compiled(folder: Path, version: int) -> Path:
    """Return a library with a table of a version, and nothing else."""
    source, library = folder / "machine.c", folder / "libmachine.so"
    text = (
        f"const int *byoc_native_machine_table(void) {{ static const int table[16] = {{{version}}}; return table; }}\n"
    )
    source.write_text(text, encoding="ascii")
    subprocess.run([*find_toolchain().command, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


FAULTS = {
    "no_such_module_of_byoc:find": "importing `no_such_module_of_byoc:find` raised ModuleNotFoundError",
    f"{HERE}:fail_to_find": "FileNotFoundError: the library is not built",
    f"{HERE}:HERE": "TypeError: a function is expected, got str",
    f"{HERE}:find_library": "TypeError: expected str, bytes or os.PathLike object, not NoneType",
}


@pytest.mark.parametrize(("value", "problem"), FAULTS.items())
def test_a_faulty_machine_is_a_warning(value: str, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    found = machines(value)
    caplog.set_level(logging.WARNING, "byoc_core")
    for _ in range(3):
        reason = found.open()
        assert isinstance(reason, str)
        assert reason.startswith(f"plugin `fast` (byoc-fast 1.0) cannot be used (broken): {problem}")
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"plugin `fast` (byoc-fast 1.0) cannot be used, and Python runs all functions: {problem}"
    )
    assert "pip " in record.getMessage() or "no_such_module" in value


def test_a_file_without_a_machine_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for path, problem in ((Path(__file__), "OSError"), (Path("/no/such/library.so"), "OSError")):
        monkeypatch.setitem(globals(), "library", path)
        reason = machines(f"{HERE}:find_library").open()
        assert isinstance(reason, str)
        assert problem in reason
        assert "pip install --upgrade byoc-fast byoc-core" in reason


@needs_compiler
def test_another_version_of_the_interface_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "library", compiled(tmp_path, 3))
    reason = machines(f"{HERE}:find_library").open()
    assert isinstance(reason, str)
    assert "has another version of the interface; got 3, expected 2" in reason


@needs_compiler
def test_a_machine_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "library", compiled(tmp_path, 2))
    found = machines(f"{HERE}:find_library")
    machine = found.open()
    assert isinstance(machine, NativeMachine)
    assert machine.label == "plugin `fast` (byoc-fast 1.0)"
    assert found.open() is machine


def test_absence_is_a_reason_with_a_remedy() -> None:
    reason = NativeMachines(Catalog(MACHINES_GROUP)).open()
    assert isinstance(reason, str)
    assert reason.startswith("no native machine is installed")
