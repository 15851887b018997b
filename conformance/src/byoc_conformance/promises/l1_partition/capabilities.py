"""Use of the declared capabilities: symbolic sizes and data-dependent sizes if declared, constants for every backend.

A backend must claim at least a part of a single case of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.ir import Trait

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import (
    CaseFunction,
    all_cases,
    format_reasons,
    sample,
    variants_in_all_dtypes,
)
from byoc_conformance.subject import Attempt, Subject

__all__ = ["PROMISES"]

_FLAGS = {"dynamic-shapes": "dynamic_shapes", "data-dependent-sizes": "data_dependent_sizes"}


def _check(subject: Subject, case: str) -> None:
    declared = getattr(subject.info, _FLAGS[case]) if case in _FLAGS else True
    if not declared:
        raise NotCoveredError(f"`{_FLAGS[case]}` is not declared")
    for attempt_cases in (sample, all_cases, variants_in_all_dtypes):  # the first costs least, and is enough for most
        attempt, items = attempt_cases(subject)
        relevant = [name for name, item in items.items() if _is_relevant(item, case)]
        if any(attempt.regions[name] for name in relevant):
            return
    if case in _FLAGS:
        reason = format_reasons(attempt, relevant)
        raise FailedError(f"`{_FLAGS[case]}` is declared, but no canonical case is claimed ({reason})")
    _check_constants(*all_cases(subject))


def _check_constants(attempt: Attempt, items: Mapping[str, CaseFunction]) -> None:
    """Judge a backend without claims on constants.

    Raises:
        FailedError: the backend claims the same cases without constant operands.
        NotCoveredError: the backend claims no such case.
    """
    tried = {_origin(item) for item in items.values() if item.kind == "constants"}
    varying = [name for name, item in items.items() if item.kind == "static" and _origin(item) in tried]
    claimed = next((name for name in varying if attempt.is_claimed(name)), None)
    if claimed is None:
        raise NotCoveredError("the backend claims no op with several operands")
    raise FailedError(
        f"the backend claims `{items[claimed].subject}`, but no op with a constant operand; "
        'declare `constants="lifted"` to get constants as parameters'
    )


def _origin(item: CaseFunction) -> tuple[str, str, int]:
    """Return the common key of a case with constants and the case without."""
    return item.subject, item.dtype, id(item.case)


def _is_relevant(item: CaseFunction, capability: str) -> bool:
    if capability == "dynamic-shapes":
        return item.kind == "symbolic"
    if capability == "constants":
        return item.kind == "constants"
    return any(binding.op.has_trait(Trait.DATA_DEPENDENT) for binding in item.function.walk())


PROMISES = (
    Promise(
        Level.L1,
        "capability",
        "uses each declared capability in at least one canonical case",
        _check,
        cases=lambda: (*_FLAGS, "constants"),
        deadline=120.0,
    ),
)
