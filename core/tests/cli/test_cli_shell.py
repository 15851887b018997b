"""``byoc`` as a program: help, exit codes, tracebacks, the listings of plugins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from byoc_core.errors import CodegenError, InternalError
from byoc_core.version import __version__

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

COMMANDS = ("backends", "doctor", "demo", "compile", "run", "explain", "plan", "inspect", "verify", "lint-backend")


def test_help_lists_every_command_and_teaches_by_example(byoc: RunByoc) -> None:
    done = byoc("--help")
    assert (done.code, done.err) == (0, "")
    for command in COMMANDS:
        assert f" {command} " in done.out
        text = byoc(command, "-h").out
        assert "Examples:" in text
        assert f" byoc {command}" in text


def test_version(byoc: RunByoc) -> None:
    done = byoc("--version")
    assert (done.code, done.out) == (0, f"byoc {__version__}\n")


@pytest.mark.parametrize("command", ["compile", "compile m.onnx", "compyle", "run --seed -1 x", "verify a b"])
def test_wrong_usage_exits_with_2(byoc: RunByoc, command: str) -> None:
    done = byoc(*command.split())
    assert (done.code, done.out) == (2, "")
    assert "Usage: byoc" in done.err


def test_our_bugs_exit_with_70_and_say_how_to_report(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("byoc_core.artifact.loading.map_file", fail)
    done = byoc("inspect", "x.byoc")
    lines = done.err.splitlines()
    assert (done.code, done.out) == (70, "")
    assert lines[0] == "error: this is a bug in byoc: ZeroDivisionError: division by zero"
    assert lines[1].startswith(f"byoc-core {__version__}, Python 3.")
    assert lines[2].startswith("Please report the bug")
    assert len(lines) == 3
    assert "Traceback" in byoc("--debug", "inspect", "x.byoc").err
    monkeypatch.setenv("BYOC_DEBUG", "1")
    assert "Traceback" in byoc("inspect", "x.byoc").err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InternalError("verifier", "lost a value"), 70, "error: this is a bug in byoc: InternalError: verifier: lost"),
        (MemoryError(), 1, "error: out of memory\n"),
        (PermissionError(13, "Permission denied", "x.byoc"), 1, "error: x.byoc: Permission denied\n"),
        (OSError("no filename"), 1, "error: operating system: no filename\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("byoc_core.artifact.loading.map_file", fail)
    done = byoc("inspect", "x.byoc")
    assert done.code == code
    assert done.err.strip().startswith(text.strip())


def test_notes_of_an_error_are_shown(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        error = CodegenError("function `f`", "is too large")
        error.add_note("raised by plugin `npu` (byoc-npu 1.0), hook `byoc_codegen`")
        raise error

    monkeypatch.setattr("byoc_core.artifact.loading.map_file", fail)
    assert byoc("inspect", "x.byoc").err == (
        "error: function `f`: is too large\n(raised by plugin `npu` (byoc-npu 1.0), hook `byoc_codegen`)\n"
    )


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_backends_lists_both_halves(byoc: RunByoc) -> None:
    done = byoc("backends")
    assert (done.code, done.err) == (0, "")
    rows = rows_of(done.out)
    assert ["host", "byoc-core", __version__, "available", "yes"] in rows
    assert any(row[:5] == ["graph", "byoc-core", __version__, "available", "yes"] for row in rows)
    assert "can compile" in done.out
    assert "can run" in done.out


def test_doctor_finds_no_fault_in_a_good_installation(byoc: RunByoc) -> None:
    done = byoc("doctor")
    assert (done.code, done.err) == (0, ""), done.out
    assert f"backend `host` (byoc-core {__version__}): can compile" in done.out
    assert "settings: the environment names `none`, but no plugin with this name is installed" in done.out
    assert done.out.endswith("\nNo faults found.\n")


BROKEN = "import a_library_that_is_absent"
HALF = """
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Status, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("half")

@hookimpl
def byoc_compile_status():
    return Status(False, "the SDK is missing", "Install the SDK.")

@hookimpl
def byoc_codegen(functions):
    return CodegenResult(None)
"""


@pytest.fixture
def faulty_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (("broken", BROKEN), ("half", HALF)):
        (tmp_path / f"cli_{name}.py").write_text(code)
        info = tmp_path / f"byoc_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: byoc-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[byoc.backends]\n{name} = cli_{name}\n")
    wrecked = tmp_path / "wrecked-1.0.dist-info"
    wrecked.mkdir()
    (wrecked / "METADATA").write_text("Metadata-Version: 2.1\nName: wrecked\nVersion: 1.0\n")
    (wrecked / "entry_points.txt").write_text("[byoc.backends]\nno equals sign\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_s000_3_faulty_plugins_are_listed_with_reason_and_remedy(
    byoc: RunByoc, faulty_site: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_BACKENDS", "broken,half")
    listed = byoc("backends")
    assert (listed.code, listed.err) == (0, "")
    text = " ".join(listed.out.split())
    assert "broken byoc-broken 1.0 broken no importing `cli_broken` raised ModuleNotFoundError:" in text
    assert "half byoc-half 1.0 available no the SDK is missing. Install the SDK." in text
    found = byoc("doctor")
    assert found.code == 1
    lines = found.out.splitlines()
    assert (
        sum(line.startswith("fault  plugins: distribution `wrecked` has unreadable metadata:") for line in lines) == 1
    )
    place = next(index for index, line in enumerate(lines) if line.startswith("fault  backend"))
    assert lines[place] == (
        "fault  backend `broken` (byoc-broken 1.0): broken: importing `cli_broken` raised "
        "ModuleNotFoundError: No module named 'a_library_that_is_absent'"
    )
    assert lines[place + 1] == (
        "       Install the missing module `a_library_that_is_absent`; if it is the plugin's own, "
        "pip install --force-reinstall byoc-broken."
    )
    assert "note   backend `half` (byoc-half 1.0): is unusable here: the SDK is missing" in lines
    assert lines[-1] == "2 faults found."
    demo = byoc("demo")
    assert demo.code == 0, demo.err


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['byoc', '--help']\n"
        "from byoc_core.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'onnx', 'pydantic', 'pluggy', 'byoc_core.ir', 'byoc_core.vm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pipe_that_closes_early_is_no_traceback() -> None:
    command = f"{sys.executable} -c 'from byoc_core.cli.main import main; main()' demo | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "bug in byoc" not in done.stderr
