"""Sideways groups of claims: claims of one backend share a region with or without an edge between the claims.

Typed fusion: Kennedy and McKinley, "Typed Fusion with Applications to Parallel and Sequential Code Generation", Rice
University, 1994. Backends are fused one after the other, each on the graph left by the backends before. The *level* of
a claim is the maximum number of times a path to the claim leaves the backend's claims and comes back. Claims of the
same level become a group. A path leaving a group leads to higher levels only, making the groups convex and acyclic
together. Every level is reached from the level below by such a path; hence no two groups of the same backend could be
merged, and for a single backend the number of groups is minimal. For several backends together the minimum is NP-hard
to find (the same paper); the backend with the most claims chooses first.
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
    """Return the group of each binding, named by the position of the first member.

    Takes the arguments of :func:`byoc_core.partitioning.merging.grouping.group_claims`, and keeps the same bindings
    apart.

    Cost: ``O(n log n)`` in bindings and operands, for each backend with claims.
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
    """Return the groups after fusing the groups of one backend, level by level within each epoch."""
    is_own = [may_share(binding) and binding.codegen == backend for binding in bindings]
    levels: dict[int, int] = {}
    fused = list(group_of)
    first_of: dict[tuple[int, int], int] = {}
    for members in sort_groups(bindings, group_of, epochs) or ():
        first = members[0]
        level = 0
        for source in {group_of[source] for member in members for source in needed[member]}:
            # Earlier epochs come first in any order of the groups, and groups stay within an epoch: no cycle can arise.
            if source != first and epochs[source] == epochs[first]:
                # Only an edge leaving the backend's claims raises the level; the edge back does not.
                level = max(level, levels[source] + (is_own[source] and not is_own[first]))
        levels[first] = level
        if is_own[first]:
            fused[first] = first_of.setdefault((epochs[first], level), first)
    # The first member in topological order need not be the first position: name the groups anew.
    names: dict[int, int] = {}
    return [names.setdefault(group, position) for position, group in enumerate(fused)]
