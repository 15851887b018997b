"""Right results of each claimed op: in every dtype, in many sizes, for all kinds of values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from byoc_core import VirtualMachine
from byoc_core.debugging.rounding import Rule, rounding_of, rule_of
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule, OpDef, Trait
from byoc_core.transform import evaluate_function

from byoc_conformance.core_ops import core_op_names
from byoc_conformance.drawing import Trial, canonical_trials, draw_operands, drawn_trials, generator_of, near_trials
from byoc_conformance.outcome import Cell, DeclinedError, FailedError, NotCoveredError, Outcome, Status
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Attempt, Subject, call_unchanging
from byoc_conformance.wrapped_calls import guarded_machine

__all__ = ["PROMISES"]

NDArray = npt.NDArray[Any]

_ORDINARY = ("normal", "halves", "large", "zeros", "small", "tiny")
_EVERYWHERE = (*_ORDINARY, "nonfinite")
_BY_ELEMENT = (*_ORDINARY, "thresholds", "special")
_MAX_TEXTS = 5


def _compute_op(subject: Subject, case: str) -> Outcome:
    op = subject.ops[case]
    seed, is_dynamic = subject.spec.seed, subject.info.dynamic_shapes
    canonical = _numbered(canonical_trials(op), "case")
    drawn = _numbered(drawn_trials(op, subject.spec.examples, seed, is_dynamic=is_dynamic), "drawn")
    trials = {**canonical, **drawn}
    attempt = subject.attempt(_module_of(trials, seed))
    claimed = _claimed(attempt, trials)
    if not claimed:
        reasons = [reason for name in canonical for reason in attempt.reasons(name)]
        raise DeclinedError(f"{reasons[0].code}: {reasons[0].text}" if reasons else "no reason was given")
    texts = _texts(subject, attempt, claimed)
    declined = [trial for name, trial in trials.items() if name not in claimed]
    near = _numbered(near_trials(op, list(claimed.values()), declined), "near")
    if near:
        attempt = subject.attempt(_module_of(near, seed))
        texts |= _texts(subject, attempt, _claimed(attempt, near))
    trials |= near
    cells = _cells(case, trials, {name: not problems for name, problems in texts.items()})
    problems = [text for found in texts.values() for text in found]
    if problems:
        return Outcome(Status.FAILED, _joined(problems), cells)
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
        else list(_problems(subject, attempt, guarded, trial))
        for name, trial in trials.items()
    }


def _numbered(trials: Iterator[Trial], prefix: str) -> dict[str, Trial]:
    return {f"{prefix}_{k}": trial.named(f"{prefix}_{k}") for k, trial in enumerate(trials)}


def _module_of(trials: Mapping[str, Trial], seed: int) -> IRModule:
    store = ConstantStore()
    functions = {
        name: trial.function(store, generator_of(seed, trial.op.name, name, "constants"))
        for name, trial in trials.items()
    }
    return IRModule(functions, store)


def _problems(subject: Subject, attempt: Attempt, guarded: VirtualMachine, trial: Trial) -> Iterator[str]:
    """Yield the faults in the results of a function, for each regime of values.

    Every second call has other sizes, if sizes are symbols, and runs on a machine with guarded workspaces.
    """
    other = trial.other_case(generator_of(subject.spec.seed, trial.op.name, trial.name, "other sizes"))
    for number, regime in enumerate(_regimes(trial)):
        case = other if other is not None and number % 2 else trial.case
        generator = generator_of(subject.spec.seed, trial.op.name, trial.name, regime)
        operands = draw_operands(trial.op, case, trial.dtype, regime, generator)
        inputs = [array for index, array in enumerate(operands) if index not in trial.constants]
        label = f"{trial}, {regime} values" + (f" of {_shapes(inputs)}" if other is not None else "")
        try:
            results = call_unchanging(guarded if number % 2 else attempt.vm, trial.name, inputs)
        except FailedError as error:
            yield f"{label}: {error}"
            return
        except ByocError as error:
            if not _is_refused_by_op(attempt.module, trial.name, inputs):
                yield f"{label}: {error}"
            return
        verdict = subject.judge(attempt.module, trial.name, inputs, results)
        if not verdict.is_right:
            yield f"{label}: {verdict.text}"


def _shapes(arrays: Sequence[NDArray]) -> str:
    return ", ".join(str(list(array.shape)) for array in arrays)


def _is_refused_by_op(module: IRModule, name: str, inputs: Sequence[NDArray]) -> bool:
    """Return whether the op itself rejects the values: a slice out of range, say."""
    try:
        evaluate_function(module, name, inputs)
    except ByocError:
        return True
    return False


def _regimes(trial: Trial) -> Sequence[str]:
    """Return the regimes of values: all for the first case and in other dtypes, else ordinary values and another.

    Every second time the other regime contains NaN and infinities. Kind and number of a trial are read from the name
    given by :func:`_numbered`: ``case_0``, ``drawn_7``.

    The largest numbers are used if an element of the result depends on few others: otherwise some orders of adding
    overflow, and others do not.
    """
    binding = trial.binding()
    is_by_element = Trait.ELEMENTWISE in trial.op.traits or rule_of(binding) is Rule.MOVEMENT
    rounding = rounding_of(binding)
    regimes = _BY_ELEMENT if is_by_element else _ORDINARY if rounding.skips_zeros else _EVERYWHERE
    kind, _, number = trial.name.partition("_")
    # Only few numbers test an op with rounding to integers: midpoints between two results.
    rounds_to_integers = rounding.integers is Rule.NORM
    is_other_dtype = trial.dtype != trial.op.canonical_cases[0].dtype
    if (kind == "case" and int(number) == 0) or is_other_dtype or rounds_to_integers:
        return regimes
    *tame, wild = regimes[1:]
    if kind == "case":
        return (regimes[0], tame[int(number) % len(tame)], wild)
    turn, is_wild = divmod(int(number), 2)
    return (regimes[0], wild if is_wild else tame[turn % len(tame)])


def _cells(op: str, trials: Mapping[str, Trial], right: Mapping[str, bool]) -> tuple[Cell, ...]:
    """Return the status of the op in each dtype: failed if a case failed, declined if no case was claimed."""
    statuses: dict[str, Status] = {}
    for name, trial in trials.items():
        before = statuses.get(trial.dtype, Status.DECLINED)
        if name in right and before is not Status.FAILED:
            before = Status.PASSED if right[name] else Status.FAILED
        statuses[trial.dtype] = before
    return tuple(Cell(op, dtype, status) for dtype, status in statuses.items())


def _joined(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_TEXTS
    return "\n".join([*problems[:_MAX_TEXTS], *([f"and {more} more"] if more > 0 else [])])


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
