"""Compilation of claims, op by op; source of the cells of the coverage table."""

from __future__ import annotations

from byoc_core.ir import ConstantStore

from byoc_conformance.core_ops import core_op_names
from byoc_conformance.outcome import Cell, FailedError, NotCoveredError, Outcome, Status
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import (
    CaseFunction,
    attempt_of,
    case_functions,
    format_reasons,
    own_op_functions,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]


def _compile_op(subject: Subject, case: str) -> Outcome:
    constants = ConstantStore()
    full_attempt, items = attempt_of(subject, case_functions(subject.ops[case], constants), constants)
    claimed = [name for name in items if full_attempt.is_claimed(name)]
    if not claimed:
        return Outcome(Status.DECLINED, format_reasons(full_attempt, items), _cells(items, claimed, []))
    # Level 2 compiles other dtypes, constants and symbols, and runs them.
    own = [name for name in claimed if items[name].is_most_common] or claimed
    attempt = full_attempt.only(own)
    failures = [name for name in own if name in attempt.failures]
    cells = _cells(items, claimed, failures)
    if failures:
        text = f"claimed, then not compiled: {attempt.failures[failures[0]]}\n{items[failures[0]]}"
        return Outcome(Status.FAILED, text, cells)
    return Outcome(Status.PASSED, f"{len(claimed)} of {len(items)} cases are claimed", cells)


def _cells(items: dict[str, CaseFunction], claimed: list[str], failures: list[str]) -> tuple[Cell, ...]:
    """Return a cell for each dtype: failed if a case failed, passed if a case is claimed, else declined."""
    found: dict[tuple[str, str], Status] = {}
    for name, item in items.items():
        status = Status.FAILED if name in failures else Status.PASSED if name in claimed else Status.DECLINED
        previous = found.setdefault((item.subject, item.dtype), status)
        if previous is not Status.FAILED and status is not Status.DECLINED:
            found[item.subject, item.dtype] = status
    return tuple(Cell(op, dtype, status) for (op, dtype), status in found.items())


def _compile_own_ops(subject: Subject, case: str) -> None:
    own = [op.name for op in subject.handle.ops()]
    if not own:
        raise NotCoveredError("the backend has no ops of its own")
    attempt, items = attempt_of(subject, own_op_functions(subject), ConstantStore())
    if not items:
        raise NotCoveredError(f"no operands were found for the backend's own ops: {', '.join(own)}")
    claimed = {item.subject for name, item in items.items() if attempt.is_claimed(name)}
    in_patterns = " ".join(str(pattern.pattern) for pattern in subject.handle.patterns())
    for name, item in items.items():
        is_view = subject.ops[item.subject].view is not None  # programs make the view, whatever backends claim
        if item.subject not in claimed and not is_view and f"{item.subject}(" not in in_patterns:
            reason = format_reasons(attempt, [name])
            raise FailedError(
                f"the backend defines the op `{item.subject}`, but claims the op nowhere: {reason}\n{item}"
            )
    for name, text in attempt.failures.items():
        raise FailedError(f"claimed, then not compiled: {text}\n{items[name]}")


PROMISES = (
    Promise(
        Level.L1,
        "op-compiles",
        "compiles every claimed canonical case of an op",
        _compile_op,
        cases=core_op_names,
        deadline=180.0,
    ),
    Promise(
        Level.L1,
        "own-ops",
        "claims and compiles its own ops, except views",
        _compile_own_ops,
        deadline=120.0,
    ),
)
