"""Forked workers behave as workers in processes of their own, and end with the server or the user."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from byoc_core.isolation import Ended, ForkedProcess, ForkServer, Worker
from byoc_core.isolation.fork_server import _Channel

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]

WORKER = """
import os, signal, subprocess, sys, time
from byoc_core.isolation import serve

IMPORTED_BY = os.getpid()

def main(setup):
    if setup.get("fails"):
        raise LookupError("no setup")
    serve(lambda: lambda request: answer(setup, request))

def answer(setup, request):
    todo = request.get("do")
    if todo == "exit":
        os._exit(3)
    if todo == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if todo == "hang":
        time.sleep(600)
    if todo == "start":
        return {"child": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid}
    from byoc_core.plugin.installation import installed
    print("text on stdout", flush=True)
    return {
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "imported_by": IMPORTED_BY,
        "setup": setup, "folder": os.getcwd(), "path": sys.path[0], "stdin": sys.stdin.read(),
        "variables": [os.environ.get(name) for name in ("FIRST", "OF_SERVER", "OF_WORKER")],
        "handler": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
        "files": sorted(os.listdir("/proc/self/fd")),
        "backends": sorted(record.name for record in installed("byoc.backends").records),
    }
"""
RENEW = "byoc_core.plugin.installation:reread_installation"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "forked_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(folder))
    return "forked_worker"


@pytest.fixture
def server(module: str) -> Iterator[ForkServer]:
    with ForkServer((module,), RENEW) as started:
        yield started


Start = Callable[..., Worker]


@pytest.fixture
def start(server: ForkServer, module: str, tmp_path: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def start_worker(setup: dict[str, object] | None = None, **variables: str) -> Worker:
        errors = tmp_path / f"stderr{len(workers)}.txt"
        workers.append(Worker(f"{module}:main", setup or {}, errors, variables, server))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.stop()


def ask(worker: Worker, **request: object) -> dict[str, Any]:
    reply = worker.ask(request, 60.0)
    assert isinstance(reply, dict), reply
    return reply


def is_forked(reply: dict[str, Any]) -> bool:
    """Return whether the process took its imports from another process."""
    return bool(reply["imported_by"] != reply["pid"])


def wait_for_end(*pids: int) -> None:
    end = time.monotonic() + 60
    while any(_is_alive(pid) for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_forked_worker_is_like_any_other(
    start: Start, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder, import path, environment, plugins and files are those of the request, not those of the server."""
    first = ask(start())
    site = tmp_path / "site"
    (site / "byoc_absent-1.0.dist-info").mkdir(parents=True)
    (site / "byoc_absent-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: byoc-absent\nVersion: 1\n"
    )
    (site / "byoc_absent-1.0.dist-info" / "entry_points.txt").write_text("[byoc.backends]\nabsent = absent_backend\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRST", "1")
    forked = start({"numbers": [1, 2]}, OF_WORKER="3")
    found = ask(forked)
    own = Worker(f"{module}:main", {"numbers": [1, 2]}, tmp_path / "own.txt", {"OF_WORKER": "3"})
    expected = ask(own)
    own.stop()
    assert is_forked(found)
    assert not is_forked(expected)
    assert found["parent"] == first["parent"] != os.getpid()
    differing = {"pid", "parent", "group", "imported_by"}
    assert {k: v for k, v in found.items() if k not in differing} == {
        k: v for k, v in expected.items() if k not in differing
    }
    assert (found["variables"], found["folder"], found["path"]) == (["1", None, "3"], str(tmp_path), str(site))
    assert "absent" in found["backends"]
    assert "absent" not in first["backends"]
    assert found["group"] == found["pid"]
    assert (tmp_path / "stderr1.txt").read_text() == "text on stdout\n"


@pytest.mark.parametrize(("todo", "text"), [("exit", "exit status 3"), ("die", "signal SIGSEGV")])
def test_a_crash_is_told_with_its_status(start: Start, todo: str, text: str) -> None:
    assert start().ask({"do": todo}, 60.0) == Ended("crash", f"the process ended with {text}")


def test_an_error_of_the_entry_is_told_with_the_last_lines(start: Start) -> None:
    ended = start({"fails": True}).ask({}, 60.0)
    assert isinstance(ended, Ended)
    assert ended.text.startswith("the process ended with exit status 1\n")
    assert ended.text.endswith("\nLookupError: no setup")


def test_a_hang_is_told_and_stopped(start: Start) -> None:
    worker = start()
    pid = ask(worker)["pid"]
    assert worker.ask({"do": "hang"}, 0.2) == Ended("hang", "no result within 0.2 s")
    worker.stop()
    wait_for_end(pid)


def test_several_threads_wait_for_the_end(server: ForkServer, module: str, tmp_path: Path) -> None:
    with (tmp_path / "stderr.txt").open("wb") as errors:
        process = server.start(f"{module}:main", {}, errors.fileno(), os.environ)
    assert process is not None
    assert process.poll() is None
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(process.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    process.kill()
    for thread in threads:
        thread.join()
    process.stdin.close()
    process.stdout.close()
    assert found == [-signal.SIGKILL] * 4
    assert process.poll() == -signal.SIGKILL


def test_processes_of_a_worker_end_with_the_worker(start: Start) -> None:
    worker, other = start(), start()
    child = ask(worker, do="start")["child"]
    worker.stop()
    wait_for_end(child)
    assert ask(other)["pid"] != child


@pytest.mark.parametrize(
    "name", ["PYTHONHASHSEED", "LANG", "LANGUAGE", "LC_TIME", "NPY_PROMOTION", "OMP_DISPLAY_ENV", "KMP_AFFINITY"]
)
def test_other_variables_of_the_start_need_a_process_of_its_own(start: Start, name: str) -> None:
    """The first request does not decide for the others."""
    assert not is_forked(ask(start(**{name: "5"})))
    assert is_forked(ask(start(OTHER="5")))


def test_workers_have_the_variables_of_the_server(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ForkServer((module,), RENEW, {"OMP_DYNAMIC": "true", "OF_SERVER": "2"}) as server:
        found = []
        for variables in ({}, {"OMP_DYNAMIC": "false"}, {"OF_SERVER": "4"}):
            worker = Worker(f"{module}:main", {}, tmp_path / "stderr.txt", variables, server)
            reply = ask(worker)
            found.append((is_forked(reply), reply["variables"][1]))
            worker.stop()
    assert found == [(True, "2"), (False, "2"), (True, "4")]


def test_a_server_without_its_modules_is_not_used_and_says_why(module: str, tmp_path: Path) -> None:
    with ForkServer(("no_such_module",), RENEW) as server:
        worker = Worker(f"{module}:main", {}, tmp_path / "stderr.txt", {}, server)
        assert not is_forked(ask(worker))
        worker.stop()
        lines = (server.failure or "").splitlines()
        assert lines[0] == "the server ended with status 1"
        assert lines[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


FAILING_FORK = """
import errno, os, pathlib
fork = os.fork

def fail_if_asked():
    if pathlib.Path({flag!r}).exists():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()

os.fork = fail_if_asked
"""


def test_a_failed_fork_leaves_the_other_workers(module: str, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    (tmp_path / "modules" / "failing_fork.py").write_text(FAILING_FORK.format(flag=str(flag)))
    with ForkServer((module, "failing_fork"), RENEW) as server:
        workers = [Worker(f"{module}:main", {}, tmp_path / "first.txt", {}, server)]
        flag.touch()
        workers.append(Worker(f"{module}:main", {}, tmp_path / "second.txt", {}, server))
        flag.unlink()
        workers.append(Worker(f"{module}:main", {}, tmp_path / "third.txt", {}, server))
        assert [is_forked(ask(worker)) for worker in workers] == [True, False, True]
        assert server.failure is None
        for worker in workers:
            worker.stop()


def list_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """Return a function setting the limit of open descriptors, until the end of the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda number: resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_workers_are_forked_beside_a_thousand_open_files(start: Start, limit_files: Callable[[int], None]) -> None:
    limit_files(2048)
    opened = [os.dup(0)]
    while opened[-1] < 1100:
        opened.append(os.dup(0))
    try:
        assert is_forked(ask(start()))
    finally:
        for file in opened:
            os.close(file)


def test_a_request_without_enough_descriptors_leaves_none_open(
    server: ForkServer, start: Start, module: str, limit_files: Callable[[int], None]
) -> None:
    assert is_forked(ask(start()))
    before = list_files()
    limit_files(max(map(int, before)) + 8)
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.dup(0))
    for _ in range(6):
        assert server.start(f"{module}:main", {}, 2, os.environ) is None
        os.close(opened.pop())
    process = server.start(f"{module}:main", {}, 2, os.environ)
    assert process is not None
    close(process)
    for file in opened:
        os.close(file)
    assert list_files() == before


def close(process: ForkedProcess) -> None:
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_failed_start_of_a_worker_leaves_no_file_open(
    server: ForkServer, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list_files()

    def fail(*_: object) -> NoReturn:
        raise LookupError("no process")

    monkeypatch.setattr(server, "start", fail)
    with pytest.raises(LookupError) as caught:  # the exception keeps the worker
        Worker(f"{module}:main", {}, tmp_path / "stderr.txt", {}, server)
    assert list_files() == before
    assert caught.value.args == ("no process",)


def test_after_an_interrupted_request_workers_have_processes_of_their_own(
    server: ForkServer, start: Start, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has received a part of the request only."""
    assert is_forked(ask(start()))
    before = list_files()
    send_fds = socket.send_fds

    def send_and_interrupt(*arguments: Any) -> NoReturn:
        send_fds(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(socket, "send_fds", send_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            server.start(f"{module}:main", {}, 2, os.environ)
    assert len(list_files()) == len(before) - 1  # the socket of the requests
    assert not is_forked(ask(start()))


def test_the_end_of_a_worker_by_the_end_of_the_server_is_told(server: ForkServer, start: Start) -> None:
    worker = start()
    os.kill(ask(worker)["parent"], signal.SIGKILL)
    ended = worker.ask({"do": "hang"}, 60.0)
    text = "the process ended with signal SIGKILL, killed by the end of the process's fork server\ntext on stdout"
    assert ended == Ended("crash", text, server_ended=True)
    assert not is_forked(ask(start()))
    assert server.failure == "the server ended with status -9"


def test_a_process_ended_before_its_report_can_be_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    outer, inner = socket.socketpair()
    nothing = Path(os.devnull)
    with inner, nothing.open("w", encoding="utf-8") as stdin, nothing.open(encoding="utf-8") as stdout:
        process = ForkedProcess(ended.pid, stdin, stdout, _Channel(outer))
        process.kill()
        inner.sendall(b'{"status": 0}\n')
        assert process.wait() == 0
        process.kill()


def test_a_forked_process_does_not_use_the_server_of_its_parent(server: ForkServer, start: Start) -> None:
    assert is_forked(ask(start()))
    pid = os.fork()
    if pid == 0:
        os._exit(server.start("forked_worker:main", {}, 2, os.environ) is not None)
    assert os.waitpid(pid, 0)[1] == 0


def test_several_threads_use_a_server(start: Start) -> None:
    replies: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: replies.append(ask(start()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({reply["pid"] for reply in replies}) == 8
    assert len({reply["parent"] for reply in replies}) == 1


def test_workers_end_with_the_server(server: ForkServer, start: Start) -> None:
    replies = [ask(start()) for _ in range(2)]
    server.close()
    wait_for_end(*(reply["pid"] for reply in replies), replies[0]["parent"])


USER = """
import os, sys, time
from pathlib import Path
from byoc_core.isolation import ForkServer, Worker
server = ForkServer(("forked_worker",), sys.argv[1])
worker = Worker("forked_worker:main", {}, Path(sys.argv[2]), {}, server)
reply = worker.ask({}, 60.0)
print(reply["pid"], reply["parent"], flush=True)
time.sleep(600)
"""


def test_workers_and_server_end_with_a_killed_user(module: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", USER, RENEW, str(tmp_path / "stderr.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as user:
        assert user.stdout is not None
        pids = [int(word) for word in user.stdout.readline().split()]
        assert len(pids) == 2
        user.send_signal(signal.SIGKILL)
        wait_for_end(*pids)
