"""Functions with a team staying awake: every loop is done whole and once, by any mixture of threads."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.threads.openmp import load_openmp

from core.tests.fresh_process import answer_of

WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""The environment variables for idle workers of libgomp."""

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

SOURCE = r"""
#include "byoc_parallel.h"
#include <pthread.h>

struct call { int32_t *counts; int64_t size, rounds; };

static void count(int64_t begin, int64_t end, const void *data) {
  int32_t *counts = (int32_t *)(uintptr_t)data;
  for (int64_t i = begin; i < end; ++i) counts[i] += 1;
}

/* A loop in a loop: whoever comes to it does all of it. */
static void nest(int64_t begin, int64_t end, const void *data) {
  const struct call *call = (const struct call *)data;
  for (int64_t i = begin; i < end; ++i) byoc_parallel_for(call->size, 1, count, call->counts + i * call->size);
}

static void body(void *data) {
  const struct call *call = (const struct call *)data;
  for (int64_t k = 0; k < call->rounds; ++k) byoc_parallel_for(call->size, 1 + k % 3, count, call->counts);
}

static void nested_body(void *data) {
  const struct call *call = (const struct call *)data;
  for (int64_t k = 0; k < call->rounds; ++k) byoc_parallel_for(7, 1, nest, call);
}

static void body_in_body(void *data) { byoc_with_team(body, data, 1e9); }

static void sharing_body(void *data) {
  const struct call *call = (const struct call *)data;
  for (int64_t k = 0; k < call->rounds; ++k) byoc_share_for(call->size, 1 + k % 3, count, call->counts);
}

/* Items of loops outside a team, by other threads than the one that calls. */
static pthread_t caller;
static void count_strangers(int64_t begin, int64_t end, const void *data) {
  if (!pthread_equal(caller, pthread_self())) count(begin, end, data);
}

static void count_strangers_slowly(int64_t begin, int64_t end, const void *data) {
  for (volatile int32_t k = 0; k < 10000 * (end - begin); ++k) {
  }
  count_strangers(begin, end, data);
}

BYOC_EXPORT void run(int32_t *counts, int64_t size, int64_t rounds, int32_t form) {
  static const byoc_body bodies[] = {body, nested_body, body_in_body, sharing_body};
  struct call call = {counts, size, rounds};
  byoc_with_team(bodies[form], &call, 1e9);
}

static void slow_body(void *data) {
  const struct call *call = (const struct call *)data;
  byoc_parallel_for(call->size, 1, count_strangers_slowly, call->counts);
}

/* Run bodies in a row. */
BYOC_EXPORT void run_in_a_row(int32_t *counts, int64_t size, int64_t num_bodies, double work_ps) {
  struct call call = {counts, size, 1};
  caller = pthread_self();
  for (int64_t k = 0; k < num_bodies; ++k) byoc_with_team(slow_body, &call, work_ps);
}

BYOC_EXPORT void share_alone(int32_t *counts, int64_t size) {
  caller = pthread_self();
  byoc_share_for(size, 1, count_strangers, counts);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path: Path = tmp_path_factory.mktemp("team") / "team.so"
    path.write_bytes(find_toolchain().compile(SOURCE, BuildOptions(2, "generic", ("-Wall", "-Wextra", "-Werror"))).data)
    return ctypes.CDLL(str(path))


def _run(library: ctypes.CDLL, num_threads: int, size: int, rounds: int, form: int) -> Any:
    """Return how often each of ``7 * size`` items was done."""
    openmp = load_openmp()
    if openmp is None:
        pytest.skip("there is no libgomp")
    before = openmp.max_threads()
    openmp.set_num_threads(num_threads)
    counts = np.zeros(size * 7, np.int32)
    try:
        library.run(ctypes.c_void_p(counts.ctypes.data), ctypes.c_int64(size), ctypes.c_int64(rounds), form)
    finally:
        openmp.set_num_threads(before)
    return counts


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_each_item_of_each_loop_is_done_once(library: ctypes.CDLL, num_threads: int, size: int) -> None:
    for form in (0, 2, 3):
        counts = _run(library, num_threads, size, 500, form)
        assert (counts[:size] == 500).all()
        assert not counts[size:].any()


def test_a_loop_that_is_shared_wakes_nobody(library: ctypes.CDLL) -> None:
    _run(library, 3, 8, 1, 0)  # a team exists
    counts = np.zeros(1000, np.int32)
    library.share_alone(ctypes.c_void_p(counts.ctypes.data), ctypes.c_int64(1000))
    assert not counts.any()


PAUSES = """
import ctypes, json, sys, time
import numpy as np
from byoc_core.runtime.threads.openmp import load_openmp

library = ctypes.CDLL(sys.argv[1])
load_openmp().set_num_threads(2)
LITTLE, MUCH, SIZE = 2e7, 1e9, 64
DEADLINE = time.monotonic() + 60


def run_in_a_row(num_bodies, work_ps):
    counts = np.zeros(SIZE, np.int32)
    numbers = ctypes.c_int64(SIZE), ctypes.c_int64(num_bodies), ctypes.c_double(work_ps)
    library.run_in_a_row(ctypes.c_void_p(counts.ctypes.data), *numbers)
    return int(counts.sum())


def count_of_strangers(num_bodies, work_ps, pause_s):
    # Count items done by others than the caller, in bodies a while after a team.
    run_in_a_row(1, MUCH)
    time.sleep(pause_s)
    return run_in_a_row(num_bodies, work_ps)


def are_there_any(num_bodies, work_ps, pause_s):
    # Other processes may keep the worker from coming.
    while not (found := count_of_strangers(num_bodies, work_ps, pause_s)) and time.monotonic() < DEADLINE:
        pass
    return found > 0


def are_there_none(num_bodies, work_ps, pause_s):
    return not any(count_of_strangers(num_bodies, work_ps, pause_s) for _ in range(25))


SHORT, LONG = 0.001, 0.01
"""


@pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp")
def test_little_work_wakes_nobody_after_a_pause(library: ctypes.CDLL) -> None:
    script = """
found = [are_there_any(1, MUCH, SHORT)]
found += [are_there_none(1, LITTLE, SHORT), are_there_none(5, LITTLE, SHORT), are_there_any(10, LITTLE, SHORT)]
found += [are_there_none(10, LITTLE, LONG), are_there_any(20, LITTLE, LONG)]
print(json.dumps(found))
"""
    assert answer_of(PAUSES + script, library._name) == [True] * 6


@pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp")
@pytest.mark.parametrize("variable", WAITING)
def test_little_work_has_a_team_if_the_environment_says_how_workers_wait(library: ctypes.CDLL, variable: str) -> None:
    value = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}[variable]
    script = "print(json.dumps(are_there_any(1, LITTLE, SHORT)))"
    assert answer_of(PAUSES + script, library._name, environment={variable: value})


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_loops_inside_loops_are_done_by_whoever_comes_to_them(library: ctypes.CDLL, num_threads: int) -> None:
    assert (_run(library, num_threads, 9, 200, 1) == 200).all()


def test_a_body_without_loops_ends(library: ctypes.CDLL) -> None:
    assert not _run(library, 3, 5, 0, 0).any()


def test_many_callers_have_teams_of_their_own(library: ctypes.CDLL) -> None:
    with ThreadPoolExecutor(8) as pool:
        for counts in pool.map(lambda _: _run(library, 2, 50, 300, 0), range(32)):
            assert (counts[:50] == 300).all()


def test_a_forked_child_has_a_team_too(library: ctypes.CDLL) -> None:
    assert (_run(library, 2, 9, 10, 0)[:9] == 10).all()
    child = os.fork()
    if child == 0:
        os._exit(0 if (_run(library, 2, 9, 10, 0)[:9] == 10).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
