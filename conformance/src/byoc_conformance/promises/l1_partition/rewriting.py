"""Rewriting hooks after partition and after codegen: rewritten code keeps the meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import byoc_core
import numpy as np
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule, print_module
from byoc_core.transform import evaluate_function

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.agreement import agree
from byoc_conformance.promises.l1_partition.case_functions import cases_of_few_claims
from byoc_conformance.promises.l1_partition.preparing import inputs_of, is_evaluated
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

Run = Callable[[str, Sequence[Any]], Any]


def _check_after_partition(subject: Subject, case: str) -> None:
    hook = "byoc_after_partition"
    _require(subject, hook)
    attempt, _ = cases_of_few_claims(subject)
    module = attempt.partitioned
    changed, repeated = (_rewrite(subject, hook, module) for _ in range(2))
    if changed is module:
        raise NotCoveredError("the hook rewrites no region")
    if print_module(changed) != print_module(repeated):
        raise FailedError(
            f"the hook rewrites equal regions in two ways:\n{print_module(changed)}\n{print_module(repeated)}"
        )
    _check_same(
        subject,
        lambda name, inputs: evaluate_function(module, name, inputs),
        lambda name, inputs: evaluate_function(changed, name, inputs),
        print_module(changed),
    )


def _check_after_codegen(subject: Subject, case: str) -> None:
    hook = "byoc_after_codegen"
    _require(subject, hook)
    attempt, _ = cases_of_few_claims(subject)
    changed = _rewrite(subject, hook, attempt.compiled)
    if changed is attempt.compiled:
        raise NotCoveredError("the hook replaces no module")
    try:
        before = byoc_core.VirtualMachine(byoc_core.build(attempt.compiled, []))
    except ByocError as error:
        # Covered by other promises: here only changes by the hook count.
        raise NotCoveredError(f"the compiled modules cannot be run before the hook: {error}") from error
    after = byoc_core.VirtualMachine(byoc_core.build(changed, []))
    _check_same(
        subject,
        lambda name, inputs: _as_tuple(before[name](*inputs)),
        lambda name, inputs: _as_tuple(after[name](*inputs)),
        "",
    )


def _require(subject: Subject, hook: str) -> None:
    subject.require_tools()
    if not subject.handle.implements(hook):
        raise NotCoveredError(f"the backend has no hook `{hook}`")


def _rewrite(subject: Subject, hook: str, module: IRModule) -> IRModule:
    """Return the module rewritten by the hook; the core checks that only the backend's own regions change."""
    return subject.handle.rewrite(hook, module, subject.handle.context(module, subject.spec.options))


def _check_same(subject: Subject, before: Run, after: Run, shown: str) -> None:
    _, items = cases_of_few_claims(subject)
    for name, item in items.items():
        if is_evaluated(item):
            inputs = inputs_of(item)
            expected, found = before(name, inputs), after(name, inputs)
            if not agree(expected, found):
                text = f"`{item.subject}` gives other results after rewriting: {found}, expected {expected}"
                raise FailedError("\n".join(filter(None, [text, shown])))


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (np.asarray(results),)


PROMISES = (
    Promise(
        Level.L1,
        "after-partition-keeps-meaning",
        "rewrites regions after partition without changing the results, always in the same way",
        _check_after_partition,
        deadline=120.0,
    ),
    Promise(
        Level.L1,
        "after-codegen-keeps-meaning",
        "replaces modules after codegen by modules with the same results",
        _check_after_codegen,
        deadline=120.0,
    ),
)
