"""The orders of values before any op has a place: for the costs of borders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.backend import BackendHandle
from byoc_core.ir import Binding, IRModule
from byoc_core.partitioning.layouts.find_orders import find_orders, is_same_memory
from byoc_core.partitioning.layouts.orders import Order
from byoc_core.partitioning.layouts.statements import StatedOrders
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of
from byoc_core.partitioning.op_structure import OpNumbers

__all__ = ["expect_orders"]


def expect_orders(
    module: IRModule,
    trials: Sequence[IRModule],
    backends: Sequence[BackendHandle],
    options: Mapping[str, Mapping[str, object]],
    numbers: OpNumbers,
) -> dict[str, dict[OpKey, Order]]:
    """Return the permuted values expected on each backend with statements, by function and name, with their orders.

    A backend is asked about all ops it is able to take; other ops are those of the first other backend able to take
    them. Values in row-major order are left out.

    Args:
        module: the module before the claims.
        trials: the module with all claims of each backend.
        backends: in the order of ``trials``.
        options: of the backends, by name.
        numbers: the distinct ops of the module.

    Raises:
        HookError: a backend's hook failed, and failures of the backend are not contained.

    Cost: linear in ops and operands, for each backend.
    """
    handles = {handle.name: handle for handle in backends}
    stated_orders = StatedOrders(module, handles.__getitem__, options, numbers)
    claims = {
        handle.name: _claims(trial, handle.name)
        for trial, handle in zip(trials, backends, strict=True)
        if stated_orders.has_statements(handle.name)
    }
    if len(claims) < 2 or not any(
        stated_orders.prefers(name, op) for name, ops in claims.items() for op in ops.values()
    ):
        return {}
    found: dict[str, dict[OpKey, Order]] = {}
    for name in claims:
        owners: dict[str, dict[str, str]] = {}
        for other in (*(other for other in reversed(claims) if other != name), name):
            for source, op in claims[other]:
                owners.setdefault(source, {})[op] = other
        found[name] = {}
        for source, body in bodies_of(module):
            orders = find_orders(body, {}, stated_orders, owners.get(source, {}))
            for binding in body.bindings:
                for result in binding.results:
                    order = orders.get(id(result))
                    if order is not None and not is_same_memory(result, order):
                        found[name][source, result.name] = order
    return found


def _claims(trial: IRModule, backend: str) -> dict[OpKey, Binding]:
    """Return the ops claimed by a backend."""
    return {
        (source, op.results[0].name): op
        for source, body in bodies_of(trial)
        for binding in body.bindings
        if binding.codegen == backend
        for op in members_of(binding)
    }
