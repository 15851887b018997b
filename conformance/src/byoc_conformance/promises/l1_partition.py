"""Level 1: a backend claims what it declares, and compiles what it claims."""

from __future__ import annotations

from byoc_core.ir import IRModule
from byoc_core.ir.printer import print_function
from byoc_core.ops.cases import new_function, op_cases

from byoc_conformance.outcome import DeclinedError, FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]


def _compile_claims(subject: Subject, case: str) -> None:
    functions = {}
    for number, canonical in enumerate(op_cases()[case]):
        name = f"case_{number}"
        functions[name], _ = new_function(subject.ops[case], canonical.types(), canonical.attrs, name)
    attempt = subject.attempt(IRModule(functions))
    claimed = [name for name in functions if attempt.is_claimed(name)]
    if not claimed:
        reasons = [reason for name in functions for reason in attempt.reasons(name)]
        raise DeclinedError(f"{reasons[0].code}: {reasons[0].text}" if reasons else "no reason was given")
    if attempt.failures:
        name, text = next(iter(attempt.failures.items()))
        raise FailedError(f"claimed, then not compiled: {text}\n{print_function(attempt.module[name])}")


PROMISES = (
    Promise(
        Level.L1,
        "op-compiles",
        "compiles every canonical case of an op that it claims",
        _compile_claims,
        cases=lambda: tuple(op_cases()),
    ),
)
