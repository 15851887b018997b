"""How a test counts: its outcome, seen beside what was expected of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from byoc_conformance.outcome import Cell, Status

if TYPE_CHECKING:
    from byoc_conformance.runner import ItemResult

__all__ = ["Judgement", "Verdict", "judge"]


class Verdict(StrEnum):
    """How a test counts, from the best to the worst."""

    PASSED = Status.PASSED.value
    DECLINED = Status.DECLINED.value
    NOT_COVERED = Status.NOT_COVERED.value
    NOT_RUN = "not-run"
    """It was left out of this run."""
    XFAILED = "xfailed"
    """It is broken, as an override says, with a reason."""
    XPASSED = "xpassed"
    """It is not broken, though an override says so: the override must go."""
    FAILED = Status.FAILED.value
    CRASHED = Status.CRASHED.value
    HUNG = Status.HUNG.value

    @property
    def is_red(self) -> bool:
        """Whether somebody must do something."""
        return self in {Verdict.XPASSED, Verdict.FAILED, Verdict.CRASHED, Verdict.HUNG}

    @property
    def is_judged(self) -> bool:
        """Whether the backend was held to the promise: it had something to show, or broke it."""
        return self in {Verdict.PASSED, Verdict.XFAILED} or self.is_red


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one test counts.

    Attributes:
        id: of the test.
        verdict: in a word.
        text: why, where it did not pass; what was seen, where that is worth telling.
        seconds: how long it took.
        reason: why it is expected to be broken; empty where it is not.
        cells: what it says of single ops and dtypes.
    """

    id: str
    verdict: Verdict
    text: str
    seconds: float
    reason: str = ""
    cells: Sequence[Cell] = ()

    def to_json(self) -> dict[str, Any]:
        """Gives plain JSON values that :meth:`from_json` reads."""
        values = {name: getattr(self, name) for name in self.__slots__}
        cells = [[cell.op, cell.dtype, cell.status.value] for cell in self.cells]
        return values | {"verdict": self.verdict.value, "cells": cells}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Judgement:
        """Gives the judgement back."""
        cells = tuple(Cell(op, dtype, Status(status)) for op, dtype, status in values["cells"])
        return cls(**{**values, "verdict": Verdict(values["verdict"]), "cells": cells})


def judge(result: ItemResult, reason: str | None) -> Judgement:
    """Gives how a test counts.

    Args:
        result: how it ended.
        reason: why it is expected to be broken; ``None`` where it is not.
    """
    verdict, text = Verdict(result.outcome.status), result.outcome.text
    if reason is not None:
        ended = f"{verdict}: {text}" if text else f"{verdict}"
        if result.outcome.status.is_broken:
            verdict, text = Verdict.XFAILED, ended
        else:
            verdict = Verdict.XPASSED
            text = f"is expected to be broken ({reason}), and is not: {ended}\nRemove it from the overrides."
    return Judgement(result.item.id, verdict, text, round(result.seconds, 3), reason or "", result.outcome.cells)
