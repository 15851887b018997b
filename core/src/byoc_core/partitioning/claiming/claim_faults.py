"""Checks of the claims of a policy or a backend's own partition, and of the resulting module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from byoc_core.errors import InternalError
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, IRModule
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.partitioning.checking.legality import check_partition
from byoc_core.partitioning.claiming.admission import Admission
from byoc_core.partitioning.claiming.claims import Claim, claims_of, without_claims
from byoc_core.transform.capture_sizes import CaptureSizes

__all__ = [
    "ClaimFault",
    "claim_keys",
    "find_fault",
    "find_misclaim",
    "find_other_program",
    "is_carved_lawfully",
]


@dataclass(frozen=True, slots=True)
class ClaimFault:
    """A fault in claims: a clause with the op, and the IR around the op if helpful."""

    problem: str
    detail: str | None = None


def find_fault(before: IRModule, after: IRModule, admissions: Mapping[str, Admission]) -> ClaimFault | None:
    """Return the fault in the claims added to a module, or ``None``.

    The claims must be the only difference: ops keep places, names and order, functions and older claims stay, and no
    function is added. A claimed op is no structural op, and the backend may be asked for it.

    Args:
        before: a valid module.
        after: the module with added claims.
        admissions: the admission of each backend with a right to claim, by name.

    Cost: linear in the ops of both modules.
    """
    return find_misclaim(before, after, admissions) or find_other_program(before, after)


def find_misclaim(before: IRModule, after: IRModule, admissions: Mapping[str, Admission]) -> ClaimFault | None:
    """Return the faults of :func:`find_fault` visible from names and claims; neither module need be valid."""
    return _find_change(before, after) or _find_claim(before, after, admissions)


def find_other_program(before: IRModule, after: IRModule) -> ClaimFault | None:
    """Return the faults of :func:`find_fault` visible only by unfolding both modules."""
    try:
        check_partition(without_claims(before), after)
    except InternalError as error:
        return ClaimFault(error.problem, error.detail)
    return None


def is_carved_lawfully(before: IRModule, claimed: IRModule, carved: IRModule) -> bool:
    """Return whether two steps kept the laws of partition, by one comparison of the first and last module.

    ``False`` means possibly not; only a check of each step finds the faulty step, if any. A body with a size from
    another value (because a composite hides the first value with the size) counts as a difference here, though legal.

    Args:
        before: a valid module.
        claimed: the same with claims, without faults according to :func:`find_misclaim`.
        carved: the same with a region for each group of these claims.
    """
    if _owners(claimed) != _owners(carved):
        return False
    try:
        check_partition(CaptureSizes()(without_claims(before)), carved)
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


def _find_change(before: IRModule, after: IRModule) -> ClaimFault | None:
    added = next((name for name in after.functions if name not in before.functions), None)
    if added is not None:
        return ClaimFault(f"added function `{added}`")
    want, have = Counter(_named_ops(before)), Counter(_named_ops(after))
    if want == have:
        return None
    lost, extra = next(iter(want - have), None), next(iter(have - want), None)
    verb, (source, op, name) = ("lost", lost) if lost is not None else ("added", extra or ("", "", ""))
    return ClaimFault(f"{verb} op `{op}` at `{name}` of function `{source}`")


def _named_ops(module: IRModule) -> Iterator[tuple[str, str, str]]:
    for function in module.functions.values():
        for binding in function.walk():
            if binding.op is not COMPOSITE:
                yield function.name, binding.op.name, ", ".join(result.name for result in binding.results)


def _find_claim(before: IRModule, after: IRModule, admissions: Mapping[str, Admission]) -> ClaimFault | None:
    known, claims = claim_keys(before), list(claims_of(after))
    dropped = sorted(known.difference(map(_key, claims)))
    if dropped:
        _, name, backend = dropped[0]
        return ClaimFault(f"dropped the claim of `{backend}` on `{name}`")
    faults = (_claim_problem(claim, admissions) for claim in claims if _key(claim) not in known)
    return next((ClaimFault(problem) for problem in faults if problem is not None), None)


def _claim_problem(claim: Claim, admissions: Mapping[str, Admission]) -> str | None:
    binding, backend = claim.binding, claim.backend
    what = f"claims {_describe(binding)} for `{backend}`"
    admit = admissions.get(backend)
    if admit is None:
        return f"{what}, which is none of those that may claim here ({', '.join(admissions)})"
    if binding.op in STRUCTURAL_OPS and binding.op is not COMPOSITE:
        return f"{what}, but no backend takes calls and control flow"
    if binding.op is COMPOSITE:
        name = str(binding.attrs["name"])
        if name.partition(".")[0] != backend:
            return f"{what} as composite `{name}`, which is not named for it"
        if any(map(is_data_dependent, claim.ops)):
            return f"{what} as composite `{name}`, which holds an op whose sizes only the data tells"
    for op in claim.ops:
        refusal = admit(claim.source, op)
        if refusal is not None:
            return f"claims {_describe(op)} for `{backend}`, which may not take it ({refusal.code}): {refusal.text}"
    return None


def _describe(binding: Binding) -> str:
    return f"op `{binding.op.name}` at `{binding.results[0].name}`"
