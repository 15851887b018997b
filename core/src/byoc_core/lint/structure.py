"""Lint of patterns by form alone: names, operand counts, attributes, result indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from byoc_core.errors import IRTypeError, near_names
from byoc_core.ir import REQUIRED, OpDef, OpRegistry
from byoc_core.lint.candidates import NothingFitsError, fitting_attrs
from byoc_core.lint.findings import Finding, clause_of
from byoc_core.lint.selections import walk
from byoc_core.ops.cases import new_function
from byoc_core.pattern import CompositePattern, Condition, Pattern, Predicate
from byoc_core.pattern.conditions import HasDtype, HasRank, HasShape, Where
from byoc_core.pattern.language import Alternatives, OpPattern

__all__ = ["has_own_tests", "lint_names", "lint_structure"]


def lint_names(patterns: Sequence[CompositePattern]) -> Iterator[Finding]:
    """Yield a finding for each name shared by several patterns."""
    for name, count in Counter(pattern.name for pattern in patterns).items():
        if count > 1:
            hint = "Join the patterns with `|`, or give each a name."
            yield Finding("duplicate-name", f"pattern `{name}`", f"{count} patterns have this name", name, hint)


def has_own_tests(pattern: Pattern) -> bool:
    """Return whether matching the pattern runs code of the pattern's author, which may raise anything."""
    nodes = list(walk(pattern))
    attrs = [value for node in nodes if isinstance(node, OpPattern) for value in node.attrs.values()]
    conditions = [condition for node in nodes for condition in node.conditions]
    return any(isinstance(item, Predicate | Where) for item in (*attrs, *conditions))


def lint_structure(pattern: CompositePattern, ops: OpRegistry) -> Iterator[Finding]:
    """Yield findings about requirements that no op can fulfil, each once."""
    found: dict[Finding, None] = {}
    if not _ends_with_op(pattern.pattern):
        hint = "The last part of a pattern must be an op."
        found[
            Finding("no-root", f"pattern `{pattern.name}`", "the pattern does not end with an op", pattern.name, hint)
        ] = None
    for node in walk(pattern.pattern):
        text = _contradiction(node)
        if text:
            found[Finding("contradiction", f"pattern `{pattern.name}`", text, pattern.name)] = None
        if isinstance(node, OpPattern):
            for name in sorted(node.ops):
                found.update(dict.fromkeys(_lint_op(pattern.name, node, name, ops)))
    yield from found


def _ends_with_op(pattern: Pattern) -> bool:
    if isinstance(pattern, Alternatives):
        return any(map(_ends_with_op, pattern.choices))
    return isinstance(pattern, OpPattern)


def _contradiction(node: Pattern) -> str:
    """Return the contradiction between the required dtypes, ranks and sizes, as a clause; ``""`` if there is none."""
    for kind, possible in ((HasDtype, _dtypes), ((HasRank, HasShape), _ranks)):
        required = [condition for condition in node.conditions if isinstance(condition, kind)]
        if required and not set.intersection(*map(possible, required)):
            return f"no value of {node} fits {' and '.join(map(str, required))}"
    shapes = [condition for condition in node.conditions if isinstance(condition, HasShape)]
    for sizes in zip(*(shape.shape for shape in shapes), strict=False):
        if len({size for size in sizes if isinstance(size, int)}) > 1:
            return f"no value of {node} fits {' and '.join(map(str, shapes))}"
    return ""


def _dtypes(condition: Condition) -> set[object]:
    return set(condition.dtypes) if isinstance(condition, HasDtype) else set()


def _ranks(condition: Condition) -> set[object]:
    if isinstance(condition, HasShape):
        return {len(condition.shape)}
    return set(condition.ranks) if isinstance(condition, HasRank) else set()


def _lint_op(pattern: str, node: OpPattern, name: str, ops: OpRegistry) -> Iterator[Finding]:
    where, op = f"pattern `{pattern}`, op `{name}`", ops.get(name)
    if op is None:
        yield Finding("unknown-op", where, "the op does not exist", pattern, near_names(name, ops))
        return
    yield from _lint_arity(pattern, where, node, op)
    yield from _lint_attributes(pattern, node, op)
    counts = {len(results) for results in _canonical_results(op)}
    if len(counts) == 1 and node.result_index >= max(counts):
        text = f"has {max(counts)} results, but the pattern requires the result with index {node.result_index}"
        yield Finding("result-index", where, text, pattern)


def _lint_arity(pattern: str, where: str, node: OpPattern, op: OpDef) -> Iterator[Finding]:
    if node.operands is None:
        return
    least = len(node.operands) + (node.rest.at_least if node.rest is not None else 0)
    # An op with a fixed number of operands fits a pattern with an open number from a lower minimum.
    count = max(least, len(op.operands)) if node.rest is not None else least
    try:
        op.check_arity(count)
    except IRTypeError as error:
        operand_count = f"{least} or more" if node.rest is not None else str(least)
        text = f"{error.problem}, but the pattern has {operand_count} operands"
        yield Finding("operand-count", where, text, pattern, "The pattern never matches this op.")


def _canonical_results(op: OpDef) -> Iterator[Sequence[object]]:
    for case in op.canonical_cases:
        yield new_function(op, case.types(), case.attrs)[0].results


def _lint_attributes(pattern: str, node: OpPattern, op: OpDef) -> Iterator[Finding]:
    if not node.attrs:
        return
    refusal: IRTypeError | None = None
    bases: list[dict[str, Any]] = [dict(case.attrs) for case in op.canonical_cases]
    if not bases and not any(spec.default is REQUIRED and spec.name not in node.attrs for spec in op.attrs):
        bases = [{}]
    for base in bases:
        try:
            fitting_attrs(op, node.attrs, base)
        except NothingFitsError:
            return
        except IRTypeError as error:
            refusal = refusal or error
        else:
            return
    if refusal is not None:
        hint = refusal.hint or "The pattern never matches this op."
        yield Finding("bad-attribute", f"pattern `{pattern}`, {refusal.where}", clause_of(refusal), pattern, hint)
