"""Reasons of refusals, readable for a person and a report."""

from __future__ import annotations

import re

from byoc_core.pattern import Rejection

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import all_dtypes_once, sample
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _check(subject: Subject, case: str) -> None:
    is_covered = False
    for attempt, items in (sample(subject), all_dtypes_once(subject)):
        for name, item in items.items():
            if attempt.is_claimed(name):
                continue
            is_covered = True
            reasons = attempt.reasons(name)
            if not reasons and not attempt.regions[name]:
                raise FailedError(f"declined without a reason:\n{item}")
            for reason in reasons:
                fault = _fault(reason)
                if fault:
                    raise FailedError(f"declined with {reason}: {fault}\n{item}")
    if not is_covered:
        raise NotCoveredError("the backend declines nothing")


def _fault(reason: Rejection) -> str:
    """Return the fault of a reason; empty if none."""
    if not _CODE.fullmatch(reason.code):
        return "the code is not lower-case words joined by `-`"
    if not reason.text.strip():
        return "the text is empty"
    if "\n" in reason.text or reason.text.endswith("."):
        return "the text is not one clause"
    return ""


PROMISES = (
    Promise(Level.L1, "declines-explained", "gives a code and a clause for each refusal", _check, deadline=120.0),
)
