"""Near misses: patterns with a near fit at an unclaimed op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byoc_core.backend import BackendHandle
from byoc_core.errors import PatternError
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.partitioning.claiming.claim_filters import core_refusal
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.partitioning.op_sites import walk_bodies
from byoc_core.pattern import CompositePattern, FunctionIndex, Mismatch, OpPattern, Rejection, explain_mismatch
from byoc_core.pattern.plan import walk

__all__ = ["log_near_misses"]

_MAX_EXPLAINED = 20_000
"""The maximum number of examined pairs of an op and a pattern, in the order of the ops: some seconds' work."""


def log_near_misses(before: IRModule, after: IRModule, backends: Sequence[BackendHandle], log: PartitionLog) -> None:
    """Record for each unclaimed op, and for each backend, the best-fitting pattern and the misfit.

    Ops left out are: ops about which the core does not ask the backend, and ops with a fitting but refused pattern.

    Args:
        before: the module before any claim, with unique names.
        after: the same with claims.
        backends: the asked backends.
        log: receives refusals with the code ``near-miss``, and the number of ops passed over because the bound was met.

    Cost: linear in the functions, and the cost of :func:`byoc_core.pattern.explain_mismatch` for each unclaimed op and
    each pattern with the op's name, up to a bound.
    """
    pairs_left = _MAX_EXPLAINED
    by_op = {handle.name: _patterns_by_op(handle.patterns()) for handle in backends}
    if not any(by_op.values()):
        return
    for function in before.functions.values():
        if "Codegen" not in function.attrs:
            unclaimed = set(_unclaimed(after[function.name]))
            for body in walk_bodies(function):
                index = FunctionIndex(body, before.constants)
                for binding in body.bindings if unclaimed else ():
                    is_passed_over = False
                    for handle in backends if binding.results[0].name in unclaimed else ():
                        patterns = by_op[handle.name].get(binding.op.name, ())
                        if not patterns or _has_better_reason(function.name, binding, handle, log):
                            continue
                        if len(patterns) > pairs_left:
                            pairs_left, is_passed_over = 0, True
                            continue
                        pairs_left -= len(patterns)
                        _log_best(function.name, binding, index, handle, patterns, log)
                    log.num_passed_over += is_passed_over


def _has_better_reason(function: str, binding: Binding, handle: BackendHandle, log: PartitionLog) -> bool:
    """Return whether the backend is not asked about the op, or refused a pattern fitting the op."""
    if core_refusal(binding, handle) is not None:
        return True
    refusals = log.refusals(function, binding.results[0].name)
    return any(refusal.backend == handle.name and refusal.pattern for refusal in refusals)


def _log_best(
    function: str,
    binding: Binding,
    index: FunctionIndex,
    handle: BackendHandle,
    patterns: Sequence[CompositePattern],
    log: PartitionLog,
) -> None:
    best: tuple[Mismatch, CompositePattern] | None = None
    for pattern in patterns:
        try:
            mismatch = explain_mismatch(pattern.pattern, binding, index)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a condition is the backend's own code
            problem = f"a condition raised {type(error).__name__}: {error}"
            pattern_error = PatternError(f"pattern `{pattern.name}`", problem)
            pattern_error.__cause__ = error
            handle.contain("byoc_patterns", pattern_error, binding.results[0].name)
            continue
        if mismatch is not None and (best is None or mismatch.num_matched > best[0].num_matched):
            best = mismatch, pattern
    if best is not None:
        mismatch, pattern = best
        reason = Rejection("near-miss", f"`{pattern.name}` does not fit: {mismatch.text}")
        log.refuse(function, binding, Refusal(handle.name, reason, pattern.name, mismatch.ops))


def _patterns_by_op(patterns: Sequence[CompositePattern]) -> dict[str, list[CompositePattern]]:
    """Return the patterns by the names of their ops, in their own order."""
    by_op: dict[str, list[CompositePattern]] = {}
    for pattern in patterns:
        names = {name for part in walk(pattern.pattern) if isinstance(part, OpPattern) for name in part.ops}
        for name in sorted(names):
            by_op.setdefault(name, []).append(pattern)
    return by_op


def _unclaimed(function: Function) -> Iterator[str]:
    """Yield the names of the unclaimed ops in a function, including bodies of control flow."""
    for body in walk_bodies(function):
        yield from (binding.results[0].name for binding in body.bindings if binding.codegen is None)
