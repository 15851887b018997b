"""Checks of the claims of a policy or a backend's own partition, and of the resulting module.

The cheap half compares names and claims (:func:`find_claim_fault`); the costly half unfolds both modules
(:func:`find_program_change`). A backend's partition gets both. The claims of a policy always get the cheap half; the
costly half runs with limits on regions, and otherwise only after a failure of merging or of
:func:`is_legal_partition`, to find the guilty step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from byoc_core.errors import InternalError
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, IRModule
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.partitioning.checking.legality import check_partition
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter
from byoc_core.partitioning.claiming.claims import Claim, claims_of, without_claims
from byoc_core.transform.capture_sizes import CaptureSizes

__all__ = [
    "ClaimFault",
    "claim_keys",
    "find_claim_fault",
    "find_fault",
    "find_program_change",
    "is_legal_partition",
]


@dataclass(frozen=True, slots=True)
class ClaimFault:
    """A fault in claims: a clause with the op, and the IR around the op if helpful."""

    problem: str
    detail: str | None = None


def find_fault(before: IRModule, after: IRModule, claim_filters: Mapping[str, ClaimFilter]) -> ClaimFault | None:
    """Return the fault in the claims added to a module, or ``None``.

    The claims must be the only difference: ops keep places, names and order, functions and older claims stay, and no
    function is added. A claimed op is no structural op, and the backend may be asked for it.

    Args:
        before: a valid module.
        after: the module with added claims.
        claim_filters: the claim filter of each backend with a right to claim, by name.

    Cost: linear in the ops of both modules.
    """
    return find_claim_fault(before, after, claim_filters) or find_program_change(before, after)


def find_claim_fault(before: IRModule, after: IRModule, claim_filters: Mapping[str, ClaimFilter]) -> ClaimFault | None:
    """Return the faults of :func:`find_fault` visible from names and claims; neither module need be valid."""
    return _find_op_change(before, after) or _find_forbidden_claim(before, after, claim_filters)


def find_program_change(before: IRModule, after: IRModule) -> ClaimFault | None:
    """Return the faults of :func:`find_fault` visible only by unfolding both modules."""
    try:
        check_partition(without_claims(before), after)
    except InternalError as error:
        return ClaimFault(error.problem, error.detail)
    return None


def is_legal_partition(before: IRModule, claimed: IRModule, partitioned: IRModule) -> bool:
    """Return whether two steps kept the laws of partition, by one comparison of the first and last module.

    ``False`` means possibly not; only a check of each step finds the faulty step, if any. A body with a size from
    another value (because a composite hides the first value with the size) counts as a difference here, though legal.

    Args:
        before: a valid module.
        claimed: the same with claims, without faults according to :func:`find_claim_fault`.
        partitioned: the same with a region for each group of these claims.
    """
    if _owners(claimed) != _owners(partitioned):
        return False
    try:
        check_partition(CaptureSizes()(without_claims(before)), partitioned)
    except InternalError:
        return False
    return True


def _owners(module: IRModule) -> dict[tuple[str, str, str], str]:
    """Return the backend of each claimed op, by function, name of the first result, and kind."""
    return {
        (claim.source, op.results[0].name, op.op.name): claim.backend for claim in claims_of(module) for op in claim.ops
    }


def claim_keys(module: IRModule) -> set[tuple[str, str, str]]:
    """Return the claims of a module: function, name of the first result, backend."""
    return set(map(_key, claims_of(module)))


def _key(claim: Claim) -> tuple[str, str, str]:
    return claim.source, claim.binding.results[0].name, claim.backend


def _find_op_change(before: IRModule, after: IRModule) -> ClaimFault | None:
    added = next((name for name in after.functions if name not in before.functions), None)
    if added is not None:
        return ClaimFault(f"added function `{added}`")
    expected, actual = Counter(_named_ops(before)), Counter(_named_ops(after))
    if expected == actual:
        return None
    lost, extra = next(iter(expected - actual), None), next(iter(actual - expected), None)
    verb, (source, op, name) = ("lost", lost) if lost is not None else ("added", extra or ("", "", ""))
    return ClaimFault(f"{verb} op `{op}` at `{name}` of function `{source}`")


def _named_ops(module: IRModule) -> Iterator[tuple[str, str, str]]:
    for function in module.functions.values():
        for binding in function.walk():
            if binding.op is not COMPOSITE:
                yield function.name, binding.op.name, ", ".join(result.name for result in binding.results)


def _find_forbidden_claim(
    before: IRModule, after: IRModule, claim_filters: Mapping[str, ClaimFilter]
) -> ClaimFault | None:
    old_claims, claims = claim_keys(before), list(claims_of(after))
    dropped = sorted(old_claims.difference(map(_key, claims)))
    if dropped:
        _, name, backend = dropped[0]
        return ClaimFault(f"dropped the claim of `{backend}` on `{name}`")
    faults = (_claim_problem(claim, claim_filters) for claim in claims if _key(claim) not in old_claims)
    return next((ClaimFault(problem) for problem in faults if problem is not None), None)


def _claim_problem(claim: Claim, claim_filters: Mapping[str, ClaimFilter]) -> str | None:
    binding, backend = claim.binding, claim.backend
    claim_text = f"claims {_describe(binding)} for `{backend}`"
    claim_filter = claim_filters.get(backend)
    if claim_filter is None:
        return f"{claim_text}, but only these backends may claim: {', '.join(claim_filters) or 'none'}"
    if binding.op in STRUCTURAL_OPS and binding.op is not COMPOSITE:
        return f"{claim_text}, but no backend may claim calls and control flow"
    if binding.op is COMPOSITE:
        name = str(binding.attrs["name"])
        if name.partition(".")[0] != backend:
            return f"{claim_text} as composite `{name}`, but the name must start with `{backend}.`"
        if any(map(is_data_dependent, claim.ops)):
            return f"{claim_text} as composite `{name}`, but the composite contains an op with data-dependent sizes"
    for op in claim.ops:
        refusal = claim_filter(claim.source, op)
        if refusal is not None:
            return (
                f"claims {_describe(op)} for `{backend}`, but the claim is forbidden ({refusal.code}): {refusal.text}"
            )
    return None


def _describe(binding: Binding) -> str:
    return f"op `{binding.op.name}` at `{binding.results[0].name}`"
