"""Patterns never taking anything, because another pattern always goes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from byoc_core.backend import BackendHandle
from byoc_core.ir import COMPOSITE
from byoc_core.lint.asking import ask_check
from byoc_core.lint.checks import Trial
from byoc_core.lint.findings import Finding
from byoc_core.lint.instances import Instance
from byoc_core.lint.selections import walk
from byoc_core.partitioning import FuseOpsByPattern
from byoc_core.partitioning.claiming.claim_filters import backend_filter
from byoc_core.partitioning.log import PartitionLog
from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection
from byoc_core.pattern.language import OpPattern, ValuePattern

__all__ = ["have_equal_form", "lint_shadowing"]


def lint_shadowing(
    patterns: Sequence[CompositePattern], trials: Mapping[int, Sequence[Trial]], handle: BackendHandle
) -> Iterator[Finding]:
    """Yield findings about patterns taking nothing, by the total order among overlapping matches.

    Args:
        patterns: all patterns of a backend, in the backend's order.
        trials: by position in ``patterns``, the instances that the core asks about.
        handle: the backend.
    """
    # Unique names: composites then identify their patterns.
    numbered = [
        replace(pattern, name=f"{pattern.backend}.{order}", check=_quiet(pattern))
        for order, pattern in enumerate(patterns)
    ]
    fuse = FuseOpsByPattern(numbered, claim_filter=backend_filter(handle))
    for order, pattern in enumerate(patterns):
        claimed = [trial.instance for trial in trials.get(order, ()) if trial.answer.is_yes]
        winners = [_winners(fuse, instance) for instance in claimed]
        if winners and not any(winners):
            yield _declined(pattern, numbered[order], claimed[0], handle)
        elif winners and not any(order in numbers for numbers in winners):
            yield _finding(pattern, [patterns[number] for number in sorted(set().union(*winners))], len(claimed))
        elif not claimed:
            yield from _lint_form(patterns, order)


def _quiet(pattern: CompositePattern) -> Any:
    """Return a check refusing the match if the pattern's own check is at fault; the fault is another finding."""
    check = pattern.check
    if check is None:
        return None

    def contained_check(match: Match) -> Rejection | None:
        answer = ask_check(lambda: check(match))
        return Rejection("not-claimed", answer.text) if answer.fault else answer.rejection

    return contained_check


def _winners(fuse: FuseOpsByPattern, instance: Instance) -> set[int]:
    """Return the positions of the patterns taking something of an instance."""
    bindings = fuse(instance.module).functions["main"].bindings
    return {int(str(b.attrs["name"]).partition(".")[2]) for b in bindings if b.op is COMPOSITE}


def _declined(
    pattern: CompositePattern, numbered: CompositePattern, instance: Instance, handle: BackendHandle
) -> Finding:
    """Return the finding for a pattern with matches taken by no pattern, not even by this pattern."""
    log = PartitionLog()
    FuseOpsByPattern([numbered], claim_filter=backend_filter(handle), log=log)(instance.module)
    refusals = log.refusals("main", instance.match.root.results[0].name)
    reasons = [f" ({refusal.rejection.code}): {refusal.rejection.text}" for refusal in refusals]
    text = f"the core rejects every match{next(iter(reasons), '')}"
    return Finding("never-asked", f"pattern `{pattern.name}`", text, pattern.name)


def _finding(pattern: CompositePattern, winners: Sequence[CompositePattern], count: int) -> Finding:
    names = ", ".join(f"`{winner.name}`" for winner in winners)
    certain = all(_surely_wins(winner, pattern) for winner in winners)
    text = f"{names} {'wins' if len(winners) == 1 else 'win'} in all {count} instances accepted by this pattern"
    hint = (
        "Precedence: higher priority, more ops, order of `byoc_patterns`. Move the pattern up, or remove the pattern."
    )
    return Finding("shadowed" if certain else "outranked", f"pattern `{pattern.name}`", text, pattern.name, hint)


def _surely_wins(winner: CompositePattern, pattern: CompositePattern) -> bool:
    """Return whether a pattern that won some matches of another wins all, as it requires only ops, or the same."""
    if winner.leaked == "decline" and pattern.leaked == "return":
        return False  # matches with leaking values, declined by the winner, are left
    if have_equal_form(winner.pattern, pattern.pattern):
        return winner.check is None or winner.check is pattern.check
    return winner.check is None and all(
        not node.conditions
        and not (isinstance(node, OpPattern) and node.attrs)
        and not (isinstance(node, ValuePattern) and node.kind != "any")
        for node in walk(winner.pattern)
    )


def _lint_form(patterns: Sequence[CompositePattern], order: int) -> Iterator[Finding]:
    """Yield a finding for a pattern without instances, if an equal pattern goes first and has no check."""
    pattern = patterns[order]
    ranks = [(-other.priority, number) for number, other in enumerate(patterns)]
    for number, other in enumerate(patterns):
        is_equal = other.check is None and have_equal_form(other.pattern, pattern.pattern)
        if ranks[number] < ranks[order] and is_equal and _surely_wins(other, pattern):
            text = f"`{other.name}` is the same pattern, has precedence and has no check"
            yield Finding(
                "shadowed", f"pattern `{pattern.name}`", text, pattern.name, "Remove one of the two patterns."
            )
            return


def have_equal_form(left: Pattern, right: Pattern) -> bool:
    """Return whether two patterns match the same, as far as the form shows: captures do not count."""
    return _equal(left, right, {}, {})


def _equal(left: Any, right: Any, forward: dict[int, int], backward: dict[int, int]) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple):
        return len(left) == len(right) and all(
            _equal(a, b, forward, backward) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(_equal(left[key], right[key], forward, backward) for key in left)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if not is_dataclass(left):
        return bool(left == right)
    names = {field.name for field in fields(left)}
    if isinstance(left, Pattern):
        names -= {"name"}
        if forward.setdefault(id(left), id(right)) != id(right) or backward.setdefault(id(right), id(left)) != id(left):
            return False
    return all(_equal(getattr(left, name), getattr(right, name), forward, backward) for name in sorted(names))
