"""Parallel loops of generated C: every item once, for any team; serial without OpenMP; safe in a child."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from byoc_core.native.toolchain import find_toolchain, has_parallel_loops
from byoc_core.runtime.threads.openmp import load_openmp

from core.tests.fresh_process import answer_of

SOURCE = """\
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "byoc_parallel.h"
#include <sched.h>
#include <time.h>

/* Who did how often: counts[item], the begins of the pieces, the number of threads with pieces. A thread with a piece
 * waits a while for the awaited number of threads. */
struct seen {
  int32_t *counts;
  int64_t *begins, *num_pieces, *num_threads, num_awaited, call;
};

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void count(int64_t begin, int64_t end, const void *data) {
  static _Thread_local int64_t last_call;
  const struct seen *seen = (const struct seen *)data;
  const int64_t piece = __atomic_fetch_add(seen->num_pieces, 1, __ATOMIC_RELAXED), began = now_ms();
  if (last_call != seen->call) __atomic_fetch_add(seen->num_threads, 1, __ATOMIC_RELAXED);
  last_call = seen->call;
  if (piece < 64) seen->begins[piece] = begin;
  for (int64_t item = begin; item < end; ++item) ++seen->counts[item];
  while (__atomic_load_n(seen->num_threads, __ATOMIC_RELAXED) < seen->num_awaited && now_ms() - began < 100) {
    sched_yield();
  }
}

static struct seen seen_by(int32_t *counts, int64_t *numbers, int64_t num_awaited) {
  static int64_t num_calls;
  return (struct seen){counts, numbers + 2, numbers, numbers + 1, num_awaited, ++num_calls};
}

BYOC_EXPORT void run(int64_t num_items, int64_t grain, int32_t *counts, int64_t *numbers, int64_t num_awaited) {
  const struct seen seen = seen_by(counts, numbers, num_awaited);
  byoc_parallel_for(num_items, grain, count, &seen);
}

static void nested(int64_t begin, int64_t end, const void *data) {
  for (int64_t item = begin; item < end; ++item) byoc_parallel_for(8, 1, count, data);
}

BYOC_EXPORT void run_nested(int64_t num_items, int32_t *counts, int64_t *numbers) {
  const struct seen seen = seen_by(counts, numbers, 1);
  byoc_parallel_for(num_items, 1, nested, &seen);
}
"""

HEAD = """
import ctypes, json, os, signal, sys, threading, time
import numpy as np

library = ctypes.CDLL(sys.argv[1])
ALARM_S, DEADLINE = 30, time.monotonic() + 60


def run(function, num_items, *arguments):
    # Return the begins of the pieces, and the number of threads with pieces.
    counts, numbers = np.zeros(max(num_items, 8), "i4"), np.full(66, -1, "i8")
    numbers[:2] = 0
    sizes, *rest = [ctypes.c_int64(value) for value in (num_items, *arguments)]
    places = [ctypes.c_void_p(a.ctypes.data) for a in (counts, numbers)]
    if function is library.run:
        grain, num_awaited = rest
        function(sizes, grain, *places, num_awaited)
        assert (counts[:num_items] == 1).all(), counts
    else:
        function(sizes, *places)
    return sorted(numbers[2 : 2 + min(numbers[0], 64)].tolist()), int(numbers[1])


def pieces(num_items, grain=1, num_awaited=1):
    return run(library.run, num_items, grain, num_awaited)[0]


def threads(num_awaited, num_items=1000, grain=1):
    # Return the number of threads with pieces: of the first loop with the awaited number, if any.
    # A loop may have fewer while the system is busy elsewhere.
    while (found := run(library.run, num_items, grain, num_awaited)[1]) < num_awaited and time.monotonic() < DEADLINE:
        pass
    return found


def num_tasks():
    return len(os.listdir("/proc/self/task"))


def in_child(work):
    \"\"\"Gives what the work gives in a forked child, or the signal that ended a child that hung.\"\"\"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(ALARM_S)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.libraries,
    pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parallel") / "library.so"
    path.write_bytes(find_toolchain().compile(SOURCE).data)
    return path


def answer(library: Path, script: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a script beside the library in a fresh process, and return the last line of output, parsed as JSON."""
    flags, settings = ("-W", "ignore"), {"OPENBLAS_NUM_THREADS": "1", **(environment or {})}
    return answer_of(HEAD + script, str(library), environment=settings, flags=flags)


def test_only_text_with_parallel_loops_is_compiled_with_their_support() -> None:
    plain = "int f(void) { return 1; }"
    assert (has_parallel_loops(plain), has_parallel_loops(SOURCE)) == (False, True)
    data = find_toolchain().compile(plain).data
    assert b"libgomp" not in data
    assert b"libgomp" in find_toolchain().compile(SOURCE).data


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_each_item_is_done_once_by_a_team_of_any_size(library: Path, number: int) -> None:
    script = """
found = {}
number = int(os.environ["OMP_NUM_THREADS"])
for num_items in (0, 1, 2, 6, 7, 8, 63, 64, 65, 1000):
    for grain in (1, 3, 64):
        blocks = -(-num_items // grain)
        found[f"{num_items}/{grain}"] = pieces(num_items, grain), threads(min(number, blocks), num_items, grain)
print(json.dumps(found))
"""
    for key, (begins, num_threads) in answer(library, script, {"OMP_NUM_THREADS": str(number)}).items():
        num_items, grain = map(int, key.split("/"))
        blocks = -(-num_items // grain)
        assert num_threads == min(number, blocks), key
        bounds = sorted({blocks * part // number for part in range(number + 1)})
        assert begins == [grain * bound for bound in bounds[:-1]], key  # with all threads or fewer


def test_a_loop_inside_a_loop_is_done_by_the_thread_it_is_in(library: Path) -> None:
    script = "print(json.dumps([threads(2), run(library.run_nested, 4)]))"
    num_threads, (begins, _) = answer(library, script, {"OMP_NUM_THREADS": "2"})
    assert (num_threads, begins) == (2, [0, 0, 0, 0])


def test_a_loop_of_one_block_makes_no_thread(library: Path) -> None:
    script = """
before = num_tasks()
pieces(1), pieces(64, 64), pieces(0)
between = num_tasks()
pieces(65, 64)
print(json.dumps([between - before, num_tasks() - before]))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [0, 2]


def test_without_libgomp_loops_run_in_the_calling_thread(library: Path, tmp_path: Path) -> None:
    (tmp_path / "libgomp.so.1").write_text("not a library")
    assert answer(library, "print(json.dumps(pieces(1000)))", {"LD_LIBRARY_PATH": str(tmp_path)}) == [0]


def test_a_forked_child_and_its_parent_go_on_with_teams_of_their_own(library: Path) -> None:
    script = """
found = [threads(3)]
found.append(in_child(lambda: threads(3)))
found.append(threads(3))
found.append(in_child(lambda: in_child(lambda: threads(3))))


def in_thread():
    found.append(in_child(lambda: threads(3)))


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
found.append(threads(3))
print(json.dumps(found))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [3, 3, 3, 3, 3, 3]


def test_a_child_of_a_thread_whose_team_cannot_be_dissolved_runs_alone(library: Path) -> None:
    """A child forked by C code inside a parallel region: there, OpenMP refuses to dissolve the team."""
    script = """
gomp = ctypes.CDLL("libgomp.so.1")
assert threads(3) == 3
codes = []
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@body
def fork_in_region(data):
    if gomp.omp_get_thread_num() == 0:
        codes.append(in_child(lambda: len(pieces(1000))))


gomp.GOMP_parallel(fork_in_region, None, 3, 0)
print(json.dumps(codes))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [1]
