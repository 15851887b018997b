"""An executor of processes of this machine: dead and hanging processes cost their call only."""

from __future__ import annotations

import os
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest
from byoc_core.tuning import LocalProcesses

pytestmark = pytest.mark.interpreter


def test_results_and_errors_come_back_and_processes_stay() -> None:
    with LocalProcesses(1) as executor:
        pid = executor.submit(os.getpid).result(30)
        assert pid != os.getpid()
        with pytest.raises(ValueError, match="invalid literal"):
            executor.submit(int, "x").result(30)
        assert executor.submit(divmod, 7, 2).result(30) == (3, 1)
        assert executor.submit(os.getpid).result(30) == pid


def test_a_dead_process_is_replaced() -> None:
    with LocalProcesses(1) as executor:
        pid = executor.submit(os.getpid).result(30)
        lost, later = executor.submit(os._exit, 3), executor.submit(os.getpid)
        with pytest.raises(ChildProcessError, match=r"^the process died with exit code 3$"):
            lost.result(30)
        assert later.result(30) not in {pid, os.getpid()}


def test_a_hanging_process_is_ended_and_replaced() -> None:
    with LocalProcesses(1, call_seconds=5.0) as executor:
        lost, later = executor.submit(time.sleep, 600), executor.submit(os.getpid)
        with pytest.raises(TimeoutError, match=r"^no answer after 5 s$"):
            lost.result(30)
        assert later.result(30) != os.getpid()


def test_a_call_may_start_processes() -> None:
    start = "__import__('multiprocessing').get_context('spawn').Process(target=abs, args=(-1,))"
    with LocalProcesses(1) as executor:
        code = executor.submit(eval, f"[(p.start(), p.join(), p.exitcode) for p in [{start}]][0][2]").result(60)
        assert code == 0


@pytest.mark.parametrize("call", [(memoryview, b"1"), (lambda: 1,)], ids=["result", "function"])
def test_what_cannot_be_pickled_is_an_error_of_the_call(call: tuple[Any, ...]) -> None:
    with LocalProcesses(1) as executor:
        lost = executor.submit(*call)
        with pytest.raises(Exception, match="pickle"):
            lost.result(30)
        assert executor.submit(abs, -1).result(30) == 1


def test_leaving_ends_running_and_waiting_calls() -> None:
    start = time.monotonic()
    with LocalProcesses(1) as executor:
        executor.submit(os.getpid).result(30)
        running, waiting = executor.submit(time.sleep, 600), executor.submit(os.getpid)
        time.sleep(0.2)
    with pytest.raises(ChildProcessError):
        running.result(30)
    with pytest.raises(CancelledError):
        waiting.result(30)
    assert time.monotonic() - start < 60
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(os.getpid)
