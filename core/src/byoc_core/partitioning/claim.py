"""The claims of a partition: a policy's, within the user's constraints, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from byoc_core.errors import InternalError, PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning.admission import new_admission
from byoc_core.partitioning.constraints import Constraints
from byoc_core.partitioning.near_misses import log_near_misses
from byoc_core.partitioning.policies import Policy
from byoc_core.partitioning.pruning import claim_within_limits
from byoc_core.partitioning.request import PartitionRequest
from byoc_core.partitioning.verification import find_fault
from byoc_core.transform.pass_ import Pass

__all__ = ["ClaimByPolicy"]


@dataclass(frozen=True)
class ClaimByPolicy(Pass):
    """Lets a policy claim ops, and checks that it did nothing else and kept to the constraints.

    Attributes:
        policy: who takes what.
        request: what it is asked; the constraints are added.
        constraints: on the module.
        tells_near_misses: whether to log patterns that nearly fit ops which nobody took.
    """

    verifies_result: ClassVar[bool] = True

    policy: Policy
    request: PartitionRequest
    constraints: Constraints
    tells_near_misses: bool = False

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module with claims.

        Raises:
            PartitionError: the policy did anything but claim, or claimed what it must not; or an op is not taken by
                the backend that it is forced to.
            InternalError: the same of a policy of the core.
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.

        Cost: the policy's, and a check linear in the ops; with limits on regions, :func:`claim_within_limits`.
        """
        constraints = self.constraints
        request = replace(self.request, admissions=constraints.admission)
        if constraints.options.has_limits:
            claimed = claim_within_limits(module, self._claim, request, constraints)
        else:
            claimed = self._claim(module, request)
        constraints.check_forced(claimed, request.log)
        if self.tells_near_misses:
            with_patterns = [backend for backend in request.backends if not backend.claims_by_itself]
            log_near_misses(module, claimed, with_patterns, request.log)
        return claimed

    def _claim(self, module: IRModule, request: PartitionRequest) -> IRModule:
        claimed: object = self.policy(module, request)
        name = f"policy `{getattr(self.policy, '__name__', None) or type(self.policy).__name__}`"
        if not isinstance(claimed, IRModule):
            raise PartitionError(name, "gave no module", got=type(claimed).__name__)
        if claimed is module:
            return module
        admissions = {b.name: new_admission(b, self.constraints.admission(b.name)) for b in request.backends}
        fault = find_fault(module, claimed, admissions)
        if fault is not None:
            is_own = type(self.policy).__module__.partition(".")[0] == __name__.partition(".")[0]
            raise (InternalError if is_own else PartitionError)(name, fault.problem, detail=fault.detail)
        return claimed
