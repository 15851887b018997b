"""Pools of requests: a request for each call in progress, a few between calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import count

import pytest
from byoc_core.runtime.graph import RequestPool

pytestmark = pytest.mark.interpreter


def make_pool(max_idle: int = 4) -> RequestPool[int]:
    return RequestPool(count().__next__, max_idle=max_idle)


def test_calls_one_after_the_other_share_a_request() -> None:
    pool = make_pool()
    assert pool.num_idle == 0  # nothing is made before it is needed
    for _ in range(3):
        with pool.request() as request:
            assert (request, pool.num_idle) == (0, 0)
        assert pool.num_idle == 1


def test_calls_that_overlap_have_one_each_and_a_few_are_kept() -> None:
    pool = make_pool(max_idle=2)
    with pool.request() as a, pool.request() as b, pool.request() as c:
        assert (a, b, c) == (0, 1, 2)
    assert pool.num_idle == 2
    with pool.request() as latest:
        assert latest == 1  # the last that was kept


def test_a_request_of_a_call_that_failed_is_dropped() -> None:
    pool = make_pool()
    with pytest.raises(ZeroDivisionError), pool.request():
        _ = 1 / 0
    assert pool.num_idle == 0
    with pool.request() as request:
        assert request == 1


def test_a_pool_that_keeps_none() -> None:
    pool = make_pool(max_idle=0)
    with pool.request():
        pass
    assert pool.num_idle == 0


def test_no_two_threads_have_one_request() -> None:
    pool: RequestPool[list[int]] = RequestPool(list, max_idle=3)
    failures: list[list[int]] = []

    def work(number: int) -> None:
        for _ in range(500):
            with pool.request() as request:
                request.append(number)
                if request != [number]:
                    failures.append(list(request))
                request.clear()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pool.num_idle <= 3


FORKING = """
import os
from itertools import count
from byoc_core.runtime.graph import RequestPool

pool = RequestPool(count().__next__)
with pool.request() as mine:
    pass
child = os.fork()
if child == 0:
    assert pool.num_idle == 0
    with pool.request() as request:
        assert request != mine
    with pool.request() as again:
        assert again == request
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with pool.request() as request:
    assert request == mine
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_requests_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True)
