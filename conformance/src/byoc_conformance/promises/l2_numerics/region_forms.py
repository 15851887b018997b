"""Other forms of claimed functions of a single op, with the changes made by the compiler after partition.

The compiler names a schedule on the ops of a region, and permutes values at the borders of a region. The backend is
not asked for claims again: the forms change partitioned modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from byoc_core import VirtualMachine
from byoc_core.backend.hooks import CompileContext
from byoc_core.errors import ByocError
from byoc_core.ir import COMPOSITE, Binding, Function, OpDef
from byoc_core.transform import clone_function

from byoc_conformance.drawing import Trial, canonical_trials, drawn_trials
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promises.l2_numerics.judged_trials import (
    Order,
    TrialForm,
    join_problems,
    module_of_trials,
    number_trials,
    trial_problems,
)
from byoc_conformance.subject import Attempt, Subject
from byoc_conformance.wrapped_calls import guarded_machine

__all__ = ["ClaimedOp", "RegionForm", "hold_forms", "require_hook", "thin_out", "with_schedule"]

_MAX_REGIMES = 2
_MAX_DRAWN = 10
"""The largest numbers of regimes of values, and of drawn trials asked about."""


@dataclass(frozen=True, eq=False, slots=True)
class ClaimedOp:
    """A trial claimed by the subject as a region of a single op, or of a single composite.

    Attributes:
        trial: the op.
        caller: the function calling the region.
        region: the region.
    """

    trial: Trial
    caller: Function
    region: Function

    @property
    def binding(self) -> Binding:
        """The op, or the composite."""
        return self.region.bindings[0]

    @property
    def question(self) -> Function:
        """The region as a question to a hook about a single op."""
        return replace(self.region, attrs={"Codegen": self.region.attrs["Codegen"]})


@dataclass(frozen=True, eq=False, slots=True)
class RegionForm:
    """Another form of a claimed op.

    Attributes:
        claimed: the op.
        label: a text behind the trial in messages.
        caller: the function calling the region.
        region: the changed region.
        param_orders: see :class:`TrialForm`.
        result_orders: see :class:`TrialForm`.
    """

    claimed: ClaimedOp
    label: str
    caller: Function
    region: Function
    param_orders: Sequence[Order] = ()
    result_orders: Sequence[Order] = ()

    def named(self, number: int) -> tuple[str, Mapping[str, Function]]:
        """Return a name for the function of the form, and the caller and the region with names of their own."""
        name, region_name = f"{self.caller.name}_{number}", f"{self.region.name}_form_{number}"
        (call,) = self.caller.bindings
        call = replace(call, attrs={**call.attrs, "callee": region_name})
        attrs = {**self.region.attrs, "global_symbol": region_name, "source": name}
        return name, {
            region_name: clone_function(replace(self.region, name=region_name, attrs=attrs)),
            name: clone_function(replace(self.caller, name=name, bindings=(call,))),
        }


def require_hook(subject: Subject, hook: str) -> None:
    """Raise if the subject has no such hook, or cannot compile here.

    Raises:
        NotCoveredError: the hook is missing, or a part for compiling.
    """
    subject.require_tools()
    if not subject.handle.implements(hook):
        raise NotCoveredError(f"the backend has no hook `{hook}`")


_T = TypeVar("_T")
FormsOf = Callable[[Sequence[ClaimedOp], CompileContext], Sequence[RegionForm]]


def hold_forms(subject: Subject, op: str, forms_of: FormsOf, *, missing: str, duty: str) -> Outcome:
    """Compile other forms of the claimed trials of an op as a single module, and judge the results like the op's.

    Args:
        subject: the backend under test.
        op: the name of the op.
        forms_of: asks the hook, and returns other forms of some of the claimed trials.
        missing: the outcome's text if there are no forms.
        duty: the promise broken by a form without compiled code.

    Raises:
        FailedError: a hook failed, a form is not compiled, or a result is wrong.
        NotCoveredError: the op is not claimed, or has no other forms.
    """
    # Most ops have no other forms: a few cases are asked about first.
    for num_drawn in (0, _MAX_DRAWN):
        attempt, claimed = _claim(subject, subject.ops[op], num_drawn)
        try:
            options = subject.options.get(subject.name, {})
            forms = forms_of(claimed, subject.handle.context(attempt.partitioned, options))
        except ByocError as error:
            raise FailedError(str(error)) from error
        if not forms:
            raise NotCoveredError(missing if claimed else "the backend claims no canonical case of the op alone")
    functions: dict[str, Function] = {}
    partitioned: dict[str, Function] = {}
    named: dict[str, RegionForm] = {}
    for number, form in enumerate(forms):
        name, parts = form.named(number)
        named[name] = form
        functions[name] = clone_function(replace(attempt.module[form.claimed.trial.name], name=name))
        partitioned |= parts
    changed = attempt.with_partition(attempt.module.with_functions(functions), partitioned)
    guarded = guarded_machine(changed)
    problems = [text for name, form in named.items() for text in _problems(subject, changed, guarded, name, form)]
    if changed.failures:
        problems.append(duty)
    if problems:
        raise FailedError(join_problems(problems))
    return Outcome(text=f"{len(forms)} forms of {len({form.claimed for form in forms})} cases are right")


def thin_out(items: Sequence[_T], count: int) -> Sequence[_T]:
    """Return at most so many items, from all parts of a sequence."""
    return items[:: max(1, -(-len(items) // count))]


def _claim(subject: Subject, op: OpDef, num_drawn: int) -> tuple[Attempt, list[ClaimedOp]]:
    """Return the trials of an op claimed as a region with a single binding, and the partition of all trials.

    Canonical cases are tried with constants for all operands but the first, too: weights of networks are constants.
    """
    seed, is_dynamic = subject.spec.seed, subject.info.dynamic_shapes
    drawn: list[Trial] = []
    if num_drawn:
        all_drawn = number_trials(drawn_trials(op, subject.spec.examples, seed, is_dynamic=is_dynamic), "drawn")
        drawn += thin_out(list(all_drawn.values()), num_drawn)
    canonical = list(canonical_trials(op))
    fixed = (replace(trial, constants=frozenset(range(1, len(trial.case.operands)))) for trial in canonical)
    trials = {
        **number_trials(iter(canonical), "case"),
        **number_trials((trial for trial in fixed if trial.constants), "fixed"),
        **{trial.name: trial for trial in drawn},
    }
    attempt = subject.attempt(module_of_trials(trials, seed))
    claimed = []
    for name, trial in trials.items():
        caller, regions = attempt.partitioned[name], attempt.regions[name]
        if attempt.is_claimed(name) and len(regions) == len(caller.bindings) == len(regions[0].bindings) == 1:
            claimed.append(ClaimedOp(trial, caller, regions[0]))
    return attempt, claimed


def _problems(
    subject: Subject, attempt: Attempt, guarded: VirtualMachine, name: str, form: RegionForm
) -> Iterator[str]:
    trial = form.claimed.trial
    if name in attempt.failures:
        yield f"{trial}{form.label} is not compiled: {attempt.failures[name]}"
        return
    compiled = TrialForm(name, form.label, form.param_orders, form.result_orders)
    yield from trial_problems(subject, attempt, guarded, trial, compiled, _MAX_REGIMES)


def with_schedule(claimed: ClaimedOp, schedule: str) -> RegionForm:
    """Return the op with the name of a schedule; the ops of a composite share the name."""
    binding = claimed.binding
    if binding.op is COMPOSITE:
        (body,) = binding.regions
        members = tuple(replace(member, schedule=schedule) for member in body.bindings)
        binding = replace(binding, regions=(replace(body, bindings=members),))
    else:
        binding = replace(binding, schedule=schedule)
    region = replace(claimed.region, bindings=(binding,))
    return RegionForm(claimed, f" with the schedule `{schedule}`", claimed.caller, region)
