"""Promises as data: the duties of a backend, each with a test.

The ids of tests are a public format: overrides, reports and comparisons of reports name a test by id, and a worker
process finds the test by id. Renaming a promise or a case makes the overrides of users invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_conformance.outcome import Outcome
    from byoc_conformance.subject import Subject

__all__ = ["Item", "Level", "Promise"]


class Level(StrEnum):
    """The levels of the kit; each builds on the levels before."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"
    L4 = "L4"

    @property
    def topic(self) -> str:
        """The topic of the level."""
        return _TOPICS[self]


_TOPICS = {
    Level.L0: "declares: metadata, hooks, options, API range, lint",
    Level.L1: "honest partition: claims everything declared, compiles everything claimed",
    Level.L2: "numerics: every claimed op, dtype and pattern",
    Level.L3: "artifacts: saved modules load again, in other processes too",
    Level.L4: "behaviour: threads, buffers, sizes, memory",
}


def _once() -> tuple[str, ...]:
    return ("",)


@dataclass(frozen=True, slots=True)
class Promise:
    """A duty of every backend.

    Attributes:
        level: the level of the promise.
        name: the name in the kit, words joined by ``-``; a part of the ids.
        text: the promise, as a sentence with the backend as subject.
        check: tests the subject for a case of ``cases``: returns the outcome, ``None`` for a plain pass, or raises a
            :class:`byoc_conformance.outcome.VerdictError`. Any other exception is a failure.
        cases: the parts of the promise, each a separate test; found without asking the backend, and equal in every
            process.
        deadline: seconds for each.
    """

    level: Level
    name: str
    text: str
    check: Callable[[Subject, str], Outcome | None]
    cases: Callable[[], tuple[str, ...]] = _once
    deadline: float = 60.0

    @property
    def items(self) -> tuple[Item, ...]:
        """The tests of the promise."""
        return tuple(Item(self, case) for case in self.cases())


@dataclass(frozen=True, slots=True)
class Item:
    """A test of the kit: a promise, and the case if the promise has several."""

    promise: Promise
    case: str = ""

    @property
    def id(self) -> str:
        """The name in reports and overrides: ``L4-strided-inputs``, ``L2-op[add]``."""
        return f"{self.promise.level}-{self.promise.name}" + (f"[{self.case}]" if self.case else "")
