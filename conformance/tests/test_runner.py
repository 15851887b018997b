"""The runner beside backends fatal to any process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items
from byoc_conformance.promise import Level
from byoc_conformance.runner import new_fork_server
from byoc_core.isolation import ForkServer

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]) -> Callable[[str], Path]:
    """Return a function installing the backend ``dead``, and returning a file with a line for each import."""

    def write(code: str) -> Path:
        starts = tmp_path / "starts.txt"
        (tmp_path / "dead_backend.py").write_text(f"open({str(starts)!r}, 'a').write('imported\\n')\n{code}\n")
        info = tmp_path / "byoc_dead-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-dead\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[byoc.backends]\ndead = dead_backend\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        look_again()
        return starts

    return write


@pytest.mark.parametrize(
    ("code", "patience", "status", "text"),
    [
        (
            "import os; os._exit(3)",
            1.0,
            Status.CRASHED,
            "during the import of the backend: the process ended with exit status 3",
        ),
        (
            "import time; time.sleep(1000)",
            0.05,
            Status.HUNG,
            "during the import of the backend: no result within 3 s",
        ),
    ],
)
def test_a_backend_that_ends_each_process_is_asked_for_twice(
    install: Callable[[str], Path], code: str, patience: float, status: Status, text: str
) -> None:
    starts = install(code)
    items = (*all_items()[:3], all_items()[-1])
    with Runner(SubjectSpec("dead"), patience=patience) as runner:
        outcomes = [runner.run(item).outcome for item in items]
    assert {outcome.status for outcome in outcomes} == {status}
    assert {outcome.text for outcome in outcomes} == {text}
    assert starts.read_text() == "imported\nimported\n"


@on_linux
def test_the_kit_forks_processes(fork_server: ForkServer, tmp_path: Path) -> None:
    with (tmp_path / "stderr.txt").open("wb") as errors:
        setup = SubjectSpec("host").to_json()
        process = fork_server.start("byoc_conformance.runner:main", setup, errors.fileno(), os.environ)
    assert process is not None, fork_server.failure
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


KILL_SERVER = """
import os, pathlib, signal, time
num_imports = len(pathlib.Path(__file__).with_name("starts.txt").read_text().splitlines())
if num_imports <= {limit} and os.getppid() != {user}:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
"""


@on_linux
def test_a_backend_is_not_blamed_for_the_end_of_a_shared_server(install: Callable[[str], Path]) -> None:
    starts = install(KILL_SERVER.format(limit=1, user=os.getpid()))
    with new_fork_server() as server, Runner(SubjectSpec("dead"), fork_server=server) as runner:
        outcomes = [runner.run(item).outcome for item in all_items()[:2]]
    assert Status.CRASHED not in {outcome.status for outcome in outcomes}
    assert starts.read_text() == "imported\nimported\n"


@on_linux
def test_a_backend_is_blamed_for_the_end_of_a_server_of_its_own(install: Callable[[str], Path]) -> None:
    starts = install(KILL_SERVER.format(limit=100, user=os.getpid()))
    with new_fork_server() as server, Runner(SubjectSpec("dead"), fork_server=server) as runner:
        outcomes = [runner.run(item).outcome for item in all_items()[:3]]
    assert {outcome.status for outcome in outcomes} == {Status.CRASHED}
    text = "the process ended with signal SIGKILL, killed by the end of the process's fork server"
    assert {outcome.text for outcome in outcomes} == {f"during the import of the backend: {text}"}
    assert starts.read_text() == "imported\n" * 3  # by the shared server, and twice by own servers


@on_linux
def test_a_test_interrupted_by_the_end_of_a_shared_server_is_repeated(tmp_path: Path) -> None:
    items = [item for item in all_items() if item.promise.level is Level.L0][1:3]
    with new_fork_server() as server, Runner(SubjectSpec("host"), fork_server=server) as runner:
        first = runner.run(items[0]).outcome
        os.kill(find_server(server, tmp_path), signal.SIGKILL)
        second = runner.run(items[1]).outcome
        assert server.failure == "the server ended with status -9"
    assert (first.status, second.status) == (Status.PASSED, Status.PASSED)


def find_server(server: ForkServer, tmp_path: Path) -> int:
    """Return the number of the server's process."""
    with (tmp_path / "stderr.txt").open("wb") as errors:
        process = server.start("byoc_conformance.runner:main", {}, errors.fileno(), os.environ)
    assert process is not None
    with process.stdin, process.stdout:
        found = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
        process.kill()
        process.wait()
    return found
