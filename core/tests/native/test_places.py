"""Places of threads: a worker on a taken processor moves, and stays away in later teams too."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.threads.openmp import load_openmp

SOURCE = r"""
#include "byoc_parallel.h"
#include "byoc_places.h"

static byoc_places places;
static byoc_processors allowed;

BYOC_EXPORT int32_t open_places(void) {
  byoc_open_places(&places);
  return places.home;
}
BYOC_EXPORT int32_t take_place(void) { return byoc_take_place(&places); }
BYOC_EXPORT void leave_place(void) { byoc_leave_place(&places); }
BYOC_EXPORT int32_t may_be_home(void) { return byoc_may_be_home(&places); }
BYOC_EXPORT void read_allowed(void) { (void)byoc_read_allowed(&allowed); }
BYOC_EXPORT void leave_processor(void) { byoc_leave_processor(&allowed); }
BYOC_EXPORT void free_worker(void) { byoc_free_worker(&places, &allowed); }
BYOC_EXPORT int32_t keep_home(void) { return byoc_read_allowed(&allowed) && byoc_keep_home(&places, &allowed); }
BYOC_EXPORT void allow(void) { byoc_allow(&allowed); }

static void count(int64_t begin, int64_t end, const void *data) {
  int32_t *counts = (int32_t *)(uintptr_t)data;
  for (int64_t i = begin; i < end; ++i) counts[i] += 1;
}
static void body(void *data) {
  for (int64_t k = 0; k < 20; ++k) byoc_parallel_for(64, 1, count, data);
}
BYOC_EXPORT void run(int32_t *counts) { byoc_with_team(body, counts, 1e9); }
"""

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.libraries,
    pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a system without affinities"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path: Path = tmp_path_factory.mktemp("places") / "places.so"
    path.write_bytes(find_toolchain().compile(SOURCE, BuildOptions(2, "generic", ("-Wall", "-Wextra", "-Werror"))).data)
    return ctypes.CDLL(str(path))


@pytest.fixture
def processors() -> frozenset[int]:
    found = frozenset(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("this process may use one processor")
    return found


@pytest.fixture
def other_thread() -> Iterator[Callable[..., Any]]:
    """Return a function running work in another thread, always the same, ending with the test."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work, *arguments: pool.submit(work, *arguments).result(60)


def allowed() -> set[int]:
    return os.sched_getaffinity(0)


def be_on(processor: int) -> None:
    os.sched_setaffinity(0, {processor})


def be_everywhere_from(processor: int, processors: frozenset[int]) -> None:
    be_on(processor)
    os.sched_setaffinity(0, processors)


def open_from(library: ctypes.CDLL, processor: int, processors: frozenset[int]) -> None:
    """Begin a team on a processor, by a thread allowed everywhere."""
    be_on(processor)
    library.open_places()
    os.sched_setaffinity(0, processors)


def test_a_worker_on_a_taken_processor_is_limited_and_stays_off_the_opening_thread(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    home = min(processors)

    def take() -> list[object]:
        for _ in range(1000):  # another process may push this thread elsewhere
            other_thread(open_from, library, home, processors)
            be_everywhere_from(home, processors)
            if library.take_place():
                break
        found: list[object] = [allowed()]
        library.leave_place()
        found.append(allowed())
        library.read_allowed()
        library.free_worker()
        return [*found, allowed()]

    with ThreadPoolExecutor(1) as pool:
        away = processors - {home}
        assert pool.submit(take).result(60) == [away, away, processors]


def test_a_limited_worker_moves_again_if_the_opening_thread_comes_to_its_processor(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    second = max(processors)

    def take() -> list[object]:
        be_on(second)  # limited by an earlier team
        limited = library.take_place()
        return [limited, allowed() == processors - {second}, library.may_be_home()]

    other_thread(open_from, library, second, processors)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take).result(60) == [1, True, 0]


def test_a_worker_bound_elsewhere_is_allowed_no_further_processors(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    first, second, *_ = sorted(processors)

    def take() -> list[object]:
        be_on(second)
        taken = library.take_place(), allowed()
        library.leave_place()
        left = allowed()
        library.read_allowed()
        be_on(first)  # as if brought
        library.free_worker()
        return [*taken, left, allowed()]

    other_thread(open_from, library, second, frozenset({first}))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take).result(60) == [0, {second}, {second}, {second}]


def test_a_worker_alone_on_its_processor_stays_as_it_is(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    first, second, *_ = sorted(processors)

    def open_on_first() -> int:
        be_on(first)
        return int(library.open_places())

    def take_on_second() -> set[int]:
        be_on(second)
        library.take_place()
        return allowed()

    assert other_thread(open_on_first) == first
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take_on_second).result(60) == {second}


def test_who_may_be_nowhere_else_stays(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    only = max(processors)

    def take() -> tuple[set[int], int]:
        be_on(only)
        library.open_places()
        library.take_place()  # this thread plays two
        return allowed(), library.may_be_home()

    assert other_thread(take) == ({only}, 1)


def test_a_worker_leaves_the_processor_it_was_brought_to(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    home = min(processors)

    def leave() -> list[set[int]]:
        library.read_allowed()
        be_on(home)
        library.leave_processor()
        left = allowed()
        library.free_worker()
        return [left, allowed()]

    library.open_places()
    assert other_thread(leave) == [processors - {home}, processors]


def test_the_one_that_opened_a_team_keeps_off_the_others(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    first, second, *_ = sorted(processors)

    def open_and_keep() -> list[object]:
        open_from(library, first, processors)
        with ThreadPoolExecutor(1, initializer=be_on, initargs=(second,)) as pool:
            pool.submit(library.take_place).result(60)
            may_be_home = pool.submit(library.may_be_home).result(60)
        kept = library.keep_home(), allowed() == processors - {second}
        library.allow()
        return [may_be_home, *kept, allowed() == processors]

    assert other_thread(open_and_keep) == [0, 1, True, True]


def test_a_worker_beside_the_caller_is_kept_apart_after_the_body_too(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    openmp = load_openmp()
    if openmp is None:
        pytest.skip("there is no libgomp")
    home = min(processors)

    def run() -> None:
        counts = np.zeros(64, np.int32)
        library.run(ctypes.c_void_p(counts.ctypes.data))
        assert (counts == 20).all()

    def run_beside() -> set[int]:
        openmp.set_num_threads(2)
        run()
        (worker,) = tasks() - before - {own}
        end = time.monotonic() + 60
        # Another process may push this thread elsewhere; and after lost time, bodies run without the worker.
        while (limited := os.sched_getaffinity(worker)) != processors - {home} and time.monotonic() < end:
            be_everywhere_from(home, processors)
            os.sched_setaffinity(worker, {home})
            run()
            assert allowed() == processors  # the caller is never limited
        return limited

    def tasks() -> set[int]:
        return {int(task.name) for task in Path("/proc/self/task").iterdir()}

    before = tasks()
    own = other_thread(lambda: int(Path("/proc/thread-self").resolve().name))
    assert other_thread(run_beside) == processors - {home}
