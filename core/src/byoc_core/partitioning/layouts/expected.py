"""The orders of values before any op has a place: for the costs of borders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from byoc_core.backend import BackendHandle
from byoc_core.ir import Binding, IRModule, Value, Var
from byoc_core.partitioning.layouts.find_orders import find_orders, is_same_memory
from byoc_core.partitioning.layouts.orders import Order
from byoc_core.partitioning.layouts.statements import StatedOrders
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of
from byoc_core.partitioning.op_structure import OpNumbers

__all__ = ["ExpectedOrder", "expect_orders"]


class ExpectedOrder(NamedTuple):
    """The orders of a value on a backend: as written by the maker there, and as read by a reader there."""

    written: Order = None
    read: Order = None


def expect_orders(
    module: IRModule,
    trials: Sequence[IRModule],
    backends: Sequence[BackendHandle],
    options: Mapping[str, Mapping[str, object]],
    numbers: OpNumbers,
) -> dict[str, dict[OpKey, ExpectedOrder]]:
    """Return the permuted values expected on each backend with statements, by function and name, with their orders.

    A backend is asked about all ops it is able to take; other ops are those of the first other backend able to take
    them. Values in row-major order are left out, but for ops without use for row-major order: behind a border the
    backend changes the order, but alone it may see through the ops between, as through the reshapes of a channel
    shuffle.

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
    results = {
        (source, result.name)
        for source, body in bodies_of(module)
        for binding in body.bindings
        for op in members_of(binding)
        for result in op.results
    }
    found: dict[str, dict[OpKey, ExpectedOrder]] = {}
    for name, ops in claims.items():
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
                        found[name][source, result.name] = ExpectedOrder(order, order)
        for (source, _), binding in ops.items():
            alternatives = stated_orders.orders(name, binding) or ()
            for result, order in _required_orders(binding.results, [orders.results for orders in alternatives]):
                found[name].setdefault((source, result.name), ExpectedOrder(written=order))
            for operand, order in _required_orders(binding.operands, [orders.operands for orders in alternatives]):
                key = (source, operand.name)
                expected = found[name].get(key, ExpectedOrder())
                if key in results and expected.read is None:
                    found[name][key] = expected._replace(read=order)
    return found


def _required_orders(values: Sequence[Value], alternatives: Sequence[Sequence[Order]]) -> Iterator[tuple[Var, Order]]:
    """Yield the values not usable in row-major order by an op, with the best of the stated orders."""
    for value, *orders in zip(values, *alternatives, strict=True):
        if isinstance(value, Var) and orders and None not in orders and not is_same_memory(value, orders[0]):
            yield value, orders[0]


def _claims(trial: IRModule, backend: str) -> dict[OpKey, Binding]:
    """Return the ops claimed by a backend."""
    return {
        (source, op.results[0].name): op
        for source, body in bodies_of(trial)
        for binding in body.bindings
        if binding.codegen == backend
        for op in members_of(binding)
    }
