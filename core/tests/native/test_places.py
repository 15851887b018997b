"""Places of threads: a thread with a busy processor moves, stays away, and may later run everywhere again."""

from __future__ import annotations

import ctypes
import os
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
BYOC_EXPORT int32_t take_place(void) { return byoc_read_allowed(&allowed) && byoc_take_place(&places, &allowed); }
BYOC_EXPORT int32_t keep_home(void) { return byoc_read_allowed(&allowed) && byoc_keep_home(&places, &allowed); }
BYOC_EXPORT void allow(void) { byoc_allow(&allowed); }

static void count(int64_t begin, int64_t end, const void *data) {
  int32_t *counts = (int32_t *)(uintptr_t)data;
  for (int64_t i = begin; i < end; ++i) counts[i] += 1;
}
static void body(void *data) {
  for (int64_t k = 0; k < 20; ++k) byoc_parallel_for(64, 1, count, data);
}
BYOC_EXPORT void run(int32_t *counts) { byoc_with_team(body, counts); }
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


def test_who_is_on_a_taken_processor_moves_away_until_it_may_go_everywhere_again(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    def take() -> list[object]:
        home = library.open_places()  # this thread plays two: what it takes next is taken
        moved = library.take_place(), allowed() == processors - {home}
        library.allow()
        return [*moved, allowed() == processors]

    assert other_thread(take) == [1, True, True]


def test_who_is_alone_on_a_processor_stays_as_it_is(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    first, second, *_ = sorted(processors)

    def open_on_first() -> int:
        be_on(first)
        return int(library.open_places())

    def take_on_second() -> tuple[int, set[int]]:
        be_on(second)
        return library.take_place(), allowed()

    assert other_thread(open_on_first) == first
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take_on_second).result(60) == (0, {second})


def test_who_may_be_nowhere_else_stays(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    only = max(processors)

    def take() -> tuple[int, set[int]]:
        be_on(only)
        library.open_places()
        return library.take_place(), allowed()

    assert other_thread(take) == (0, {only})


def test_the_one_that_opened_a_team_keeps_off_the_others(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    first, second, *_ = sorted(processors)

    def open_and_keep() -> list[object]:
        be_on(first)
        library.open_places()
        os.sched_setaffinity(0, processors)
        with ThreadPoolExecutor(1, initializer=be_on, initargs=(second,)) as pool:
            taken = pool.submit(library.take_place).result(60)
        kept = library.keep_home(), allowed() == processors - {second}
        library.allow()
        return [taken, *kept, allowed() == processors]

    assert other_thread(open_and_keep) == [0, 1, True, True]


def test_after_a_body_the_threads_of_its_team_may_go_where_they_might_before(
    library: ctypes.CDLL, processors: frozenset[int], other_thread: Callable[..., Any]
) -> None:
    openmp = load_openmp()
    if openmp is None:
        pytest.skip("there is no libgomp")

    def run() -> set[frozenset[int]]:
        openmp.set_num_threads(2)
        home = min(processors)
        be_on(home)
        for _ in range(20):
            counts = np.zeros(64, np.int32)
            library.run(ctypes.c_void_p(counts.ctypes.data))
            assert (counts == 20).all()
            # Where the last body ran, and with it where the next one's threads wake up.
            for task in workers():
                os.sched_setaffinity(task, {home})
                os.sched_setaffinity(task, processors)
        return {frozenset(os.sched_getaffinity(task)) for task in workers()}

    def tasks() -> set[int]:
        return {int(task.name) for task in Path("/proc/self/task").iterdir()}

    before = tasks()
    own = other_thread(lambda: int(Path("/proc/thread-self").resolve().name))

    def workers() -> set[int]:
        return tasks() - before - {own}

    assert other_thread(run) == {processors}
