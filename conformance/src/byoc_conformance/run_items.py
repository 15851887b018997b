"""Runs of many tests, several at a time on request, ended by Ctrl-C at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Sequence

from byoc_core.isolation import wait_for

from byoc_conformance.pending_items import PendingItems
from byoc_conformance.promise import Item, Level
from byoc_conformance.runner import ItemResult, Runner, new_fork_server
from byoc_conformance.subject import SubjectSpec

__all__ = ["run_items"]

_JOIN_SECONDS = 0.1


def run_items(
    spec: SubjectSpec, items: Sequence[Item], *, patience: float = 1.0, num_parallel: int = 1
) -> Generator[ItemResult]:
    """Yield the results of tests in order of completion. On early exit, all started processes are ended first.

    Tests at a time are tests of different levels while there are such tests: all tests of a level then share a
    process, with the examples of the level.

    Args:
        spec: the backend under test.
        items: the tests; the tests of a level are started in this order.
        patience: the factor on all deadlines.
        num_parallel: the number of tests at a time, each in separate processes.

    Raises:
        InternalError: the kit itself failed.
    """
    pending = PendingItems(items)
    results: queue.SimpleQueue[ItemResult | Exception] = queue.SimpleQueue()
    fork_server = new_fork_server()
    lanes = [
        _Lane(Runner(spec, patience=patience, fork_server=fork_server), pending, results)
        for _ in range(max(1, min(num_parallel, len(items))))
    ]
    try:
        for lane in lanes:
            lane.start()
        for _ in items:
            result = wait_for(results)
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        for lane in lanes:
            lane.stop()
        fork_server.close()


class _Lane:
    """A thread running tests, one after another."""

    def __init__(
        self,
        runner: Runner,
        pending: PendingItems,
        results: queue.SimpleQueue[ItemResult | Exception],
    ) -> None:
        self._runner = runner
        self._pending = pending
        self._results = results
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the lane, including the running test."""
        self._is_stopping.set()
        while self._thread.is_alive():
            self._runner.stop()
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        level: Level | None = None
        try:
            with self._runner:
                while not self._is_stopping.is_set():
                    item = self._pending.take(level)
                    if item is None:
                        return
                    if item.promise.level is not level:
                        self._runner.stop()  # free the memory of the last level
                    level = item.promise.level
                    self._results.put(self._runner.run(item))
        except Exception as error:  # noqa: BLE001 - passed to the thread waiting for results
            self._results.put(error)
