"""Patterns: each pattern claims something, and the claims are compiled."""

from __future__ import annotations

from byoc_core.ir import ConstantStore, IRModule
from byoc_core.lint import find_instances
from byoc_core.partitioning import FuseOpsByPattern, PartitionLog
from byoc_core.pattern import CompositePattern

from byoc_conformance.outcome import DeclinedError, FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import (
    attempt_of,
    format_reasons,
    pattern_functions,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]


def _require_patterns(subject: Subject) -> tuple[CompositePattern, ...]:
    if subject.handle.claims_by_itself:
        raise NotCoveredError("the backend claims by `byoc_partition` instead of patterns")
    patterns = subject.handle.patterns()
    if not patterns:
        raise NotCoveredError("the backend has no patterns")
    return patterns


def _check_claims(subject: Subject, case: str) -> None:
    subject.require_tools()
    is_covered = False
    for pattern in _require_patterns(subject):
        modules = [
            instance.module
            for instance in find_instances(pattern.pattern, subject.ops).found
            if subject.info.dynamic_shapes or instance.kind != "symbolic"
        ]
        log = PartitionLog()
        is_covered = is_covered or bool(modules)
        if modules and not any(_is_claimed(pattern, module, log) for module in modules):
            refusals = [refusal for module in modules for refusal in log.refusals("main", _root(module))]
            reason = f"{refusals[0].rejection.code}: {refusals[0].rejection.text}" if refusals else "no reason given"
            raise FailedError(
                f"pattern `{pattern.name}` claims none of the {len(modules)} matching functions ({reason}): "
                f"{pattern.pattern}"
            )
    if not is_covered:
        raise NotCoveredError("no functions matching the patterns were found")


def _is_claimed(pattern: CompositePattern, module: IRModule, log: PartitionLog) -> bool:
    fused = FuseOpsByPattern([pattern], log=log)(module)
    return any(binding.codegen == pattern.backend for binding in fused["main"].bindings)


def _root(module: IRModule) -> str:
    return module["main"].bindings[-1].results[0].name


def _check_compiles(subject: Subject, case: str) -> None:
    _require_patterns(subject)
    constants = ConstantStore()
    attempt, items = attempt_of(subject, pattern_functions(subject, constants), constants)
    if not any(attempt.regions[name] for name in items):
        if not items:
            raise NotCoveredError("no functions matching the patterns were found")
        raise DeclinedError(format_reasons(attempt, items))
    for name, text in attempt.failures.items():
        if attempt.regions[name]:
            item = items[name]
            raise FailedError(
                f"pattern `{item.subject}` claimed the function, but codegen did not compile it: {text}\n{item}"
            )


PROMISES = (
    Promise(
        Level.L1,
        "patterns-claim",
        "claims, with each pattern, at least one of the functions made for the pattern",
        _check_claims,
        deadline=120.0,
    ),
    Promise(
        Level.L1,
        "patterns-compile",
        "compiles everything claimed by patterns",
        _check_compiles,
        deadline=300.0,
    ),
)
