"""What comes of holding a backend to one promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Cell", "DeclinedError", "FailedError", "NotCoveredError", "Outcome", "Status", "VerdictError"]


class Status(StrEnum):
    """How a test ended, from the best to the worst."""

    PASSED = "passed"
    """The promise was kept, on work that the backend itself did."""
    DECLINED = "declined"
    """The backend says, with a reason, that it does not do this."""
    NOT_COVERED = "not-covered"
    """There was nothing to hold the backend to: it claims nothing that the promise is about."""
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
    """How one op fared in one dtype: a cell of the coverage table."""

    op: str
    dtype: str
    status: Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test ended.

    Attributes:
        status: in a word.
        text: why, where it did not pass; what was seen, where that is worth telling.
        cells: what it says of single ops and dtypes.
    """

    status: Status = Status.PASSED
    text: str = ""
    cells: Sequence[Cell] = ()


class VerdictError(Exception):
    """Ends a test with an outcome that is not a pass."""

    status: Status

    @property
    def outcome(self) -> Outcome:
        """The outcome that it stands for."""
        return Outcome(self.status, str(self))


class FailedError(VerdictError):
    """The promise is broken; the text says what was seen, and what was promised."""

    status = Status.FAILED


class DeclinedError(VerdictError):
    """The backend declines everything that the test is about; the text is its reason."""

    status = Status.DECLINED


class NotCoveredError(VerdictError):
    """The backend claims nothing that the test is about; the text says what was looked for."""

    status = Status.NOT_COVERED
