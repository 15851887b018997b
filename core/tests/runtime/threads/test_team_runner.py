"""Bodies of parallel regions without two threads of the team on the same processor, wherever the system woke them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from byoc_core.runtime.extension import extension
from byoc_core.runtime.threads.openmp import load_openmp

from core.tests.fresh_process import answer_of

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason="the extension is not built"),
]

HEAD = """
import contextlib, ctypes, json, os, threading
import byoc_core
from byoc_core.runtime import threads

BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
module = byoc_core.parse('''
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_packed("work", (x,), out_types=[R.Tensor((4,), "float32")])
        return y
''')
before = threads.team_runner()
byoc_core.VirtualMachine(byoc_core.build(module, []), externs={"work": abs})
run = ctypes.CFUNCTYPE(ctypes.c_int, BODY, ctypes.c_void_p)(threads.team_runner())
calls = []


@BODY
def body(data):
    calls.append(data)
    return 7
"""

# The library's functions are played: the other thread is always on the processor of the one that calls.
PLAYED = """
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
everywhere = os.sched_getaffinity(0)
main, masks, ended = threading.get_native_id(), [], threading.Event()
workers = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def parallel(function, data, number, flags):
    come = threading.Event()

    def work():
        workers[:] = [threading.get_native_id()]
        os.sched_setaffinity(0, {home})
        os.sched_setaffinity(0, everywhere)
        FUNCTION(function)(data)
        come.set()
        ended.wait(60)

    threading.Thread(target=work, daemon=True).start()
    come.wait(60)
    FUNCTION(function)(data)


NUMBER = ctypes.CFUNCTYPE(ctypes.c_int)
max_threads, num_threads = NUMBER(lambda: 2), NUMBER(lambda: 2)
thread_num = NUMBER(lambda: int(threading.get_native_id() != main))
set_num_threads = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
played = (max_threads, set_num_threads, parallel, num_threads, thread_num)
first, second, *rest = (ctypes.cast(function, ctypes.c_void_p).value for function in played)
from byoc_core import _native
_native.threads_set_openmp((first, second, 0, *rest))


@BODY
def look(data):
    masks.append([os.sched_getaffinity(task) for task in (main, *workers)])
    return 0


for _ in range(20):  # another process may push the thread from its processor
    masks.clear()
    home = min(everywhere)
    os.sched_setaffinity(0, {home})
    os.sched_setaffinity(0, everywhere)
    assert run(look, None) == 0
    masks.append([os.sched_getaffinity(task) for task in (main, *workers)])
    ended.set()
    ended = threading.Event()
    if masks[0][1] != everywhere:
        break
print(json.dumps([[sorted(mask) for mask in found] for found in masks]))
"""


# Regions of three, two and three threads: libgomp ends threads and creates threads in the body.
CHANGING = """
gomp = ctypes.CDLL("libgomp.so.1")
free = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # does nothing, of no memory
everywhere = os.sched_getaffinity(0)
home = min(everywhere)
main, masks = threading.get_native_id(), []


def tasks():
    return {int(task) for task in os.listdir("/proc/self/task")}


@BODY
def change(data):
    before = tasks()
    for number in (3, 2, 3):
        gomp.GOMP_parallel(free, None, number, 0)
    masks.extend(os.sched_getaffinity(task) == everywhere for task in {main, *(tasks() - before)})
    return 0


threads.use_openmp().set_num_threads(3)
gomp.GOMP_parallel(free, None, 3, 0)
for _ in range(200):
    for task in tasks() - {main}:  # the workers come to the processor of the calling thread
        with contextlib.suppress(ProcessLookupError):  # ended just now
            os.sched_setaffinity(task, {home})
    os.sched_setaffinity(main, {home})
    os.sched_setaffinity(main, everywhere)
    assert run(change, None) == 0
print(json.dumps(masks))
"""


def answer(script: str) -> Any:
    return answer_of(HEAD + script, environment={"BYOC_NUM_THREADS": "2"})


def test_a_body_is_called_once_in_the_calling_thread_with_libgomp_and_without() -> None:
    script = """
results = [run(body, 5)]
if threads.use_openmp():
    results += [run(body, 5) for _ in range(50)]
print(json.dumps([before, results, calls]))
"""
    before, results, calls = answer(script)
    assert before == 0
    assert set(results) == {7}
    assert calls == [5] * len(results)
    assert len(results) == (1 if load_openmp() is None else 51)


def test_a_body_whose_workers_are_ended_by_a_fork_makes_them_anew() -> None:
    script = """
threads.use_openmp()
run(body, 1)
child = os.fork()
if child == 0:
    os._exit(run(body, 2))
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run(body, 3), calls]))
"""
    assert answer(script) == [7, 7, [1, 3]]


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one processor"
)
def test_threads_on_one_processor_part_and_the_worker_stays_apart() -> None:
    (caller, worker), *after = answer(PLAYED)
    everywhere = sorted(os.sched_getaffinity(0))
    assert min(everywhere) in caller
    assert min(everywhere) not in worker
    assert len(caller) == len(worker) == len(everywhere) - 1
    assert after == [[everywhere, worker]]


@pytest.mark.skipif(load_openmp() is None or not hasattr(os, "sched_getaffinity"), reason="there is nothing to change")
def test_threads_made_in_a_body_inherit_no_limits() -> None:
    assert set(answer(CHANGING)) == {True}
