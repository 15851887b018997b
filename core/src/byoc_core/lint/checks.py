"""Lint of patterns on instances: readings without an instance, and the answers of the pattern's check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.backend import BackendHandle, CompileContext, Support
from byoc_core.errors import ByocError
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.lint.asking import Answer, ask_check
from byoc_core.lint.findings import Finding
from byoc_core.lint.instances import Instance, Instances
from byoc_core.partitioning.claiming.claim_filters import core_refusal
from byoc_core.pattern import CompositePattern, Rejection

__all__ = ["Trial", "lint_check", "lint_instances", "try_instances"]


_HINTS: Mapping[str, str] = {
    "check-raises": "A check is called for every match; refuse unknown matches with a `Rejection`.",
    "unknown-capture": "An alternative of the pattern lacks the capture: test `name in match` first.",
    "check-type": "Return `None` to accept the match, `Rejection(code, text)` to refuse.",
    "check-changes": "The answer must depend on the match only.",
}


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """An instance that the core asks the pattern's check about, and the answer."""

    instance: Instance
    answer: Answer


def lint_instances(pattern: CompositePattern, instances: Instances) -> Iterator[Finding]:
    """Yield findings about the readings of a pattern without a matching function."""
    where = f"pattern `{pattern.name}`"
    for reading, failure in instances.failures.items():
        code = "dead-alternative" if instances.found else "no-instance"
        hint = "Remove the alternative if no model contains these ops; because the search is bounded, some model may."
        yield Finding(code, where, f"no instance found of {reading}: {failure}", pattern.name, hint)


def try_instances(
    pattern: CompositePattern, instances: Sequence[Instance], handle: BackendHandle
) -> tuple[list[Trial], Rejection | None]:
    """Return the check's answers on the instances that the core asks about, and the first reason against the rest."""
    trials, turned_away = [], None
    for instance in instances:
        refusal = next((r for b in instance.match.bindings if (r := core_refusal(b, handle)) is not None), None)
        dependent = next((b for b in instance.match.bindings if is_data_dependent(b)), None)
        if refusal is None and dependent is not None:
            refusal = Rejection("data-dependent-size", f"the result sizes of `{dependent.op.name}` depend on data")
        if refusal is None:
            trials.append(Trial(instance, _ask(pattern, instance)))
        turned_away = turned_away or refusal
    return trials, turned_away


def _ask(pattern: CompositePattern, instance: Instance) -> Answer:
    check = pattern.check
    return Answer() if check is None else ask_check(lambda: check(instance.match))


def lint_check(
    pattern: CompositePattern,
    trials: Sequence[Trial],
    turned_away: Rejection | None,
    handle: BackendHandle,
    context: CompileContext,
) -> Iterator[Finding]:
    """Yield findings about the answers on a pattern's instances."""
    where = f"pattern `{pattern.name}`"
    if not trials:
        if turned_away is not None:
            text = f"the core rejects every match ({turned_away.code}): {turned_away.text}"
            yield Finding("never-asked", where, text, pattern.name)
        return
    faults = [trial for trial in trials if trial.answer.fault]
    for code in dict.fromkeys(trial.answer.fault for trial in faults):
        first = next(trial for trial in faults if trial.answer.fault == code)
        count = sum(trial.answer.fault == code for trial in faults)
        text = f"{first.answer.text}; on {count} of {len(trials)} instances, the first {first.instance}"
        yield Finding(code, where, text, pattern.name, _HINTS[code])
    if faults:
        return
    refused = Counter(f"{r.code}: {r.text}" for trial in trials if (r := trial.answer.rejection) is not None)
    if sum(refused.values()) == len(trials):
        reason, count = refused.most_common(1)[0]
        text = f"the check refuses all {len(trials)} instances, {count} with {reason!r}"
        yield Finding(
            "check-always-rejects",
            where,
            text,
            pattern.name,
            "The pattern claims nothing, unless the check accepts only cases outside the canonical cases: compare "
            "names and sizes.",
        )
    elif not refused:
        yield from _lint_generosity(pattern, trials, handle, context)


def _lint_generosity(
    pattern: CompositePattern, trials: Sequence[Trial], handle: BackendHandle, context: CompileContext
) -> Iterator[Finding]:
    dtypes = list(dict.fromkeys(trial.instance.dtype for trial in trials))
    if len(dtypes) < 2:
        return  # the pattern's conditions leave nothing to refuse
    subject = "the pattern has no check and accepts" if pattern.check is None else "the check accepts"
    shown = [*dtypes[:4], *([f"{len(dtypes) - 4} more dtypes"] if len(dtypes) > 4 else [])]
    text = f"{subject} all {len(trials)} instances, of {', '.join(shown[:-1])} and {shown[-1]}"
    if any(trial.instance.kind == "symbolic" for trial in trials):
        text += ", and with symbolic sizes"
    refusal = next((refusal for trial in trials for refusal in _refusals(trial, handle, context)), "")
    if refusal:
        text += f"; {refusal}"
    hint = "Refuse unsupported cases in the check, or exclude these cases by conditions such as `has_dtype`."
    yield Finding("check-never-rejects", f"pattern `{pattern.name}`", text, pattern.name, hint)


def _refusals(trial: Trial, handle: BackendHandle, context: CompileContext) -> Iterator[str]:
    """Yield the objections of ``byoc_supports`` to single ops of an instance taken by the pattern."""
    instance_context = handle.context(trial.instance.module, context.options)
    for binding in trial.instance.match.bindings:
        try:
            answer: Support | Rejection = handle.supports(binding, instance_context)
        except ByocError:
            return
        if isinstance(answer, Rejection) and answer.code != "no-rule":
            name = binding.op.name
            yield f"`byoc_supports` refuses a single `{name}` of {trial.instance.dtype} ({answer.code}: {answer.text})"
