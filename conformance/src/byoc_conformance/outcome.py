"""The outcome of holding a backend to a promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Cell", "DeclinedError", "FailedError", "NotCoveredError", "Outcome", "Status", "VerdictError"]


class Status(StrEnum):
    """The end of a test, from the best to the worst.

    Reports contain the values; of several statuses of an op in a dtype, the worst by this order counts.
    """

    PASSED = "passed"
    """The promise was kept, on work done by the backend itself."""
    DECLINED = "declined"
    """The backend declines the work, with a reason."""
    NOT_COVERED = "not-covered"
    """Nothing to test: the backend claims nothing covered by the promise."""
    FAILED = "failed"
    """The promise was broken."""
    CRASHED = "crashed"
    """The process ended."""
    HUNG = "hung"
    """There was no answer within the deadline."""

    @property
    def is_broken(self) -> bool:
        """Whether the promise was not kept."""
        return self in {Status.FAILED, Status.CRASHED, Status.HUNG}


@dataclass(frozen=True, slots=True)
class Cell:
    """The status of an op in a dtype: a cell of the coverage table."""

    op: str
    dtype: str
    status: Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test.

    Attributes:
        status: in a word.
        text: the reason for a status other than passed; observations worth reporting.
        cells: statuses of single ops and dtypes.
    """

    status: Status = Status.PASSED
    text: str = ""
    cells: Sequence[Cell] = ()


class VerdictError(Exception):
    """The end of a test with an outcome other than a pass."""

    status: Status

    @property
    def outcome(self) -> Outcome:
        """The corresponding outcome."""
        return Outcome(self.status, str(self))


class FailedError(VerdictError):
    """The promise is broken; the text states the observation and the promise."""

    status = Status.FAILED


class DeclinedError(VerdictError):
    """The backend declines all work under test; the text is its reason."""

    status = Status.DECLINED


class NotCoveredError(VerdictError):
    """The backend claims no work under test; the text states the missing work."""

    status = Status.NOT_COVERED
