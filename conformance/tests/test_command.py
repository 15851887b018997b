"""``byoc conformance``, run as by a user, on a completely wrong backend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Item
from byoc_conformance.promises import all_items, all_promises, find_item
from byoc_conformance.report import write_report
from byoc_conformance.runner import ItemResult, Runner
from byoc_conformance.verdict import Verdict
from byoc_core.cli.main import main
from byoc_core.errors import InternalError

from conformance.tests.samples import ALL_PASSED, new_report
from conformance.tests.toys import CRASHES, DECLINES, FAILS, HANGS, install_toy

pytestmark = pytest.mark.lowest


@dataclass(frozen=True)
class Done:
    """The outcome of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]) -> str:
    """The name of the backend of :mod:`conformance.tests.toys`, installed for this process and its children."""
    install_toy(tmp_path / "toy")
    monkeypatch.syspath_prepend(str(tmp_path / "toy"))
    look_again()
    return "toy"


@pytest.fixture
def conformance(toy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return a function running ``byoc conformance`` with arguments, in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr("sys.argv", ["byoc", "conformance", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Done(int(caught.value.code or 0), captured.out, captured.err)

    return run


def only(*names: str) -> list[str]:
    """Return the arguments choosing tests."""
    return [argument for name in names for argument in ("--only", name)]


@pytest.mark.parametrize("num_parallel", ["1", "3"])
def test_a_run_prints_each_broken_test_and_a_summary(conformance: Run, num_parallel: str) -> None:
    selection = only(CRASHES, HANGS, FAILS, DECLINES)
    done = conformance("toy", *selection, "--patience", "0.02", "--report", "out", "--jobs", num_parallel)
    assert done.code == 1
    assert sorted(done.err.splitlines()) == sorted(
        [f"{CRASHES}: crashed", f"{HANGS}: hung", f"{FAILS}: failed", "L1: 4 tests done"]
    )
    assert done.err.endswith("L1: 4 tests done\n")
    lines = done.out.splitlines()
    assert lines[0] == f"{CRASHES}: crashed"
    assert lines[1:3] == [
        f"    while `{CRASHES}` ran: the process ended with signal SIGABRT",
        "    the driver is gone",
    ]
    deadline = 0.02 * find_item(HANGS).promise.deadline
    assert f"    while `{HANGS}` ran: no result within {deadline:g} s" in lines
    left_out = len(all_items()) - 4
    assert lines[-2:] == [f"toy: partial 0/3, {left_out} not run", "report: out/conformance.html"]
    row = next(line.split() for line in lines if line.strip().startswith("all "))
    assert row == ["all", "0", "1", f"{left_out}", "1", "1", "1"]
    report = json.loads(Path("out/conformance.json").read_text())
    found = {item["id"]: item["status"] for item in report["items"] if item["status"] != "not-run"}
    assert found == {CRASHES: "crashed", HANGS: "hung", FAILS: "failed", DECLINES: "declined"}
    assert [item["id"] for item in report["items"]] == [item.id for item in all_items()]


def test_overrides(conformance: Run) -> None:
    Path("known.toml").write_text(f'[xfail]\n"{FAILS}" = "it has no table of sines"\n')
    done = conformance("toy", *only(FAILS), "--xfail", "known.toml", "--json")
    assert (done.code, done.err) == (0, "L1: 1 test done\n")
    items = {item["id"]: item for item in json.loads(done.out)["items"]}
    assert items[FAILS]["status"] == "xfailed"
    Path("known.toml").write_text(f'[xfail]\n"{DECLINES}" = "it has no table of cosines"\n')
    done = conformance("toy", *only(DECLINES), "--xfail", "known.toml")
    assert done.code == 1
    assert f"{DECLINES}: xpassed\n    is expected to be broken (it has no table of cosines), but is not: " in done.out


def test_a_fault_of_the_kit_is_an_internal_error_and_loses_nothing(
    conformance: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Runner, item: Item) -> ItemResult:
        if item.id == HANGS:
            raise InternalError("kit", "is at fault")
        return ItemResult(item, Outcome(), 0.5)

    monkeypatch.setattr(Runner, "run", run)
    done = conformance("toy", *only(CRASHES, HANGS, DECLINES), "--report", "out")
    assert done.code == 70
    assert "this is a bug in byoc: InternalError: kit: is at fault" in done.err
    items = json.loads(Path("out/conformance.json").read_text())["items"]
    assert [item["id"] for item in items if item["status"] != "not-run"] == [CRASHES]


def test_a_report_that_cannot_be_written_is_printed(conformance: Run) -> None:
    Path("out/conformance.json").mkdir(parents=True)
    done = conformance("toy", *only(FAILS), "--report", "out")
    assert done.code == 1
    assert done.err == f"{FAILS}: failed\nL1: 1 test done\nerror: out/conformance.json: Is a directory\n"
    assert "LookupError: <no> sine" in done.out
    assert "report: " not in done.out
    as_json = conformance("toy", *only(FAILS), "--report", "out", "--json")
    assert json.loads(as_json.out)["is_red"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nobody may write")
def test_a_folder_that_cannot_be_written_is_found_before_any_test_runs(conformance: Run) -> None:
    done = conformance("toy", *only(FAILS), "--report", "/sys")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: /sys: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["toi"], "error: byoc.backends: backend `toi` is not installed; installed: "),
        (["toy", "--with", "toi"], "error: byoc.backends: backend `toi` is not installed; installed: "),
        (["toy", "--level", "L5"], "error: --level: names no level; got 'L5', expected L0, L1, L2, L3, L4\n"),
        (["toy", "--only", "L5*"], "error: --only L5*: matches no test\n"),
        (
            ["toy", "--level", "L0", "--only", "L2-op[abs]"],
            "error: --only L2-op[abs]: matches no test of L0, but tests of L2. Leave out the level L0, or choose L2.\n",
        ),
        (["--list", "--level", "L5"], "error: --level: names no level; got 'L5', expected L0, L1, L2, L3, L4\n"),
        (["toy", "--option", "x"], "error: --option: is malformed; got 'x', expected KEY=VALUE, or NAME.KEY=VALUE\n"),
        (["toy", "--xfail", "absent.toml"], "error: absent.toml: No such file or directory\n"),
        (["compare", "absent.json", "absent.json"], "error: absent.json: No such file or directory\n"),
    ],
)
def test_the_users_errors(conformance: Run, arguments: list[str], text: str) -> None:
    done = conformance(*arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(text)


@pytest.mark.parametrize("arguments", [["--jobs", "0", "toy"], ["--report", "out"], ["compare", "one.json"], ["--no"]])
def test_wrong_usage(conformance: Run, arguments: list[str]) -> None:
    done = conformance(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Usage: byoc conformance" in done.err


def test_help(conformance: Run) -> None:
    shown = conformance("--help").out
    assert "byoc conformance compare old.json new.json" in shown
    assert "--list" in shown
    assert "List improvements and regressions" in conformance("compare", "-h").out


def test_the_list_of_promises(conformance: Run) -> None:
    done = conformance("--list")
    assert done.code == 0
    for promise in all_promises():
        assert f"  {promise.level}-{promise.name}" in done.out
        assert f": {promise.text}\n" in done.out
    assert done.out.endswith(f"\n{len(all_promises())} promises, {len(all_items())} tests.\n")
    rows = json.loads(conformance("--list", "--json").out)["promises"]
    assert [name for row in rows for name in row["tests"]] == [item.id for item in all_items()]


def test_the_list_of_what_is_chosen(conformance: Run) -> None:
    shown = conformance("--list", "--only", "L2-op[abs]", "--only", "L0-lint").out.splitlines()
    assert shown[0].startswith("L0 declares: ")
    assert shown[1].startswith("  L0-lint: ")
    assert shown[3].startswith("  L2-op (1 of ")
    assert shown[4:] == ["    L2-op[abs]", "", "2 promises, 2 tests."]
    rows = json.loads(conformance("toy", "--list", "--level", "L0", "--json").out)["promises"]
    assert [row["name"] for row in rows] == [item.name for item in all_promises() if item.level.value == "L0"]


def test_stdout_and_stderr_may_be_one_file(tmp_path: Path) -> None:
    code = "from byoc_core.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "conformance", "toy", *only(DECLINES)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": install_toy(tmp_path / "toy")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "L1: 1 test done"
    assert lines[-1] == f"toy: partial 0/0, {len(all_items()) - 1} not run"


def test_compare(conformance: Run) -> None:
    write_report(new_report(ALL_PASSED | {"L2-x": Verdict.FAILED}), Path("a"))
    write_report(new_report(ALL_PASSED | {"L3-promise": Verdict.DECLINED, "L2-x": Verdict.PASSED}), Path("b"))
    done = conformance("compare", "a/conformance.json", "b/conformance.json")
    assert (done.code, done.err) == (1, "")
    assert done.out == (
        "tests, worse (1)\n  L3-promise: passed -> declined\ntests, better (1)\n  L2-x: failed -> passed\n"
        "Something got worse.\n"
    )
    write_report(new_report({"L0-promise": Verdict.FAILED}, backend="other"), Path("c"))
    other = conformance("compare", "b/conformance.json", "c/conformance.json")
    assert other.code == 1
    assert other.out.startswith(
        "backend mynpu: byoc-mynpu 1.2 -> none\noptions: mynpu.effort=2, other.level='high' -> other.level='high'\n"
        "backend other: none -> byoc-other 1.2\ntests, worse (1)\n  L0-promise: passed -> failed\ntests, vanished (5)\n"
    )
    write_report(new_report({"L0-a\x1b[31m": Verdict.FAILED}, backend="\x1b[31m"), Path("d"))
    hostile = conformance("compare", "c/conformance.json", "d/conformance.json").out
    assert "\x1b" not in hostile
    assert "  L0-a\N{REPLACEMENT CHARACTER}[31m: failed\n" in hostile
    same = conformance("compare", "a/conformance.json", "a/conformance.json", "--json")
    assert (same.code, json.loads(same.out)["is_worse"]) == (0, False)


BYOC = """
import signal, sys, threading, time
from byoc_core.cli.main import main

def interrupt():
    sys.stdin.readline()
    time.sleep(0.5)  # by then the command waits for the next result
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
threading.Thread(target=interrupt, daemon=True).start()
main()
"""
"""The command, interruptible by a line on stdin: another thread than the main thread gets the signal."""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to another process")
@pytest.mark.parametrize("interruption", ["signal", "signal to another thread"])
@pytest.mark.parametrize("num_parallel", ["1", "2"])
def test_ctrl_c_writes_what_was_done_so_far(tmp_path: Path, num_parallel: str, interruption: str) -> None:
    command = ["conformance", "toy", *only(CRASHES, HANGS), "--report", "out", "--jobs", num_parallel]
    with subprocess.Popen(
        [sys.executable, "-c", BYOC, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": install_toy(tmp_path / "toy")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"{CRASHES}: crashed\n"
            if interruption == "signal":
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(None if interruption == "signal" else "now\n", timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "")
    left_out = len(all_items()) - 1
    assert f"toy: partial 0/1, {left_out} not run\n" in out
    report = json.loads((tmp_path / "out" / "conformance.json").read_text())
    assert [item["id"] for item in report["items"] if item["status"] != "not-run"] == [CRASHES]
