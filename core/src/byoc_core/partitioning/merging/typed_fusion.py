"""Groups of claims sideways: claims of one backend go into one region whether or not an edge joins them.

Typed fusion: Kennedy and McKinley, "Typed Fusion with Applications to Parallel and Sequential Code Generation", Rice
University, 1994. One backend after the other is fused, on the graph as the backends before it left it. The *level* of
a claim is the most often that a way to it leaves the backend's claims and comes back; claims of one level become one
group. A way that leaves a group leads to higher levels only, so groups are convex and acyclic together. Every level is
reached from the one below by such a way, so no two groups of one backend could be merged, and for one backend alone
their number is the least there is. For several together the least number is NP-hard to find (the same paper); the
backend with the most claims chooses first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from byoc_core.ir import Binding
from byoc_core.ir.sizes import dependencies
from byoc_core.partitioning.merging.grouping import may_share
from byoc_core.partitioning.merging.ordering import sort_groups

__all__ = ["fuse_claims"]


def fuse_claims(bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
    """Gives the group of each binding, named by its first member's position.

    Takes the arguments of :func:`byoc_core.partitioning.merging.grouping.group_claims`, and keeps the same bindings
    apart.

    Cost: ``O(n log n)`` in bindings and operands, for each backend that claims some.
    """
    needed = dependencies(bindings)
    group_of = list(range(len(bindings)))
    claims = Counter(binding.codegen for binding in bindings if may_share(binding))
    for backend, _ in claims.most_common():
        group_of = _fuse(bindings, epochs, needed, group_of, backend)
    return group_of


def _fuse(
    bindings: Sequence[Binding],
    epochs: Sequence[int],
    needed: Sequence[Sequence[int]],
    group_of: Sequence[int],
    backend: str | None,
) -> list[int]:
    """Gives the groups after those of one backend are fused, level by level within each epoch."""
    is_own = [may_share(binding) and binding.codegen == backend for binding in bindings]
    levels: dict[int, int] = {}
    fused = list(group_of)
    first_of: dict[tuple[int, int], int] = {}
    for members in sort_groups(bindings, group_of, epochs) or ():
        first = members[0]
        level = 0
        for source in {group_of[source] for member in members for source in needed[member]}:
            if source != first and epochs[source] == epochs[first]:
                level = max(level, levels[source] + (is_own[source] and not is_own[first]))
        levels[first] = level
        if is_own[first]:
            fused[first] = first_of.setdefault((epochs[first], level), first)
    names: dict[int, int] = {}
    return [names.setdefault(group, position) for position, group in enumerate(fused)]
