"""Limits on the size of regions: regions below a limit give their ops back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from byoc_core.backend.handle import BackendHandle
from byoc_core.dims import evaluate_at_one
from byoc_core.ir import Binding, IRModule
from byoc_core.ir.sizes import cited_symbols
from byoc_core.partitioning.claiming.claim_filters import with_refused_ops
from byoc_core.partitioning.claiming.claims import Claim, claims_of, drop_claims
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.constraints.options import PartitionOptions
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.merging.merge import merge_claims
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection
from byoc_core.transform.capture_sizes import CaptureSizes

__all__ = ["claim_within_limits", "has_limits"]


def has_limits(options: PartitionOptions, backends: Sequence[BackendHandle]) -> bool:
    """Return whether there is a limit on the size of regions, set by the user or stated by a backend."""
    is_limited = options.min_ops or options.min_flops or options.min_bytes
    return bool(is_limited or any(_min_flops(options, backends).values()))


def _min_flops(options: PartitionOptions, backends: Sequence[BackendHandle]) -> dict[str, int]:
    """Return the minimum operations of a region worth a call, by backend."""
    return {backend.name: backend.info().min_region_flops if options.backend_limits else 0 for backend in backends}


def claim_within_limits(
    module: IRModule,
    claim: Callable[[IRModule, PartitionRequest], IRModule],
    request: PartitionRequest,
    constraints: Constraints,
) -> IRModule:
    """Claim, and claim anew without the ops of regions too small for their backends, until no region is too small.

    The first backend with too small regions gives the ops back; later backends may do better with these ops in the next
    round.

    Args:
        module: the module to claim in.
        claim: a policy, possibly with surrounding checks; the result is merged unchecked, for the sizes only.
        request: the request to the policy.
        constraints: the constraints with the limits. A region with a forced op, or claimed before, is never too small.

    Cost: the policy and the merging of regions, once more for each round with a too small region. The loop ends: each
    round takes at minimum an op more from a backend.
    """
    released_ops: dict[tuple[str, OpKey], Rejection] = {}
    while True:
        log = PartitionLog()
        claim_filters = with_refused_ops(released_ops, request.claim_filters)
        claimed = claim(module, replace(request, log=log, claim_filters=claim_filters))
        if released_ops:  # a policy claiming by itself need not have asked
            claimed = drop_claims(
                claimed, lambda c: any((c.backend, op_key(c.source, op)) in released_ops for op in c.ops)
            )
        small = _small_regions(module, claimed, constraints, _min_flops(constraints.options, request.backends))
        first = next((backend.name for backend in request.backends if backend.name in small), None)
        if first is None:
            request.log.extend(log)
            return claimed
        released_ops.update(((first, key), rejection) for key, rejection in small[first].items())


def _small_regions(
    module: IRModule, claimed: IRModule, constraints: Constraints, min_flops: Mapping[str, int]
) -> dict[str, dict[OpKey, Rejection]]:
    """Return, by backend, the ops of its too small regions, each with the rejection."""
    protected_ops = {op_key(claim.source, op) for claim in claims_of(module) for op in claim.ops}.union(
        constraints.forced
    )
    regions: dict[str, list[Claim]] = {}
    small: dict[str, dict[OpKey, Rejection]] = {}
    merged = merge_claims(CaptureSizes()(claimed), constraints.options.sideways, devices=constraints.devices)
    for claim in claims_of(merged):
        regions.setdefault(claim.region, []).append(claim)
    for claims in regions.values():
        ops = {op_key(claim.source, op): op for claim in claims for op in claim.ops}
        backend = claims[0].backend
        shortfall = _shortfall(list(ops.values()), constraints.options)
        text = f"the region is below the user's limits: {shortfall}" if shortfall else ""
        if not text:
            text = _too_few_flops(list(ops.values()), min_flops.get(backend, 0))
        if text and protected_ops.isdisjoint(ops):
            rejection = Rejection("too-small", text)
            small.setdefault(backend, {}).update(dict.fromkeys(ops, rejection))
    return small


def _shortfall(ops: Sequence[Binding], options: PartitionOptions) -> str:
    """Return the figures of a region below the limits, as text; empty if there are none."""
    counts_sizes = (options.min_flops or options.min_bytes) and cited_symbols(ops)
    figures = (
        (options.min_ops, "ops", lambda _: 1),
        (options.min_flops, "FLOPs", lambda op: evaluate_at_one(op.op.flops(op.context()))),
        (options.min_bytes, "bytes", lambda op: evaluate_at_one(op.op.nbytes(op.context()))),
    )
    totals = ((sum(map(count, ops)), limit, unit) for limit, unit, count in figures if limit)
    lacking = ", ".join(f"{total:,} of {limit:,} {unit}" for total, limit, unit in totals if total < limit)
    return f"{lacking}, symbolic sizes counted as 1" if lacking and counts_sizes else lacking


def _too_few_flops(ops: Sequence[Binding], minimum: int) -> str:
    """Return why a region is not worth a call of the backend; empty if the call may be worthwhile."""
    if not minimum or cited_symbols(ops) or not all(op.op.states_flops for op in ops):
        return ""
    total = sum(evaluate_at_one(op.op.flops(op.context())) for op in ops)
    if total >= minimum:
        return ""
    return f"the region is below the backend's minimum: {total:,} of {minimum:,} FLOPs"
