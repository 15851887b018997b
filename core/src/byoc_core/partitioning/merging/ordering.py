"""The order of grouped bindings: stable topological sorting, with impure calls as barriers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from byoc_core.ir import Binding, Function, is_pure
from byoc_core.ir.sizes import dependencies

__all__ = ["barrier_epochs", "sort_groups"]


def barrier_epochs(function: Function, functions: Mapping[str, Function]) -> list[int]:
    """Return the epoch of each binding: twice the number of preceding impure bindings, plus 1 if itself impure.

    Odd epochs are single impure bindings. Bindings of different epochs never go into the same group.
    """
    epochs, epoch = [], 0
    for binding in function.bindings:
        if is_pure(binding, functions):
            epochs.append(epoch)
        else:
            epochs.append(epoch + 1)
            epoch += 2
    return epochs


def sort_groups(bindings: Sequence[Binding], group_of: Sequence[int], epochs: Sequence[int]) -> list[list[int]] | None:
    """Sort groups in topological order: each group comes after all groups with its operands or needed sizes.

    Args:
        bindings: in SSA order.
        group_of: the group of each binding, any integers.
        epochs: from :func:`barrier_epochs`; groups of a lower epoch come first.

    Returns:
        The positions of each group's bindings, ascending, groups in order (among ready groups, the group with the
        earliest first binding); ``None`` if the groups depend on one another in a cycle.

    Cost: ``O(n log n)`` in bindings and operands.
    """
    members: dict[int, list[int]] = {}
    for position, group in enumerate(group_of):
        members.setdefault(group, []).append(position)
    successors: dict[int, set[int]] = {group: set() for group in members}
    waiting = dict.fromkeys(members, 0)
    for position, sources in enumerate(dependencies(bindings)):
        for source in sources:
            before, after = group_of[source], group_of[position]
            # Several dependencies between two groups count once, because the edge is removed once.
            if before != after and after not in successors[before]:
                successors[before].add(after)
                waiting[after] += 1
    # No binding needs a binding of a higher epoch: while an epoch has groups left, the heap contains such a group.
    ready = [(epochs[members[g][0]], members[g][0], g) for g, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, _, group = heapq.heappop(ready)
        ordered.append(members[group])
        for after in successors[group]:
            waiting[after] -= 1
            if not waiting[after]:
                first = members[after][0]
                heapq.heappush(ready, (epochs[first], first, after))
    # The groups of a cycle wait for one another and never become ready.
    return ordered if len(ordered) == len(members) else None
