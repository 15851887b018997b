"""The judgement of a test: the outcome, compared with the expected outcome."""

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
    """The verdict on a test, from the best to the worst; the values are part of ``conformance.json``."""

    PASSED = Status.PASSED.value
    DECLINED = Status.DECLINED.value
    NOT_COVERED = Status.NOT_COVERED.value
    NOT_RUN = "not-run"
    """Left out of this run."""
    XFAILED = "xfailed"
    """Broken, as expected by an override with a reason."""
    XPASSED = "xpassed"
    """Not broken, despite an override: the override must go."""
    FAILED = Status.FAILED.value
    CRASHED = Status.CRASHED.value
    HUNG = Status.HUNG.value

    @property
    def is_red(self) -> bool:
        """Whether somebody must act."""
        return self in {Verdict.XPASSED, Verdict.FAILED, Verdict.CRASHED, Verdict.HUNG}

    @property
    def is_judged(self) -> bool:
        """Whether the promise applied to the backend: the backend had work to show, or broke the promise."""
        return self in {Verdict.PASSED, Verdict.XFAILED} or self.is_red


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a test.

    Attributes:
        id: of the test.
        verdict: in a word.
        text: the reason for a verdict other than passed; observations worth reporting.
        seconds: the duration.
        reason: the reason for an expected failure; empty if none is expected.
        cells: statuses of single ops and dtypes.
    """

    id: str
    verdict: Verdict
    text: str
    seconds: float
    reason: str = ""
    cells: Sequence[Cell] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for :meth:`from_json`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        cells = [[cell.op, cell.dtype, cell.status.value] for cell in self.cells]
        return values | {"verdict": self.verdict.value, "cells": cells}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Judgement:
        """Return the judgement."""
        cells = tuple(Cell(op, dtype, Status(status)) for op, dtype, status in values["cells"])
        return cls(**{**values, "verdict": Verdict(values["verdict"]), "cells": cells})


def judge(result: ItemResult, reason: str | None) -> Judgement:
    """Return the judgement of a test.

    Args:
        result: the result of the test.
        reason: the reason for an expected failure; ``None`` if none is expected.
    """
    verdict, text = Verdict(result.outcome.status), result.outcome.text
    if reason is not None:
        ended = f"{verdict}: {text}" if text else f"{verdict}"
        if result.outcome.status.is_broken:
            verdict, text = Verdict.XFAILED, ended
        else:
            verdict = Verdict.XPASSED
            text = f"is expected to be broken ({reason}), but is not: {ended}\nRemove the test from the overrides."
    return Judgement(result.item.id, verdict, text, round(result.seconds, 3), reason or "", result.outcome.cells)
