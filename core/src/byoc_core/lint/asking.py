"""Questions to a check or a hook about a case, each asked twice, and the faults of the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from byoc_core.errors import ByocError, HookError, MissingCaptureError
from byoc_core.lint.findings import clause_of
from byoc_core.pattern import Rejection

__all__ = ["Answer", "ask_check", "ask_hook"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question about a case.

    Attributes:
        rejection: the refusal; ``None`` for a yes or no answer at all.
        fault: the code of the answer's fault, ``""`` without a fault.
        text: the fault, as a clause.
    """

    rejection: Rejection | None = None
    fault: str = ""
    text: str = ""

    @property
    def is_yes(self) -> bool:
        """Whether the case is taken."""
        return self.rejection is None and not self.fault


def ask_check(check: Callable[[], object]) -> Answer:
    """Return the answer of a pattern's check on a match."""
    try:
        first, second = check(), check()
    except Exception as error:  # noqa: BLE001 - what a stranger's check raises is the finding
        if isinstance(error, MissingCaptureError):
            return Answer(fault="unknown-capture", text=f"the check requests a missing capture: {error}")
        return Answer(fault="check-raises", text=f"the check raised {type(error).__name__}: {error}")
    for answer in (first, second):
        if answer is not None and not isinstance(answer, Rejection):
            plain = isinstance(answer, bool | int | float | str)  # the repr of other objects may contain an address
            text = f"the check returned {repr(answer) if plain else type(answer)}, neither a Rejection nor None"
            return Answer(fault="check-type", text=text)
    if first != second:
        return Answer(
            fault="check-changes", text=f"the check returned {_describe_answer(first)}, then {_describe_answer(second)}"
        )
    return Answer(first if isinstance(first, Rejection) else None)


def ask_hook(supports: Callable[[], object]) -> Answer:
    """Return the answer of ``byoc_supports`` on an op; an answer of another type is a ``HookError`` without a cause."""
    try:
        first, second = supports(), supports()
    except ByocError as error:
        is_type = isinstance(error, HookError) and error.__cause__ is None
        return Answer(fault="supports-type" if is_type else "supports-raises", text=clause_of(error))
    if first != second:
        return Answer(
            fault="supports-changes", text=f"returned {_describe_answer(first)}, then {_describe_answer(second)}"
        )
    return Answer(first if isinstance(first, Rejection) else None)


def _describe_answer(answer: object) -> str:
    return f"a Rejection ({answer.code}: {answer.text})" if isinstance(answer, Rejection) else "acceptance"
