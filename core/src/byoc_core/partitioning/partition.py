"""One call for users: claims by a policy, then regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from byoc_core.backend.own_ops import with_own_ops
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule
from byoc_core.partitioning.claim_by_policy import ClaimByPolicy
from byoc_core.partitioning.claiming.claim_faults import is_legal_partition
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.constraints.options import PartitionOptions
from byoc_core.partitioning.constraints.region_limits import has_limits
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.merging.merge import MergeCompositeFunctions, merge_claims
from byoc_core.partitioning.policies import GreedyByOrder, Policy
from byoc_core.partitioning.reporting.near_misses import log_near_misses
from byoc_core.transform import Sequential, UniqueNames
from byoc_core.transform.capture_sizes import CaptureSizes
from byoc_core.transform.pass_ import Pass

__all__ = [
    "check_backends",
    "check_module",
    "check_option_owners",
    "check_policy",
    "partition",
    "partition_pipeline",
]


def partition(
    module: IRModule,
    backends: Sequence[str | object],
    *,
    policy: Policy | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    log: PartitionLog | None = None,
    partition_options: PartitionOptions | None = None,
    registry: Backends | None = None,
) -> IRModule:
    """Carve out the regions claimed by backends.

    Args:
        module: the module to partition; functions annotated already stay unchanged.
        backends: names, plugin objects or handles, from the first to be asked to the last.
        policy: the policy for claims; greedy by order by default.
        options: each backend's options, by backend name.
        log: receives the refusals.
        partition_options: the user's constraints.
        registry: the backends available by name; by default the backends installed for this process.

    Returns:
        The module with a function for every region, annotated with ``Codegen`` and ``global_symbol``. Unclaimed ops
        stay in place.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: ``module`` is no module; options for a backend not listed, or options unknown to a backend;
            constraints with unknown names or contradictions; ``policy`` is not a policy.
        PartitionError: an op is not taken by the backend forced on the op; or a policy did anything but claim.
        HookError: a backend's hook failed.
        InternalError: the result is not the same program.
    """
    check_module(module)
    check_backends(backends)
    available = find_registry(registry)
    handles = [available.get(backend) for backend in backends]
    user_options = partition_options or PartitionOptions()
    names = [handle.name for handle in handles]
    request = PartitionRequest(handles, options or {}, log if log is not None else PartitionLog(), registry=available)
    return partition_pipeline(
        request,
        lambda unique: Constraints.resolve(user_options, unique, names),
        policy,
        logs_near_misses=log is not None,
    )(module)


def partition_pipeline(
    request: PartitionRequest,
    constrain: Callable[[IRModule], Constraints],
    policy: Policy | None = None,
    *,
    verify_input: bool = True,
    logs_near_misses: bool = True,
) -> Pass:
    """Return the pass of :func:`partition`.

    Args:
        request: the backends, their options, and the log for the refusals.
        constrain: returns the constraints on a module with unique names.
        policy: the policy for claims; greedy by order by default.
        verify_input: ``False`` for a module verified already.
        logs_near_misses: whether the log receives near misses of patterns too.

    Raises:
        OptionsError: options for a backend not listed; ``policy`` is not a policy.
    """
    check_option_owners(request.options, [handle.name for handle in request.backends])
    effective_policy: Policy = policy if policy is not None else GreedyByOrder()
    check_policy(effective_policy)
    return _Partition(effective_policy, request, constrain, verify_input, logs_near_misses)


@dataclass(frozen=True)
class _Partition(Pass):
    """Claims, then regions; see :func:`partition_pipeline`."""

    verifies_result: ClassVar[bool] = True

    policy: Policy
    request: PartitionRequest
    constrain: Callable[[IRModule], Constraints]
    verify_input: bool
    logs_near_misses: bool

    def __call__(self, module: IRModule) -> IRModule:
        """Return the partitioned module.

        With limits on regions the pass runs until no new region is found. Each run asks all backends anew: ops given
        back by different regions of the run before may together suffice for a region.
        """
        with_ops = with_own_ops(module, self.request.backends)
        unique = Sequential([UniqueNames()], verify_input=self.verify_input)(with_ops)
        constraints = self.constrain(unique)
        before, after = unique, self._partition_once(unique, constraints, self.request.log)
        may_give_back = has_limits(constraints.options, self.request.backends)
        while may_give_back and len(after.functions) > len(before.functions):
            log = PartitionLog()
            before, after = after, self._partition_once(after, constraints, log)
            if len(after.functions) == len(before.functions):
                return before
            self.request.log.extend(log)
        return after

    def _partition_once(self, module: IRModule, constraints: Constraints, log: PartitionLog) -> IRModule:
        claim = ClaimByPolicy(self.policy, replace(self.request, log=log), constraints)
        claimed = claim(module)
        partitioned = self._merge(module, claimed, claim)
        constraints.check_forced(partitioned, log)
        if self.logs_near_misses:
            with_patterns = [backend for backend in self.request.backends if not backend.claims_by_itself]
            log_near_misses(module, claimed, with_patterns, log)
        return partitioned

    def _merge(self, module: IRModule, claimed: IRModule, claim: ClaimByPolicy) -> IRModule:
        """Return the module with regions. One check covers both steps; only after a failure is each step checked."""
        sideways = claim.constraints.options.sideways
        separated = frozenset(backend.name for backend in self.request.backends if backend.separates_sizes)
        try:
            closed = CaptureSizes()(claimed)
            merged = merge_claims(closed, sideways, separated, claim.constraints.devices)
            partitioned = claimed if merged is closed else merged
            is_legal = partitioned is module or is_legal_partition(module, claimed, partitioned)
        except Exception:
            claim.check_program(module, claimed)  # merging may have failed on an invalid module
            raise
        if is_legal:
            return partitioned
        claim.check_program(module, claimed)
        return MergeCompositeFunctions(sideways, separated, claim.constraints.devices)(claimed)


def check_policy(policy: object) -> None:
    """Check that a user gave a policy.

    Raises:
        OptionsError: the argument is something else.
    """
    if isinstance(policy, type):
        raise OptionsError("policy", "is a class", got=policy.__name__, expected=f"an instance: {policy.__name__}()")
    if not callable(policy):
        expected = "a callable, such as ByCost()"
        raise OptionsError("policy", "is not a policy", got=repr(policy), expected=expected)


def check_module(module: object) -> None:
    """Check that a user gave a module.

    Raises:
        OptionsError: the argument is something else.
    """
    if not isinstance(module, IRModule):
        hint = "Import a model with `byoc_core.from_onnx`, or parse script with `byoc_core.parse`."
        raise OptionsError("module", "is not an IRModule", got=type(module).__name__, hint=hint)


def check_backends(backends: object) -> None:
    """Check that a user gave a list of backends.

    Raises:
        OptionsError: the argument is a single name.
    """
    if isinstance(backends, str):
        raise OptionsError("backends", "is a single string", got=repr(backends), expected=f"[{backends!r}]")


def check_option_owners(options: Mapping[str, object], names: Sequence[str]) -> None:
    """Check that options are given for backends taking part.

    Raises:
        OptionsError: a name is not among the backends.
    """
    for name in options:
        if name not in names:
            raise OptionsError(
                f"options.{name}",
                "no backend of this name takes part",
                expected=", ".join(names) or "none",
                hint=near_names(name, names) or None,
            )
