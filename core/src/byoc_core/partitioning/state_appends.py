"""Ops appending rows to a state: claimed by no backend, so that the machine appends in the buffer of the state.

Inside a region, the function of the region would read the old rows and write old and new rows: a copy of the state. In
the caller, the old rows stay in place, and the producer of the new rows writes behind the old rows.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.ir import Binding, IRModule, state_values, states_of
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, join_filters
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection

__all__ = ["find_state_appends", "without_state_appends"]

_REFUSAL = Rejection("view", "the machine appends the rows of a state in place")


def find_state_appends(module: IRModule) -> frozenset[OpKey]:
    """Return the joints of the old value of a state and new rows, if the joint is the new value of the state.

    Cost: linear in the bindings of functions with states of moving lengths.
    """
    found = set()
    for function in module.functions.values():
        pairs = [state_values(function, state) for state in states_of(function) if state.axis is not None]
        olds = {id(result): param for param, result in pairs}
        for binding in function.bindings if olds else ():
            rule = binding.op.view
            if rule is not None and rule.joins and olds.get(id(binding.result)) is binding.operands[0]:
                found.add(op_key(function.name, binding))
    return frozenset(found)


def without_state_appends(
    module: IRModule, claim_filters: Callable[[str], ClaimFilter]
) -> Callable[[str], ClaimFilter]:
    """Return the claim filters by backend, with refusals of ops appending rows to a state.

    Args:
        module: the module to partition, with unique names.
        claim_filters: the original claim filters, asked first.
    """
    appends = find_state_appends(module)
    if not appends:
        return claim_filters

    def refusal(source: str, binding: Binding) -> Rejection | None:
        return _REFUSAL if op_key(source, binding) in appends else None

    return lambda backend: join_filters(claim_filters(backend), refusal)
