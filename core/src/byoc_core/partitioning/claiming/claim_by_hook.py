"""Claims by a backend's own algorithm, the hook ``byoc_partition``."""

from __future__ import annotations

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.errors import HookError
from byoc_core.ir import COMPOSITE, Binding, IRModule, is_pure
from byoc_core.partitioning.claiming.claim_faults import claim_keys, find_fault
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter
from byoc_core.partitioning.claiming.claims import Claim, drop_claims, unclaimed_ops
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.pattern import Rejection

__all__ = ["claim_by_hook"]


def claim_by_hook(
    module: IRModule, backend: BackendHandle, context: CompileContext, claim_filter: ClaimFilter, log: PartitionLog
) -> IRModule:
    """Let a backend claim by its hook, and take back forbidden claims.

    Args:
        module: a module, possibly with claims; old claims stay.
        backend: a backend with the hook.
        context: the context of the module.
        claim_filter: the claim filter of the backend, including the core's own conditions.
        log: receives the refusals.

    Raises:
        HookError: the hook raised, changed anything but claims, claimed for another backend, or claimed an op forbidden
            to every backend.
    """
    claimed = backend.partition(module, context)

    def refuse_impure(source: str, binding: Binding) -> Rejection | None:
        return None if is_pure(binding, module.functions) else Rejection("impure", f"`{binding.op.name}` has effects")

    fault = find_fault(module, claimed, {backend.name: refuse_impure})
    if fault is not None:
        raise HookError(backend.where("byoc_partition"), fault.problem, detail=fault.detail)
    old_claims = claim_keys(module)

    def is_dropped(claim: Claim) -> bool:
        if (claim.source, claim.binding.results[0].name, claim.backend) in old_claims:
            return False
        refusal = next((r for op in claim.ops if (r := claim_filter(claim.source, op)) is not None), None)
        if refusal is not None and claim.binding.op is COMPOSITE:
            log.refuse(claim.source, claim.binding, Refusal(backend.name, refusal, str(claim.binding.attrs["name"])))
        return refusal is not None

    remaining = drop_claims(claimed, is_dropped)
    for source, binding in unclaimed_ops(remaining):
        rejection = claim_filter(source, binding) or Rejection(
            "not-claimed", "the backend's own partition does not claim the op"
        )
        log.refuse(source, binding, Refusal(backend.name, rejection))
    return remaining
