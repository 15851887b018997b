"""Calls of functions of a single op, in several regimes of values, judged like the op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import VirtualMachine
from byoc_core.debugging.rounding import Rule, rounding_of, rule_of
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule, Trait
from byoc_core.transform import evaluate_function

from byoc_conformance.drawing import Trial, draw_operands, generator_of
from byoc_conformance.outcome import FailedError
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = [
    "Order",
    "TrialForm",
    "join_problems",
    "module_of_trials",
    "number_trials",
    "regimes_of",
    "trial_problems",
]

NDArray = npt.NDArray[Any]
Order = tuple[int, ...] | None

_ORDINARY = ("normal", "halves", "large", "zeros", "small", "tiny")
_EVERYWHERE = (*_ORDINARY, "nonfinite")
_BY_ELEMENT = (*_ORDINARY, "thresholds", "special")
_MAX_TEXTS = 5


@dataclass(frozen=True, slots=True)
class TrialForm:
    """A compiled form of a trial's function.

    Attributes:
        name: the name of the function.
        label: a text behind the trial in messages.
        param_orders: the axes of each parameter as for ``permute_dims``, or ``None``; empty if none is permuted.
        result_orders: the axes of each result.
    """

    name: str
    label: str = ""
    param_orders: Sequence[Order] = ()
    result_orders: Sequence[Order] = ()


def number_trials(trials: Iterator[Trial], prefix: str) -> dict[str, Trial]:
    """Return trials with names made of a prefix and a number, by name."""
    return {f"{prefix}_{k}": trial.named(f"{prefix}_{k}") for k, trial in enumerate(trials)}


def module_of_trials(trials: Mapping[str, Trial], seed: int) -> IRModule:
    """Return a module with the function of each trial."""
    store = ConstantStore()
    functions = {
        name: trial.function(store, generator_of(seed, trial.op.name, name, "constants"))
        for name, trial in trials.items()
    }
    return IRModule(functions, store)


def trial_problems(
    subject: Subject,
    attempt: Attempt,
    guarded: VirtualMachine,
    trial: Trial,
    form: TrialForm | None = None,
    max_regimes: int | None = None,
) -> Iterator[str]:
    """Yield the faults in the results of a function, for each regime of values.

    Every second call has other sizes, if sizes are symbols, and runs on a machine with guarded workspaces.

    Args:
        subject: the backend under test.
        attempt: has the compiled function.
        guarded: the machine with guarded workspaces.
        trial: the op; ``attempt.module`` has its function.
        form: the compiled form of the function, if another than the function itself.
        max_regimes: the largest number of regimes, if not all.
    """
    form = TrialForm(trial.name) if form is None else form
    other = trial.other_case(generator_of(subject.spec.seed, trial.op.name, trial.name, "other sizes"))
    for number, regime in enumerate(regimes_of(trial)[:max_regimes]):
        case = other if other is not None and number % 2 else trial.case
        generator = generator_of(subject.spec.seed, trial.op.name, trial.name, regime)
        operands = draw_operands(trial.op, case, trial.dtype, regime, generator)
        inputs = [array for index, array in enumerate(operands) if index not in trial.constants]
        label = _Label(trial, form, regime, inputs if other is not None else None)
        try:
            stored = _store(inputs, form.param_orders)
            results = call_unchanging(guarded if number % 2 else attempt.vm, form.name, stored)
        except FailedError as error:
            yield f"{label}: {error}"
            return
        except ByocError as error:
            if not _is_refused_by_op(attempt.module, form.name, inputs):
                yield f"{label}: {error}"
            return
        restored = _store(results, [order and inverse(order) for order in form.result_orders])
        verdict = subject.judge(attempt.module, form.name, inputs, restored)
        if not verdict.is_right:
            yield f"{label}: {verdict.text}"


def _store(arrays: Sequence[NDArray], orders: Sequence[Order]) -> list[NDArray]:
    """Return arrays with permuted axes; arrays without an order stay unchanged."""
    return [
        array if order is None else np.ascontiguousarray(array.transpose(order))
        for array, order in zip_longest(arrays, orders)
    ]


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse of a permutation."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


@dataclass(frozen=True, slots=True)
class _Label:
    """The beginning of messages about a call, computed on demand: most calls have no fault.

    Attributes:
        trial: the trial.
        form: the compiled form of the trial's function.
        regime: the regime of the values.
        inputs: the inputs, if the shapes of inputs change from call to call.
    """

    trial: Trial
    form: TrialForm
    regime: str
    inputs: Sequence[NDArray] | None

    def __str__(self) -> str:
        sizes = "" if self.inputs is None else f" of {_shapes(self.inputs)}"
        return f"{self.trial}{self.form.label}, {self.regime} values{sizes}"


def _shapes(arrays: Sequence[NDArray]) -> str:
    return ", ".join(str(list(array.shape)) for array in arrays)


def _is_refused_by_op(module: IRModule, name: str, inputs: Sequence[NDArray]) -> bool:
    """Return whether the op itself rejects the values: a slice out of range, say."""
    try:
        evaluate_function(module, name, inputs)
    except ByocError:
        return True
    return False


def regimes_of(trial: Trial) -> Sequence[str]:
    """Return the regimes of values: all for the first case and in other dtypes, else ordinary values and another.

    Every second time the other regime contains NaN and infinities. Kind and number of a trial are read from the name
    given by :func:`number_trials`: ``case_0``, ``drawn_7``.

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


def join_problems(problems: Sequence[str]) -> str:
    """Return the first texts, a line each, with the number of further texts."""
    more = len(problems) - _MAX_TEXTS
    return "\n".join([*problems[:_MAX_TEXTS], *([f"and {more} more"] if more > 0 else [])])
