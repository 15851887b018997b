"""Compilation of a backend's claims among the canonical cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.backend import BackendHandle
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, Function, IRModule
from byoc_core.lint.checks import Trial
from byoc_core.lint.findings import Finding, clause_of
from byoc_core.lint.rules import Question
from byoc_core.partitioning import FuseOpsByPattern, RunCodegen
from byoc_core.pattern import CompositePattern, Rejection

__all__ = ["Claim", "lint_codegen", "op_claims", "pattern_claims"]

_BATCH = 64


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """A function claimed by the backend.

    Attributes:
        function: annotated for the backend, but for the name and symbol.
        where: the source of the claim.
        pattern: the pattern's name, or ``""``.
        text: the case, for messages.
    """

    function: Function
    where: str
    pattern: str
    text: str
    constants: ConstantStore


def op_claims(questions: Sequence[Question]) -> Iterator[Claim]:
    """Yield the single ops taken by ``byoc_supports``; with constants only if the op is never taken without."""
    varying = {q.binding.op.name for q in questions if q.answer.is_yes and not q.constants}
    for question in questions:
        if question.answer.is_yes and not (question.constants and question.binding.op.name in varying):
            where = f"hook `byoc_supports`, op `{question.binding.op.name}`"
            yield Claim(question.function, where, "", str(question), question.constants)


def pattern_claims(pattern: CompositePattern, trials: Sequence[Trial], handle: BackendHandle) -> Iterator[Claim]:
    """Yield the composites made by a pattern from the instances taken."""
    embed = handle.info().constants == "embedded"
    fuse = FuseOpsByPattern([pattern], bind_constants=embed, annotate_codegen=True)
    for trial in trials:
        if trial.answer.is_yes:
            module = fuse(trial.instance.module)
            for function in module.functions.values():
                if "Codegen" in function.attrs:
                    where = f"pattern `{pattern.name}`"
                    yield Claim(function, where, pattern.name, str(trial.instance), module.constants)


def lint_codegen(handle: BackendHandle, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Yield findings for claims that codegen refuses or fails on: the first of each pattern and op, with the number.

    Raises nothing for a backend unable to compile here: this is a finding.
    """
    status = handle.compile_status()
    if not status.ok:
        yield Finding("not-compiled", "hook `byoc_compile_status`", status.reason, hint=status.remedy)
        return
    faults: dict[tuple[str, str], list[tuple[Claim, str]]] = {}
    for start in range(0, len(claims), _BATCH):
        for claim, code, text in _compile(handle, claims[start : start + _BATCH]):
            faults.setdefault((claim.where, code), []).append((claim, text))
    for (where, code), items in faults.items():
        claim, text = items[0]
        yield Finding(code, where, f"{text}; in {len(items)} cases, the first {claim.text}", claim.pattern)


def _compile(handle: BackendHandle, claims: Sequence[Claim]) -> Iterator[tuple[Claim, str, str]]:
    """Yield the claims at fault, each with code and clause; if the whole batch fails, compile each claim alone."""
    try:
        refused = _refusals(handle, claims)
    except ByocError as error:
        if len(claims) == 1:
            yield claims[0], "codegen-raises", clause_of(error)
            return
        for claim in claims:
            yield from _compile(handle, [claim])
        return
    for number, rejection in sorted(refused.items()):
        yield (
            claims[number],
            "codegen-refuses",
            f"codegen refuses a claimed region ({rejection.code}: {rejection.text})",
        )


def _refusals(handle: BackendHandle, claims: Sequence[Claim]) -> Mapping[int, Rejection]:
    """Return the rejections by position."""
    constants, functions = ConstantStore(), {}
    for number, claim in enumerate(claims):
        name = f"lint_{number}"
        annotated = claim.function.with_attrs(Codegen=handle.name, global_symbol=name)
        functions[name] = replace(annotated, name=name)
        for array in claim.constants.values():
            constants.add(array)
    refused: dict[int, Rejection] = {}

    def note(function: Function, backend: str, rejection: Rejection) -> Function:
        refused[int(function.name.rpartition("_")[2])] = rejection
        return replace(function, attrs={})

    RunCodegen(backends=[handle], handover=note)(IRModule(functions, constants))
    return refused
