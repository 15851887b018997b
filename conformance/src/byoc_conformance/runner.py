"""Tests of the kit in separate processes: a crash or a hang is a single red case, not a dead run.

Runner and worker process exchange JSON values: an empty request imports the backend, a request with the id of a test
is answered with status, text and cells. Both sides are in this module, and must change together.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from byoc_core.errors import OptionsError
from byoc_core.isolation import Ended, ForkServer, Worker, serve

from byoc_conformance.outcome import Cell, Outcome, Status, VerdictError
from byoc_conformance.promise import Item, Level
from byoc_conformance.promises import find_item
from byoc_conformance.subject import Subject, SubjectSpec

__all__ = ["ItemResult", "Runner", "check_patience", "main", "new_fork_server"]

_MIN_PATIENCE = 0.01
_OPEN_SECONDS = 60.0
"""The deadline for importing the backend."""
_VARIABLES = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Numpy's matrix products run single-threaded: no backend decides the thread count of numpy's BLAS."""
_MAX_STARTS = 2
"""The limit of consecutive processes ended by the import; no further process is started then."""
_ENDED = {"crash": Status.CRASHED, "hang": Status.HUNG}


def check_patience(patience: float) -> None:
    """Check that a factor on deadlines is usable.

    Raises:
        OptionsError: the factor is too small, or no number.
    """
    if not patience >= _MIN_PATIENCE:  # rejects NaN too
        raise OptionsError("patience", "cannot be used", got=repr(patience), expected=f"{_MIN_PATIENCE} or more")


def new_fork_server() -> ForkServer:
    """Return a server forking processes with the imported kit, without any backend."""
    return ForkServer(("byoc_conformance.runner",), "byoc_core.plugin.installation:reread_installation", _VARIABLES)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of a test.

    Attributes:
        item: the test.
        outcome: the outcome of the test.
        seconds: the duration; the process's start counts for the first test of a level.
    """

    item: Item
    outcome: Outcome
    seconds: float


class Runner:
    """A runner of tests with a process per level, started anew after a crash or a missed deadline.

    If the server of the processes ends, a test of another runner may be the cause. The interrupted test is repeated
    once, by a server of this runner alone.

    Args:
        spec: the backend under test.
        patience: the factor on all deadlines.
        fork_server: forks the processes; by default each process imports the kit anew.

    Raises:
        OptionsError: see :func:`check_patience`.
    """

    def __init__(self, spec: SubjectSpec, *, patience: float = 1.0, fork_server: ForkServer | None = None) -> None:
        check_patience(patience)
        self._spec = spec
        self._patience = patience
        self._fork_server = fork_server
        self._own_server: ForkServer | None = None
        self._workers: dict[Level, Worker] = {}
        self._unopened: list[Outcome] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="byoc-conformance-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._own_server is not None:
            self._own_server.close()
        self._folder.cleanup()

    def stop(self) -> None:
        """End the processes; later tests start new processes. Another thread may call this method."""
        for level in list(self._workers):
            self._stop(level)

    def run(self, item: Item) -> ItemResult:
        """Return the result of a test.

        Raises:
            InternalError: the kit itself failed.
        """
        start = time.monotonic()
        outcome = self._try(item) or self._try(item)
        assert outcome is not None  # the second time, no other runner shares the server
        return ItemResult(item, outcome, time.monotonic() - start)

    def _try(self, item: Item) -> Outcome | None:
        """Return the outcome of a test; ``None`` if the end of a server of several runners interrupted the test."""
        level = item.promise.level
        worker = self._workers.get(level) or self._open(level)
        if not isinstance(worker, Worker):
            return worker
        reply = worker.ask({"item": item.id}, item.promise.deadline * self._patience)
        if isinstance(reply, Ended):
            self._stop(level)
            if reply.server_ended and self._replace_server():
                return None
            return Outcome(_ENDED[reply.code], f"while `{item.id}` ran: {reply.text}")
        cells = tuple(Cell(op, dtype, Status(status)) for op, dtype, status in reply["cells"])
        return Outcome(Status(reply["status"]), reply["text"], cells)

    def _replace_server(self) -> bool:
        """Use a new server of this runner alone; return whether other runners may have used the old server."""
        self.stop()  # all processes have ended with the server
        is_shared = self._own_server is None
        if self._own_server is not None:
            self._own_server.close()
        self._fork_server = self._own_server = new_fork_server()
        return is_shared

    def _open(self, level: Level) -> Worker | Outcome | None:
        """Return a process with the imported backend, or the outcome of all tests if no process can be opened.

        The answer is ``None`` if the end of a server of several runners interrupted the import. Starts are limited: a
        backend ending or blocking processes during import would do so for each test.
        """
        if len(self._unopened) == _MAX_STARTS:
            return self._unopened[-1]
        errors = Path(self._folder.name) / f"{level}.txt"
        worker = Worker("byoc_conformance.runner:main", self._spec.to_json(), errors, _VARIABLES, self._fork_server)
        self._workers[level] = worker
        reply = worker.ask({}, _OPEN_SECONDS * self._patience)
        if not isinstance(reply, Ended):
            self._unopened.clear()
            return worker
        self._stop(level)
        if reply.server_ended and self._replace_server():
            return None
        self._unopened.append(Outcome(_ENDED[reply.code], f"during the import of the backend: {reply.text}"))
        return self._unopened[-1]

    def _stop(self, level: Level) -> None:
        worker = self._workers.pop(level, None)
        if worker is not None:
            worker.stop()


def main(setup: Mapping[str, Any]) -> None:
    """Serve tests in the inner process; the runner names this function as text.

    Args:
        setup: a :class:`SubjectSpec` as JSON.
    """
    serve(lambda: _Examiner(SubjectSpec.from_json(setup)).answer)


class _Examiner:
    """An examiner of a subject, promise by promise."""

    def __init__(self, spec: SubjectSpec) -> None:
        self._spec = spec
        self._subject: Subject | None = None

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Check the promise of a request; a request without a promise imports the backend, if possible."""
        if "item" not in request:
            with contextlib.suppress(Exception):  # each test tells
                self._subject = Subject(self._spec)
            return {}
        outcome = self._examine(find_item(str(request["item"])))
        cells = [[cell.op, cell.dtype, cell.status] for cell in outcome.cells]
        return {"status": outcome.status, "text": outcome.text, "cells": cells}

    def _examine(self, item: Item) -> Outcome:
        try:
            if self._subject is None:
                self._subject = Subject(self._spec)
            return item.promise.check(self._subject, item.case) or Outcome()
        except VerdictError as error:
            return error.outcome
        except Exception as error:  # noqa: BLE001 - the plugin border: any error of a backend's code is its fault
            return Outcome(Status.FAILED, _describe(error))


def _describe(error: Exception) -> str:
    notes = "".join(f"\n({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{notes}"
