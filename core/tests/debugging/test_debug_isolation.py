"""Regions in separate processes: crashes and hangs are findings, and the session goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core import debug_model, parse
from byoc_core.backend.registry import backends
from byoc_core.debugging import DebugReport, save_arrays
from byoc_core.errors import OptionsError
from byoc_core.isolation import Ended, Worker

pytestmark = pytest.mark.interpreter

TWO = """
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "{dtype}")):
        a = R.add(x, x)
        b = R.tanh(a)
        c = R.multiply(b, R.const([1.0, 2.0, 0.5, 3.0], "{dtype}"))
        d = R.subtract(c, x)
        return d
"""
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def debug(*, deadline: float = 120.0, dtype: str = "float32", **options: object) -> DebugReport:
    from byoc_core.dtypes import to_numpy

    module = parse(TWO.format(dtype=dtype))
    x = X.astype(to_numpy(dtype))
    return debug_model(module, ["faulty"], [x], options={"faulty": options}, isolate=True, deadline=deadline)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_right_here_is_right_there(installed_faulty: str, dtype: str) -> None:
    report = debug(dtype=dtype)
    assert report.is_right, str(report)
    assert report.isolated
    assert [region.verdict for region in report.regions] == ["right", "right"]


def test_values_come_back_as_they_are(installed_faulty: str) -> None:
    module = parse(TWO.format(dtype="float32"))
    options = {"faulty": {"fault": "lane", "op": "add"}}
    here, there = (debug_model(module, ["faulty"], [X], options=options, isolate=isolate) for isolate in (False, True))
    assert here.to_data() == {**there.to_data(), "isolated": False}


@pytest.mark.parametrize(
    ("fault", "op", "expected"),
    [
        ("segfault", "multiply", "the process ended with signal SIGSEGV"),
        ("exit", "add", "the process ended with exit status 3\non the way to a crash"),
        ("compile-crash", "add", "the process ended with exit status 4"),
    ],
)
def test_a_crash_is_a_finding_and_narrowed_down(installed_faulty: str, fault: str, op: str, expected: str) -> None:
    report = debug(fault=fault, op=op)
    assert sorted(region.verdict for region in report.regions) == ["crash", "right"]
    (case,) = report.cases
    assert case.verdict.findings[0].text == expected
    assert case.guilt is not None
    assert case.guilt.ops == (op,)


def _count_hangs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list collecting the answer of each hanging call."""
    hangs: list[object] = []
    ask = Worker.ask

    def counted(self: Any, request: Any, deadline: float) -> Any:
        answer = ask(self, request, deadline)
        hangs.extend([answer] if isinstance(answer, Ended) and answer.code == "hang" else [])
        return answer

    monkeypatch.setattr(Worker, "ask", counted)
    return hangs


def test_a_hang_ends_at_the_deadline_and_once_is_enough(installed_faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), m: R.Tensor((), "int64")):
        @R.region
        def body(i: R.Tensor((), "int64"), v: R.Tensor((3, 4), "float32")):
            a = R.add(v, v)
            b = R.tanh(a)
            c = R.multiply(b, v)
            return R.const(True, "bool"), c
        w = R.loop(m, R.const(True, "bool"), x, regions=[body])
        return w
"""
    options = {"faulty": {"fault": "hang", "op": "add"}}
    hangs = _count_hangs(monkeypatch)
    report = debug_model(parse(text), ["faulty"], [X, np.array(50)], options=options, isolate=True, deadline=3.0)
    assert len(hangs) == 1, "not once per round"
    assert [(region.verdict, len(region.checks)) for region in report.regions] == [("hang", 50), ("right", 50)]
    (case,) = report.cases
    assert case.verdict.findings[0].text == "no result within 3 s"
    assert case.guilt is None


def _wait_for_pid(path: Path) -> int:
    while not path.exists() or not path.read_text().endswith("\n"):
        time.sleep(0.05)
    return int(path.read_text())


def _has_ended(pid: int) -> bool:
    """Return whether a process ends soon; a process not waited for has ended too."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("fault", ["hang", "hang-locked"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_session(
    installed_faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, how: signal.Signals
) -> None:
    monkeypatch.setenv("FAULTY_PID_FILE", str(tmp_path / "pid"))
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.path[:] = {sys.path!r}
import numpy as np
from byoc_core import debug_model, parse
from byoc_core.backend.registry import backends
options = {{"faulty": {{"fault": {fault!r}, "op": "add"}}}}
debug_model(parse({TWO.format(dtype="float32")!r}), ["faulty"], [np.ones((3, 4), np.float32)],
            options=options, isolate=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as session:
        worker = _wait_for_pid(tmp_path / "pid")
        session.send_signal(how)
        errors = session.communicate(timeout=60)[1]
    assert _has_ended(worker)
    assert how == signal.SIGKILL or errors.endswith("KeyboardInterrupt\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_region_starts_ends_with_it(
    installed_faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_PID_FILE", str(tmp_path / "pid"))
    module = parse(TWO.format(dtype="float32"))
    options = {"faulty": {"fault": "fork-and-exit", "op": "add"}}
    report = debug_model(module, ["faulty"], [X], options=options, isolate=True, deadline=3.0, narrow=False)
    assert report.cases[0].verdict.findings[0].text == "the process ended with exit status 3"
    assert _has_ended(int((tmp_path / "pid").read_text()))


def test_a_process_that_cannot_start_is_a_crash(
    installed_faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _ = parse(TWO.format(dtype="float32")), backends().get("faulty").info()
    (tmp_path / "site" / "installed_faulty_backend.py").write_text("raise ValueError('not in another process')")
    hangs = _count_hangs(monkeypatch)
    report = debug_model(module, ["faulty"], [X], isolate=True, narrow=False)
    assert not hangs, "it waited for the deadline"
    text = report.cases[0].verdict.findings[0].text
    assert text.startswith("the process ended with exit status 1\n")
    assert "not in another process" in text


def test_parts_of_a_region_share_their_constants(installed_faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from byoc_core.debugging import isolation

    saved: list[str] = []

    def save(path: Path, arrays: dict[str, Any]) -> None:
        if path.name.startswith("constants"):
            saved.extend(arrays)
        save_arrays(path, arrays)

    monkeypatch.setattr(isolation, "save_arrays", save)
    report = debug(fault="fused", op="multiply")
    (case,) = report.cases
    assert case.guilt is not None
    assert case.guilt.how.endswith("not without the last op"), "parts were compiled"
    assert len(saved) == len(set(saved)) == 1


def test_what_a_region_prints_does_not_disturb(installed_faulty: str) -> None:
    assert debug(fault="print").is_right


def test_objects_of_this_process_cannot_be_isolated(faulty: Callable[..., object]) -> None:
    module = parse(TWO.format(dtype="float32"))
    with pytest.raises(OptionsError) as caught:
        debug_model(module, [faulty()], [X], isolate=True)
    expected = "isolate: backend `faulty` is an object of this process, unavailable to another process"
    assert str(caught.value) == expected


def test_options_and_deadlines_that_make_no_sense(installed_faulty: str) -> None:
    module = parse(TWO.format(dtype="float32"))
    with pytest.raises(OptionsError) as caught:
        debug_model(module, ["faulty"], [X], options={"faulty": {"op": object}}, isolate=True)
    assert str(caught.value).startswith("isolate: an option cannot be passed to another process: ")
    with pytest.raises(OptionsError) as caught:
        debug(deadline=0)
    assert str(caught.value) == "deadline: is not a valid waiting time; got 0, expected seconds, more than 0"


LEAVES_A_DAEMON = """
import os, time
from byoc_core.isolation import serve

def main(setup):
    serve(lambda: answer)

def answer(request):
    pid = os.fork()
    if pid == 0:
        os.setsid()  # out of reach of who ends the group
        time.sleep(60)
        os._exit(0)
    while os.getsid(pid) != pid:
        time.sleep(0.01)
    return {"daemon": pid}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_leaves_a_daemon_behind_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves_a_daemon.py").write_text(LEAVES_A_DAEMON)
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = Worker("leaves_a_daemon:main", {}, tmp_path / "stderr.txt")
    reply = worker.ask({}, 30.0)
    assert isinstance(reply, dict)
    before = time.monotonic()
    worker.stop()
    took = time.monotonic() - before
    os.kill(reply["daemon"], signal.SIGKILL)  # it was left alive: the stop did not wait for it
    assert took < 30
