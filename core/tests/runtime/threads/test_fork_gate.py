"""Forks beside threads inside a gate."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork"),
]

HEAD = """
import os, signal, threading, time, warnings
from byoc_core.runtime.threads import ForkGate

warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
gate = ForkGate()
signal.alarm(60)


def in_child(check):
    # The status of a child that makes a check.
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

WAITING = """
entered = threading.Event()
leaving = []

def stay():
    with gate:
        with gate:  # re-entrant
            entered.set()
            time.sleep(0.3)
        time.sleep(0.1)
        leaving.append(True)

holder = threading.Thread(target=stay)
holder.start()
assert entered.wait(20)
def enter():
    with gate:
        return bool(leaving)
print(in_child(enter))
holder.join()
print(enter())
"""

OWN = """
with gate:
    print(in_child(lambda: gate.__enter__() is None))
print(in_child(lambda: gate.__enter__() is None))
"""

MANY = """
lock = threading.Lock()  # of the library: not renewed in children
done = threading.Event()
def work():
    while not done.is_set():
        with gate, lock:
            time.sleep(0.0005)
def fork():
    for _ in range(10):
        statuses.append(in_child(lambda: lock.acquire(timeout=10)))
statuses = []
workers = [threading.Thread(target=work) for _ in range(3)]
forkers = [threading.Thread(target=fork) for _ in range(2)]
for thread in workers + forkers: thread.start()
for thread in forkers: thread.join()
done.set()
for thread in workers: thread.join()
print(statuses == [0] * 20)
"""


def _printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_fork_waits_for_other_threads_inside() -> None:
    assert _printed(WAITING) == ["0", "True"]


def test_a_thread_inside_may_fork() -> None:
    assert _printed(OWN) == ["0", "0"]


def test_a_lock_taken_inside_is_free_in_every_child() -> None:
    assert _printed(MANY) == ["True"]
