"""The claims of a partition: a policy's claims, within the user's constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from byoc_core.errors import InternalError, PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning.claiming.claim_faults import ClaimFault, find_claim_fault, find_program_change
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, backend_filter
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.constraints.region_limits import claim_within_limits, has_limits
from byoc_core.partitioning.policies import Policy
from byoc_core.partitioning.state_appends import without_state_appends
from byoc_core.transform.pass_ import Pass

__all__ = ["ClaimByPolicy"]


@dataclass(frozen=True)
class ClaimByPolicy(Pass):
    """A pass claiming ops by a policy, within the user's constraints.

    Names and claims are checked. :meth:`check_program` checks whether the module is otherwise the same program, at a
    higher cost. This check is unnecessary if a comparison of the final result with the policy's input shows the same.

    Attributes:
        policy: the policy to be used.
        request: the request to the policy; the constraints are added.
        constraints: the constraints on the module.
    """

    policy: Policy
    request: PartitionRequest
    constraints: Constraints

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with claims.

        Raises:
            PartitionError: the policy added or lost an op, or made a forbidden claim.
            InternalError: the same for a policy of the core.
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.

        Cost: the policy's, and a check linear in the ops; with limits on regions, :func:`claim_within_limits`.
        """
        request = replace(self.request, claim_filters=self._claim_filters(module), devices=self.constraints.devices)
        if has_limits(self.constraints.options, self.request.backends):
            return claim_within_limits(module, self._claim_checked, request, self.constraints)
        return self._claim(module, request)

    def check_program(self, before: IRModule, claimed: IRModule) -> None:
        """Check that the policy changed nothing but claims.

        Raises:
            PartitionError: the policy changed something else.
            InternalError: the same for a policy of the core.
        """
        if claimed is not before:
            self._blame(find_program_change(before, claimed))

    def _claim_filters(self, module: IRModule) -> Callable[[str], ClaimFilter]:
        return without_state_appends(module, self.constraints.claim_filter)

    def _claim_checked(self, module: IRModule, request: PartitionRequest) -> IRModule:
        claimed = self._claim(module, request)
        self.check_program(module, claimed)
        return claimed

    def _claim(self, module: IRModule, request: PartitionRequest) -> IRModule:
        claimed: object = self.policy(module, request)
        if not isinstance(claimed, IRModule):
            raise PartitionError(self._name, "returned no module", got=type(claimed).__name__)
        if claimed is not module:
            filters = self._claim_filters(module)  # without limits on regions, which a policy need not ask for
            claim_filters = {b.name: backend_filter(b, filters(b.name)) for b in request.backends}
            self._blame(find_claim_fault(module, claimed, claim_filters))
        return claimed

    def _blame(self, fault: ClaimFault | None) -> None:
        if fault is not None:
            is_own = type(self.policy).__module__.partition(".")[0] == __name__.partition(".")[0]
            raise (InternalError if is_own else PartitionError)(self._name, fault.problem, detail=fault.detail)

    @property
    def _name(self) -> str:
        return f"policy `{getattr(self.policy, '__name__', None) or type(self.policy).__name__}`"
