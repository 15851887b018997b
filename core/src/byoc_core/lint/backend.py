"""The whole lint of a backend."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.backend.own_ops import ops_with
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.errors import ByocError, ForeignNameError, HookError
from byoc_core.ir import OpRegistry
from byoc_core.lint.checks import Trial, lint_check, lint_instances, try_instances
from byoc_core.lint.compiling import Claim, lint_codegen, op_claims, pattern_claims
from byoc_core.lint.declaration import lint_declaration
from byoc_core.lint.findings import Finding, clause_of
from byoc_core.lint.instances import find_instances
from byoc_core.lint.rules import Question, ask_rules, lint_rules
from byoc_core.lint.shadowing import lint_shadowing
from byoc_core.lint.structure import has_own_tests, lint_names, lint_structure
from byoc_core.pattern import CompositePattern

__all__ = ["lint_backend"]

_UNSTATED = {
    "kernel": (
        "has no kernel: the host cannot run the op, and results cannot be judged",
        "Give `OpDef(kernel=...)` a function of numpy arrays.",
    ),
    "flops": (
        "states no FLOPs: reports count one operation for each element, and bounds of errors are wide",
        "Give `OpDef(flops=...)` a formula; `no_flops` if the op only moves data.",
    ),
    "rounding": (
        "states no rounding: results are judged as a whole, without a bound for each element",
        "Give `OpDef(rounding=...)` a `Rounding`, for example `Rounding(Rule.ULP, 2.0)`.",
    ),
    "cases": (
        "has no canonical cases: neither the lint nor the conformance kit tests the op alone",
        "Give `OpDef(cases=...)` a function returning `example(...)` values.",
    ),
    "doc": ("has no doc: reports and pages cannot describe the computation", "Give `OpDef(doc=...)` a sentence."),
}
"""By fact of :attr:`OpDef.unstated`: the effect of the default, and the next step."""


def lint_backend(
    backend: str | object, *, compile_claims: bool = False, registry: Backends | None = None
) -> tuple[Finding, ...]:
    """Return the findings about a backend's declaration, patterns and rules, errors first.

    The backend's hooks are asked about canonical cases only. The findings are true of these cases; none is no proof.
    The same backend gets the same findings in every process.

    Args:
        backend: the backend's name, a plugin object or a handle.
        compile_claims: also compile every case claimed by the backend; may require the backend's tools and take long.
        registry: the backends for names; by default the backends installed for this process.

    Raises:
        BackendNotFoundError: no backend of this name is installed.
        PluginError: the plugin cannot be used at all; gives the reason.
    """
    handle = find_registry(registry).get(backend)
    findings = list(dict.fromkeys(_lint(handle, compile_claims=compile_claims)))
    order = {"error": 0, "warning": 1}
    return tuple(sorted(findings, key=lambda f: (order[f.severity], f.pattern, f.where, f.code, f.text)))


def _lint(handle: BackendHandle, *, compile_claims: bool) -> Iterator[Finding]:
    declared = list(lint_declaration(handle))
    yield from declared
    if any(finding.code == "bad-options" for finding in declared):
        return  # no other hook can be called without options
    ops = yield from _find_ops(handle)
    patterns = yield from _find_patterns(handle)
    context = handle.context()
    yield from lint_names(patterns)
    trials: dict[int, list[Trial]] = {}
    for order, pattern in enumerate(patterns):
        trials[order] = yield from _lint_pattern(pattern, handle, ops, context)
    yield from lint_shadowing(patterns, trials, handle)
    questions = list(ask_rules(handle, context, ops))
    yield from lint_rules(handle, context, questions)
    yield from _lint_use(handle, questions, [trial for found in trials.values() for trial in found])
    if compile_claims:
        claims: list[Claim] = [claim for n, p in enumerate(patterns) for claim in pattern_claims(p, trials[n], handle)]
        yield from lint_codegen(handle, [*claims, *op_claims(questions)])


def _find_ops(handle: BackendHandle) -> Generator[Finding, None, OpRegistry]:
    """Return the core's ops and the backend's own; yield findings about the backend's own ops."""
    try:
        for op in handle.ops():
            for fact in op.unstated:
                text, hint = _UNSTATED[fact]
                yield Finding(f"unstated-{fact}", f"hook `byoc_ops`, op `{op.name}`", text, hint=hint)
        return ops_with([handle])
    except ByocError as error:
        yield Finding("bad-ops", "hook `byoc_ops`", str(error))
        return ops_with([])


def _find_patterns(handle: BackendHandle) -> Generator[Finding, None, tuple[CompositePattern, ...]]:
    try:
        return handle.patterns()
    except ByocError as error:
        foreign = isinstance(error, ForeignNameError)
        text = clause_of(error) if isinstance(error, HookError) else str(error)
        yield Finding("foreign-name" if foreign else "bad-patterns", "hook `byoc_patterns`", text)
        return ()


def _lint_pattern(
    pattern: CompositePattern, handle: BackendHandle, ops: OpRegistry, context: CompileContext
) -> Generator[Finding, None, list[Trial]]:
    """Yield the findings about a pattern; return the trials of the instances that the core asks about."""
    misfits = list(lint_structure(pattern, ops))
    yield from misfits
    try:
        instances = find_instances(pattern.pattern, ops)
    except Exception as error:
        if not has_own_tests(pattern.pattern):
            raise
        text = f"a condition raised {type(error).__name__}: {error}"
        hint = "A condition must accept every possible value, of any dtype, rank and symbolic sizes."
        yield Finding("condition-raises", f"pattern `{pattern.name}`", text, pattern.name, hint)
        return []
    if not misfits:
        yield from lint_instances(pattern, instances)
    trials, turned_away = try_instances(pattern, instances.found, handle)
    yield from lint_check(pattern, trials, turned_away, handle, context)
    return trials


def _lint_use(handle: BackendHandle, questions: Sequence[Question], trials: Sequence[Trial]) -> Iterator[Finding]:
    """Yield findings about unused capabilities."""
    kinds = {question.kind for question in questions if question.answer.is_yes}
    kinds |= {trial.instance.kind for trial in trials if trial.answer.is_yes}
    where = "hook `byoc_backend_info`"
    if handle.claims_by_itself:
        return  # the lint does not ask about claims by the backend's own algorithm
    if not kinds and not handle.ops():
        yield Finding("claims-nothing", f"backend `{handle.name}`", "the backend claims no canonical case")
        return
    info = handle.info()
    if info.dynamic_shapes and "symbolic" not in kinds:
        text = "`dynamic_shapes` is declared, but no case with symbolic sizes is claimed"
        yield Finding("unused-capability", where, text)
    if info.data_dependent_sizes and "data-dependent" not in kinds:
        text = "`data_dependent_sizes` is declared, but no op with data-dependent sizes is claimed"
        yield Finding("unused-capability", where, text)
