"""Teams with threads unable to run: their processors are busy, or the threads wake up beside the caller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.threads.openmp import load_openmp

from core.tests.fresh_process import answer_of

SOURCE = r"""
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "byoc_parallel.h"
#include "byoc_places.h"
#include <pthread.h>
#include <sched.h>

struct call { pthread_t caller; int32_t *counts, *num_helped; int32_t policy, num_spins, home; };

/* Pieces of the worker: begun on the caller's processor, and moved to that processor. */
static int32_t num_begun_here, num_brought;

/* Count items; the worker first changes to a policy, if not negative. */
static void count(int64_t begin, int64_t end, const void *data) {
  const struct call *call = (const struct call *)data;
  const int32_t helped = pthread_equal(call->caller, pthread_self()) ? 0 : 1;
  const struct sched_param param = {0};
  const int32_t is_here = sched_getcpu() == call->home;
  num_begun_here += helped && is_here;
  if (helped && call->policy >= 0) sched_setscheduler(0, call->policy, &param);
  for (volatile int32_t k = 0; k < call->num_spins; ++k) {
  }
  num_brought += helped && !is_here && sched_getcpu() == call->home;
  for (int64_t i = begin; i < end; ++i) {
    call->counts[i] += 1;
    call->num_helped[i] += helped;
  }
}

static void body(void *data) {
  for (int64_t k = 0; k < 50; ++k) byoc_parallel_for(64, 1, count, data);
}

BYOC_EXPORT void run(int32_t *counts, int32_t *num_helped, int32_t policy, int32_t num_spins) {
  struct call call = {pthread_self(), counts, num_helped, policy, num_spins, sched_getcpu()};
  byoc_with_team(body, &call, 1e9);
}

BYOC_EXPORT int32_t count_begun_here(void) { return num_begun_here; }
BYOC_EXPORT int32_t count_brought(void) { return num_brought; }

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
everywhere = set(sorted(os.sched_getaffinity(0))[:2])  # no third processor for a worker beside a busy one
os.sched_setaffinity(0, everywhere)
"""

TEAM = """
SPINNER = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True); parent = os.getppid()\\n"
    "while os.getppid() == parent: pass"
)
policy, num_spins = %s
first, second, *_ = sorted(everywhere)
load_openmp().set_num_threads(2)
main = threading.get_native_id()


def run(policy=-1, num_spins=0):
    counts, helped = np.zeros(64, "i4"), np.zeros(64, "i4")
    library.run(ctypes.c_void_p(counts.ctypes.data), ctypes.c_void_p(helped.ctypes.data), policy, num_spins)
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


def run_beside():
    # The worker wakes up on the processor of the one that calls, and moves to that of the spinner.
    os.sched_setaffinity(worker, {first})
    os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setaffinity(worker, everywhere)
    helped = run(policy, num_spins)
    assert os.sched_getaffinity(worker) in ({second}, everywhere)  # kept apart, or brought
    return helped


beside = [run_beside() for _ in range(20)]
end = time.monotonic() + 60
while policy >= 0 and not library.count_brought() and time.monotonic() < end:  # other processes take turns too
    beside.append(run_beside())
spinner.kill()
spinner.communicate()
os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))
end = time.monotonic() + 60
while not (helped := run(-1, 1000)) and time.monotonic() < end:
    pass
print(json.dumps([beside, helped, library.count_brought(), library.count_begun_here()]))
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
@pytest.mark.parametrize(("policy", "num_spins"), [("-1", 0), ("os.SCHED_IDLE", 100_000)])
def test_a_caller_goes_on_without_a_thread_unable_to_run(library: Path, policy: str, num_spins: int) -> None:
    beside, helped, num_brought, num_begun_here = answer(library, TEAM % f"{policy}, {num_spins}")
    if policy != "-1":  # the spinner stops the worker in the middle of a piece
        assert any(beside)
        assert num_brought > 0
    assert num_begun_here <= num_brought // 4  # a worker leaves the caller's processor before the next piece
    assert helped > 0


def test_a_thread_is_brought_here_and_its_time_is_read(library: Path) -> None:
    is_number, asleep, own, clock, is_here = answer(library, ONE_THREAD)
    assert is_number
    assert asleep[0] == asleep[1] > 0
    assert own[1] - own[0] > 1_000_000
    assert clock[1] - clock[0] >= 20_000_000
    assert is_here
