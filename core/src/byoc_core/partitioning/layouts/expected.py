"""The values with permuted axes before any op has a place: for the costs of borders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.backend import BackendHandle
from byoc_core.ir import IRModule
from byoc_core.partitioning.layouts.find_orders import find_orders, is_same_memory
from byoc_core.partitioning.layouts.statements import Speakers
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of

__all__ = ["expect_orders"]


def expect_orders(
    module: IRModule,
    trials: Sequence[IRModule],
    backends: Sequence[BackendHandle],
    options: Mapping[str, Mapping[str, object]],
) -> tuple[frozenset[OpKey], frozenset[str]]:
    """Return the values likely to cross borders with permuted axes, by function and name; and the backends doing so.

    Each op is asked of the first backend stating orders and able to take the op: backends sharing values must agree.

    Args:
        module: the module before the claims.
        trials: the module with all claims of each backend.
        backends: in the order of ``trials``.
        options: of the backends, by name.

    Raises:
        HookError: a backend's hook failed, and failures of the backend are not contained.

    Cost: linear in ops and operands.
    """
    handles = {handle.name: handle for handle in backends}
    speakers = Speakers(module, handles.__getitem__, options)
    names = frozenset(name for name in handles if speakers.speaks(name))
    if len(names) < 2:
        return frozenset(), names
    owners: dict[str, dict[str, str]] = {}
    for trial, handle in zip(trials, backends, strict=True):
        for source, body in bodies_of(trial) if handle.name in names else ():
            found = owners.setdefault(source, {})
            for binding in body.bindings:
                if binding.codegen == handle.name:
                    for op in members_of(binding):
                        found.setdefault(op.results[0].name, handle.name)
    permuted: set[OpKey] = set()
    for source, body in bodies_of(module):
        orders = find_orders(body, {}, speakers, owners.get(source, {}))
        for binding in body.bindings:
            for result in binding.results:
                order = orders.get(id(result))
                if order is not None and not is_same_memory(result, order):
                    permuted.add((source, result.name))
    return frozenset(permuted), names
