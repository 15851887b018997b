"""Limits on the size of regions: those below give their ops back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from byoc_core.dims import evaluate_at_one
from byoc_core.ir import Binding, IRModule
from byoc_core.ir.sizes import cited_symbols
from byoc_core.partitioning.claiming.admission import without_ops
from byoc_core.partitioning.claiming.claims import Claim, claims_of, drop_claims
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.constraints.options import PartitionOptions
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.merging.merge import merge_claims
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection
from byoc_core.transform.capture_sizes import CaptureSizes

__all__ = ["claim_within_limits"]


def claim_within_limits(
    module: IRModule,
    claim: Callable[[IRModule, PartitionRequest], IRModule],
    request: PartitionRequest,
    constraints: Constraints,
) -> IRModule:
    """Claims, and claims anew without the ops of regions that are too small for their backends, until none is.

    The first backend that has such regions gives their ops back; those after it may do better with them in the next
    round.

    Args:
        module: what to claim in.
        claim: a policy, perhaps with checks around it; what it gives is merged unchecked, for its sizes only.
        request: what to ask it.
        constraints: with the limits. A region with a forced op, or one that was claimed before, is never too small.

    Cost: the policy and the merging of regions, once more for each round in which a region was too small. It ends:
    each round takes one more op from one more backend.
    """
    given_back: dict[tuple[str, OpKey], Rejection] = {}
    while True:
        log = PartitionLog()
        admissions = without_ops(given_back, request.admissions)
        claimed = claim(module, replace(request, log=log, admissions=admissions))
        if given_back:  # a policy that claims by itself need not have asked
            claimed = drop_claims(
                claimed, lambda c: any((c.backend, op_key(c.source, op)) in given_back for op in c.ops)
            )
        small = _small_regions(module, claimed, constraints)
        first = next((backend.name for backend in request.backends if backend.name in small), None)
        if first is None:
            request.log.extend(log)
            return claimed
        given_back.update(((first, key), rejection) for key, rejection in small[first].items())


def _small_regions(module: IRModule, claimed: IRModule, constraints: Constraints) -> dict[str, dict[OpKey, Rejection]]:
    """Gives by backend the ops of its regions that are too small, and how small."""
    kept = {op_key(claim.source, op) for claim in claims_of(module) for op in claim.ops}.union(constraints.forced)
    regions: dict[str, list[Claim]] = {}
    small: dict[str, dict[OpKey, Rejection]] = {}
    for claim in claims_of(merge_claims(CaptureSizes()(claimed), constraints.options.sideways)):
        regions.setdefault(claim.region, []).append(claim)
    for claims in regions.values():
        ops = {op_key(claim.source, op): op for claim in claims for op in claim.ops}
        lacks = _shortfall(list(ops.values()), constraints.options)
        if lacks and kept.isdisjoint(ops):
            rejection = Rejection("too-small", f"its region is below the user's limits: {lacks}")
            small.setdefault(claims[0].backend, {}).update(dict.fromkeys(ops, rejection))
    return small


def _shortfall(ops: Sequence[Binding], options: PartitionOptions) -> str:
    """Gives the figures of a region that are below their limits, as text; empty where none is."""
    counts_sizes = (options.min_flops or options.min_bytes) and cited_symbols(ops)
    figures = (
        (options.min_ops, "ops", lambda _: 1),
        (options.min_flops, "FLOPs", lambda op: evaluate_at_one(op.op.flops(op.cost_context()))),
        (options.min_bytes, "bytes", lambda op: evaluate_at_one(op.op.nbytes(op.cost_context()))),
    )
    totals = ((sum(map(count, ops)), limit, unit) for limit, unit, count in figures if limit)
    lacking = ", ".join(f"{total:,} of {limit:,} {unit}" for total, limit, unit in totals if total < limit)
    return f"{lacking}, symbolic sizes counted as 1" if lacking and counts_sizes else lacking
