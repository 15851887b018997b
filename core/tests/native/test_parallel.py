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
#include "byoc_parallel.h"

/* Who did how often: counts[item], and the parts' bounds. */
struct seen {
  int32_t *counts;
  int64_t *begins, *num_parts;
};

static void count(int64_t begin, int64_t end, const void *data) {
  const struct seen *seen = (const struct seen *)data;
  const int64_t part = __atomic_fetch_add(seen->num_parts, 1, __ATOMIC_RELAXED);
  if (part < 64) seen->begins[part] = begin;
  for (int64_t item = begin; item < end; ++item) ++seen->counts[item];
}

BYOC_EXPORT void run(int64_t num_items, int64_t grain, int32_t *counts, int64_t *begins, int64_t *num_parts) {
  const struct seen seen = {counts, begins, num_parts};
  byoc_parallel_for(num_items, grain, count, &seen);
}

static void nested(int64_t begin, int64_t end, const void *data) {
  for (int64_t item = begin; item < end; ++item) byoc_parallel_for(8, 1, count, data);
}

BYOC_EXPORT void run_nested(int64_t num_items, int32_t *counts, int64_t *begins, int64_t *num_parts) {
  const struct seen seen = {counts, begins, num_parts};
  byoc_parallel_for(num_items, 1, nested, &seen);
}
"""

HEAD = """
import ctypes, json, os, signal, sys, threading
import numpy as np

library = ctypes.CDLL(sys.argv[1])
ALARM_S = 30


def parts(num_items, grain=1, *, function=library.run):
    counts, begins, number = np.zeros(max(num_items, 8), "i4"), np.full(64, -1, "i8"), np.zeros(1, "i8")
    places = [ctypes.c_void_p(a.ctypes.data) for a in (counts, begins, number)]
    if function is library.run:
        function(ctypes.c_int64(num_items), ctypes.c_int64(grain), *places)
        assert (counts[:num_items] == 1).all(), counts
    else:
        function(ctypes.c_int64(num_items), *places)
    return sorted(begins[: number[0]].tolist())


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
bounds = {}
for num_items in (0, 1, 2, 6, 7, 8, 63, 64, 65, 1000):
    for grain in (1, 3, 64):
        bounds[f"{num_items}/{grain}"] = parts(num_items, grain)
print(json.dumps(bounds))
"""
    for key, begins in answer(library, script, {"OMP_NUM_THREADS": str(number)}).items():
        num_items, grain = map(int, key.split("/"))
        blocks = -(-num_items // grain)
        assert len(begins) == min(number, blocks), key
        assert begins[:1] == ([0] if num_items else [])
        assert all(begin % grain == 0 for begin in begins), key


def test_a_loop_inside_a_loop_is_done_by_the_thread_it_is_in(library: Path) -> None:
    script = "print(json.dumps([parts(1000), parts(4, function=library.run_nested)]))"
    outer, inner = answer(library, script, {"OMP_NUM_THREADS": "2"})
    assert (len(outer), inner) == (2, [0, 0, 0, 0])


def test_a_loop_of_one_part_makes_no_thread(library: Path) -> None:
    script = """
before = num_tasks()
parts(1), parts(64, 64), parts(0)
between = num_tasks()
parts(65, 64)
print(json.dumps([between - before, num_tasks() - before]))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [0, 2]


def test_without_libgomp_loops_run_in_the_calling_thread(library: Path, tmp_path: Path) -> None:
    (tmp_path / "libgomp.so.1").write_text("not a library")
    assert answer(library, "print(json.dumps(parts(1000)))", {"LD_LIBRARY_PATH": str(tmp_path)}) == [0]


def test_a_forked_child_and_its_parent_go_on_with_teams_of_their_own(library: Path) -> None:
    script = """
found = [len(parts(1000))]
found.append(in_child(lambda: len(parts(1000))))
found.append(len(parts(1000)))
found.append(in_child(lambda: in_child(lambda: len(parts(1000)))))


def in_thread():
    found.append(in_child(lambda: len(parts(1000))))


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
found.append(len(parts(1000)))
print(json.dumps(found))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [3, 3, 3, 3, 3, 3]


def test_a_child_of_a_thread_whose_team_cannot_be_dissolved_runs_alone(library: Path) -> None:
    """A child forked by C code inside a parallel region: there, OpenMP refuses to dissolve the team."""
    script = """
gomp = ctypes.CDLL("libgomp.so.1")
assert len(parts(1000)) == 3
codes = []
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@body
def fork_in_region(data):
    if gomp.omp_get_thread_num() == 0:
        codes.append(in_child(lambda: len(parts(1000))))


gomp.GOMP_parallel(fork_in_region, None, 3, 0)
print(json.dumps(codes))
"""
    assert answer(library, script, {"OMP_NUM_THREADS": "3"}) == [1]
