"""Right results of each claimed op: in every dtype, in many sizes, for all kinds of values."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from byoc_core.ir import OpDef

from byoc_conformance.core_ops import core_op_names
from byoc_conformance.drawing import Trial, canonical_trials, drawn_trials, near_trials
from byoc_conformance.outcome import Cell, DeclinedError, NotCoveredError, Outcome, Status
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l2_numerics.judged_trials import (
    join_problems,
    module_of_trials,
    number_trials,
    trial_problems,
)
from byoc_conformance.subject import Attempt, Subject
from byoc_conformance.wrapped_calls import guarded_machine

__all__ = ["PROMISES"]


def _compute_op(subject: Subject, case: str) -> Outcome:
    op = subject.ops[case]
    seed, is_dynamic = subject.spec.seed, subject.info.dynamic_shapes
    canonical = number_trials(canonical_trials(op), "case")
    drawn = number_trials(drawn_trials(op, subject.spec.examples, seed, is_dynamic=is_dynamic), "drawn")
    trials = {**canonical, **drawn}
    attempt = subject.attempt(module_of_trials(trials, seed))
    claimed = _claimed(attempt, trials)
    if not claimed:
        reasons = [reason for name in canonical for reason in attempt.reasons(name)]
        raise DeclinedError(f"{reasons[0].code}: {reasons[0].text}" if reasons else "no reason was given")
    texts = _texts(subject, attempt, claimed)
    declined = [trial for name, trial in trials.items() if name not in claimed]
    near = number_trials(near_trials(op, list(claimed.values()), declined), "near")
    if near:
        attempt = subject.attempt(module_of_trials(near, seed))
        texts |= _texts(subject, attempt, _claimed(attempt, near))
    trials |= near
    cells = _cells(case, trials, {name: not problems for name, problems in texts.items()})
    problems = [text for found in texts.values() for text in found]
    if problems:
        return Outcome(Status.FAILED, join_problems(problems), cells)
    return Outcome(Status.PASSED, f"{len(texts)} of {len(trials)} cases are claimed and right", cells)


def _compute_own_ops(subject: Subject, _: str) -> Outcome:
    subject.require_tools()
    own = [op.name for op in subject.handle.ops() if op.canonical_cases]
    if not own:
        raise NotCoveredError("the backend has no ops of its own with canonical cases")
    outcomes = {}
    for name in own:
        with contextlib.suppress(DeclinedError):
            outcomes[name] = _compute_op(subject, name)
    if not outcomes:
        raise DeclinedError(f"the backend claims none of its own ops: {', '.join(own)}")
    status = Status.FAILED if any(found.status is Status.FAILED for found in outcomes.values()) else Status.PASSED
    text = "\n".join(f"{name}: {found.text}{_defaults(subject.ops[name])}" for name, found in outcomes.items())
    return Outcome(status, text, tuple(cell for found in outcomes.values() for cell in found.cells))


def _defaults(op: OpDef) -> str:
    """Return the judge's assumptions in place of statements missing from the op."""
    return "" if "rounding" not in op.unstated else "\nrounding not stated: no bound for each element was tried"


def _claimed(attempt: Attempt, trials: Mapping[str, Trial]) -> dict[str, Trial]:
    return {name: trial for name, trial in trials.items() if attempt.is_claimed(name)}


def _texts(subject: Subject, module_attempt: Attempt, trials: Mapping[str, Trial]) -> dict[str, list[str]]:
    """Return the faults of each claimed trial."""
    if not trials:
        return {}
    attempt = module_attempt.only(trials)
    guarded = guarded_machine(attempt)
    return {
        name: [f"{trial} is claimed, then not compiled: {attempt.failures[name]}"]
        if name in attempt.failures
        else list(trial_problems(subject, attempt, guarded, trial))
        for name, trial in trials.items()
    }


def _cells(op: str, trials: Mapping[str, Trial], right: Mapping[str, bool]) -> tuple[Cell, ...]:
    """Return the status of the op in each dtype: failed if a case failed, declined if no case was claimed."""
    statuses: dict[str, Status] = {}
    for name, trial in trials.items():
        before = statuses.get(trial.dtype, Status.DECLINED)
        if name in right and before is not Status.FAILED:
            before = Status.PASSED if right[name] else Status.FAILED
        statuses[trial.dtype] = before
    return tuple(Cell(op, dtype, status) for dtype, status in statuses.items())


PROMISES = (
    Promise(
        Level.L2,
        "op",
        "computes a claimed op within the bounds of the op's arithmetic: in every dtype and regime of values, "
        "with all pairs of attributes, in sizes changing from call to call",
        _compute_op,
        cases=core_op_names,
        deadline=240.0,
    ),
    Promise(
        Level.L2,
        "own-ops",
        "computes its own ops within the bounds stated by the ops, in cases similar to the canonical cases",
        _compute_own_ops,
        deadline=240.0,
    ),
)
