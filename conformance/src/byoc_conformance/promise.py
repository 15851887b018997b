"""Promises as data: what a backend must keep, and the test that holds it to it."""

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
    """The levels of the kit; each builds on those before it."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"
    L4 = "L4"

    @property
    def topic(self) -> str:
        """What the level is about."""
        return _TOPICS[self]


_TOPICS = {
    Level.L0: "declares: metadata, hooks, options, API range, lint",
    Level.L1: "honest partition: claims what it declares, and compiles what it claims",
    Level.L2: "numerics: every op, dtype and pattern that it claims",
    Level.L3: "artifacts: what is saved comes back, elsewhere too",
    Level.L4: "behaviour: threads, buffers, sizes, memory",
}


def _once() -> tuple[str, ...]:
    return ("",)


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that every backend must keep.

    Attributes:
        level: where it stands.
        name: its name in the kit, words joined by ``-``.
        text: what the backend promises, as a sentence with the backend as its subject.
        check: holds the subject to it, for one of ``cases``: returns the outcome, ``None`` for a plain pass, or raises
            a :class:`byoc_conformance.outcome.VerdictError`. Any other exception is a failure.
        cases: the parts it comes in, each a test by itself; found without asking the backend.
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
        """Its tests."""
        return tuple(Item(self, case) for case in self.cases())


@dataclass(frozen=True, slots=True)
class Item:
    """One test of the kit: a promise, and the case where it comes in several."""

    promise: Promise
    case: str = ""

    @property
    def id(self) -> str:
        """How reports and overrides name it: ``L4-strided-inputs``, ``L2-op[add]``."""
        return f"{self.promise.level}-{self.promise.name}" + (f"[{self.case}]" if self.case else "")
