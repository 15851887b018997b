"""Teams with threads unable to run: their processors are busy, or the threads wake up beside the caller."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.threads.openmp import load_openmp

from core.tests.fresh_process import answer_of

SOURCE = r"""
#include "byoc_parallel.h"
#include "byoc_places.h"
#include <pthread.h>

struct call { pthread_t caller; int32_t *counts, *num_helped; };

static void count(int64_t begin, int64_t end, const void *data) {
  const struct call *call = (const struct call *)data;
  const int32_t helped = pthread_equal(call->caller, pthread_self()) ? 0 : 1;
  for (int64_t i = begin; i < end; ++i) {
    call->counts[i] += 1;
    call->num_helped[i] += helped;
  }
}

static void body(void *data) {
  for (int64_t k = 0; k < 50; ++k) byoc_parallel_for(64, 1, count, data);
}

BYOC_EXPORT void run(int32_t *counts, int32_t *num_helped) {
  struct call call = {pthread_self(), counts, num_helped};
  byoc_with_team(body, &call);
}

BYOC_EXPORT void bring(int32_t thread) { byoc_bring(thread); }
BYOC_EXPORT int64_t thread_ns(int32_t thread) { return byoc_thread_ns(thread); }
BYOC_EXPORT int64_t now_ns(void) { return byoc_now_ns(); }
BYOC_EXPORT int32_t thread_id(void) { return byoc_thread_id(); }
"""

HEAD = """
import ctypes, json, os, subprocess, sys, threading, time
import numpy as np
from byoc_core.runtime.threads.openmp import load_openmp

library = ctypes.CDLL(sys.argv[1])
library.thread_ns.restype = library.now_ns.restype = ctypes.c_int64
everywhere = os.sched_getaffinity(0)
"""

TEAM = """
SPINNER = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\\nwhile True: pass"
first, second, *_ = sorted(everywhere)
load_openmp().set_num_threads(2)
main = threading.get_native_id()


def run():
    counts, helped = np.zeros(64, "i4"), np.zeros(64, "i4")
    library.run(ctypes.c_void_p(counts.ctypes.data), ctypes.c_void_p(helped.ctypes.data))
    assert (counts == 50).all()
    return int(helped.sum())


def tasks():
    return set(map(int, os.listdir("/proc/self/task")))


os.sched_setaffinity(main, {first})
spinner = subprocess.Popen([sys.executable, "-c", SPINNER, str(second)], stdout=subprocess.PIPE)
spinner.stdout.readline()
before = tasks()
run()
(worker,) = tasks() - before
os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0))


def run_beside():
    # The worker wakes up on the processor of the one that calls, and moves to that of the spinner.
    os.sched_setaffinity(worker, {first})
    os.sched_setaffinity(worker, everywhere)
    helped = run()
    assert os.sched_getaffinity(worker) == everywhere
    return helped


beside = [run_beside() for _ in range(300)]
spinner.kill()
spinner.communicate()
os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))
print(json.dumps(beside + [run() for _ in range(300)]))
"""

ONE_THREAD = """
ready, done = threading.Event(), threading.Event()
found = []


def work():
    found.append(library.thread_id())
    ready.set()
    done.wait()


thread = threading.Thread(target=work)
thread.start()
ready.wait()
(other,) = found
asleep = [library.thread_ns(other) for _ in range(2) if time.sleep(0.02) is None]
own = [library.thread_ns(library.thread_id()) for _ in range(2) if sum(range(10**6))]
clock = [library.now_ns() for _ in range(2) if time.sleep(0.02) is None]
home = min(everywhere)
os.sched_setaffinity(0, {home})
library.bring(other)
is_here = os.sched_getaffinity(other) == {home}
done.set()
thread.join()
print(json.dumps([other == thread.native_id, asleep, own, clock, is_here]))
"""

ALL = 32 * 50
"""The worker's items of a call, if the worker does a part of each loop."""

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.libraries,
    pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a system without affinities"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deserted") / "library.so"
    path.write_bytes(find_toolchain().compile(SOURCE, BuildOptions(2, "generic", ("-Wall", "-Wextra", "-Werror"))).data)
    return path


def answer(library: Path, script: str) -> Any:
    return answer_of(HEAD + script, str(library))


@pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp")
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE") or len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_where_a_thread_does_not_get_to_run_its_caller_goes_on_alone_and_tries_again(library: Path) -> None:
    helped = answer(library, TEAM)
    deserted = [call for call, times in enumerate(helped[:-1]) if 0 < times < ALL]
    assert deserted
    assert all(helped[call + 1] == 0 for call in deserted)
    # However it goes on: most calls alone in a row are as many as byoc_parallel.c says.
    alone = max(len(list(calls)) for times, calls in groupby(helped) if times == 0)
    assert 1 <= alone <= 64
    assert max(helped) == ALL


def test_a_thread_is_brought_here_and_its_time_is_read(library: Path) -> None:
    is_number, asleep, own, clock, is_here = answer(library, ONE_THREAD)
    assert is_number
    assert asleep[0] == asleep[1] > 0
    assert own[1] - own[0] > 1_000_000
    assert clock[1] - clock[0] >= 20_000_000
    assert is_here
