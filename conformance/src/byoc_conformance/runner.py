"""Runs tests of the kit in processes of their own: one that crashes or hangs is one red case, not a dead run."""

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
from byoc_core.isolation import Ended, Worker, serve

from byoc_conformance.outcome import Cell, Outcome, Status, VerdictError
from byoc_conformance.promise import Item, Level
from byoc_conformance.promises import find_item
from byoc_conformance.subject import Subject, SubjectSpec

__all__ = ["ItemResult", "Runner", "check_patience", "main"]

_MIN_PATIENCE = 0.01
_OPEN_SECONDS = 60.0
"""How long importing the backend may take."""
_VARIABLES = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Numpy's matrix products run on one thread: how many threads its BLAS uses is no backend's to say."""
_MAX_STARTS = 2
"""After so many processes in a row that ended with the import, no other is started."""
_ENDED = {"crash": Status.CRASHED, "hang": Status.HUNG}


def check_patience(patience: float) -> None:
    """Makes sure that deadlines can be made longer by a factor.

    Raises:
        OptionsError: it is too small, or no number.
    """
    if not patience >= _MIN_PATIENCE:  # so that NaN is none
        raise OptionsError("patience", "cannot be used", got=repr(patience), expected=f"{_MIN_PATIENCE} or more")


@dataclass(frozen=True, slots=True)
class ItemResult:
    """How one test ended.

    Attributes:
        item: the test.
        outcome: how it ended.
        seconds: how long it took; the process's start counts for the first of a level.
    """

    item: Item
    outcome: Outcome
    seconds: float


class Runner:
    """Runs tests, those of each level in one process, which is started anew where it died or was too slow.

    Args:
        spec: the backend under test.
        patience: all deadlines are longer by this factor.

    Raises:
        OptionsError: as :func:`check_patience`.
    """

    def __init__(self, spec: SubjectSpec, *, patience: float = 1.0) -> None:
        check_patience(patience)
        self._spec = spec
        self._patience = patience
        self._workers: dict[Level, Worker] = {}
        self._unopened: list[Outcome] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="byoc-conformance-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Ends the processes; one is started anew where a test needs it. Another thread may call it."""
        for level in list(self._workers):
            self._stop(level)

    def run(self, item: Item) -> ItemResult:
        """Gives how a test ended.

        Raises:
            InternalError: the kit itself failed.
        """
        start = time.monotonic()
        level = item.promise.level
        worker = self._workers.get(level) or self._open(level)
        if isinstance(worker, Outcome):
            return ItemResult(item, worker, time.monotonic() - start)
        reply = worker.ask({"item": item.id}, item.promise.deadline * self._patience)
        if isinstance(reply, Ended):
            self._stop(level)
            outcome = Outcome(_ENDED[reply.code], f"while `{item.id}` ran: {reply.text}")
        else:
            cells = tuple(Cell(op, dtype, Status(status)) for op, dtype, status in reply["cells"])
            outcome = Outcome(Status(reply["status"]), reply["text"], cells)
        return ItemResult(item, outcome, time.monotonic() - start)

    def _open(self, level: Level) -> Worker | Outcome:
        """Gives a process that has the backend, or the outcome of all tests where none can be had.

        A backend that ends processes, or keeps them, when it is imported would else do so once for each test.
        """
        if len(self._unopened) == _MAX_STARTS:
            return self._unopened[-1]
        errors = Path(self._folder.name) / f"{level}.txt"
        worker = Worker("byoc_conformance.runner:main", self._spec.to_json(), errors, _VARIABLES)
        self._workers[level] = worker
        reply = worker.ask({}, _OPEN_SECONDS * self._patience)
        if not isinstance(reply, Ended):
            self._unopened.clear()
            return worker
        self._stop(level)
        self._unopened.append(Outcome(_ENDED[reply.code], f"when the backend was imported: {reply.text}"))
        return self._unopened[-1]

    def _stop(self, level: Level) -> None:
        worker = self._workers.pop(level, None)
        if worker is not None:
            worker.stop()


def main(setup: Mapping[str, Any]) -> None:
    """Serves tests in the inner process.

    Args:
        setup: a :class:`SubjectSpec` as JSON.
    """
    serve(lambda: _Examiner(SubjectSpec.from_json(setup)).answer)


class _Examiner:
    """Holds one subject to promises, one after another."""

    def __init__(self, spec: SubjectSpec) -> None:
        self._spec = spec
        self._subject: Subject | None = None

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Holds the subject to the promise of a request; one without any has the backend imported, if it can be."""
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
        except Exception as error:  # noqa: BLE001 - the plugin border: whatever a backend's code raises is its fault
            return Outcome(Status.FAILED, _describe(error))


def _describe(error: Exception) -> str:
    notes = "".join(f"\n({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{notes}"
