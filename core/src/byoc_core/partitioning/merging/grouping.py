"""Groups of claims: the choice of bindings for a common region.

Bindings are taken in order, each with the groups of the operands. Every group has a *stage*, a topological numbering:
an edge between two groups leads to a higher stage. A binding joins the group of an operand if both are claimed by the
same backend and no other path leads from that group to the binding; with another path the region would depend on
itself. The group of the highest stage is asked first. A refusal then holds for good, because the other path passes
through a binding of another claim, and the resulting groups are maximal.

Paths are searched from both ends at once, between the stages of the two groups only. Visits of long searches beyond a
fixed length are drawn from a common budget of the function. A search meeting a bound leaves the groups apart, which is
always legal.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

from byoc_core.ir import Binding
from byoc_core.ir.sizes import dependencies, is_data_dependent

__all__ = ["group_claims", "may_share"]

_FREE_VISITS = 4096
"""The number of edges open to any search from either end."""
_SEARCH_BUDGET = 1_000_000
"""The number of further edges open to all searches of a function together, ..."""
_SEARCH_BUDGET_PER_BINDING = 64
"""... and further edges for each binding of the function."""


def may_share(binding: Binding) -> bool:
    """Return whether a binding may share a region with others.

    A data-dependent binding may not: the sizes would be unknown to the others.
    """
    return binding.codegen is not None and not is_data_dependent(binding)


def group_claims(bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
    """Return the group of each binding, named by the position of the first member.

    Args:
        bindings: in SSA order; bindings refused by :func:`may_share` are separate groups.
        epochs: from :func:`byoc_core.partitioning.merging.ordering.barrier_epochs`; groups stay within an epoch.

    Cost: ``O(n log n)`` in bindings and operands, plus a bounded search per edge between groups of the same claim. Long
    searches are rare. These occur where long independent branches are read together, and around hubs (values read by a
    good part of the function). At hubs the searches grow with the number of readers, until the budget is spent (a
    thousand hubs in 100,000 bindings take about forty times as long as a hundred in 10,000).
    """
    groups = _Groups(len(bindings))
    is_shared = [may_share(binding) for binding in bindings]
    needed = dependencies(bindings)
    for position, binding in enumerate(bindings):
        sources = needed[position]
        groups.add(position, sources)
        candidates = {
            groups.find(source): None
            for source in sources
            if is_shared[position]
            and is_shared[source]
            and bindings[source].codegen == binding.codegen
            and epochs[source] == epochs[position]
        }
        for candidate in sorted(candidates, key=lambda group: (-groups.stage[group], group)):
            # After a first merge, the binding's group may absorb further candidates too.
            groups.try_merge(candidate, position)
    return [groups.find(position) for position in range(len(bindings))]


class _Groups:
    """Disjoint groups of positions, each named by the first member, with the edges between groups and their stages."""

    def __init__(self, count: int) -> None:
        self.stage = [0] * count
        self._parent = list(range(count))
        self._successors: list[dict[int, None]] = [{} for _ in range(count)]
        self._predecessors: list[dict[int, None]] = [{} for _ in range(count)]
        self._nearest = [count * count] * count  # no successor has a lower stage
        self._slack = [0] * count
        self._budget = _SEARCH_BUDGET + _SEARCH_BUDGET_PER_BINDING * count
        self._reached: dict[int, set[int]] = {}  # groups known to depend on a group

    def find(self, position: int) -> int:
        """Return the group of a position."""
        root = position
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[position] != root:
            self._parent[position], position = root, self._parent[position]
        return root

    def add(self, position: int, sources: Sequence[int]) -> None:
        """Make a group of one binding, after all others."""
        before = dict.fromkeys(map(self.find, sources))
        stage = max((self.stage[group] + 1 for group in before), default=0)
        self._predecessors[position] = before
        self.stage[position] = stage
        for group in before:
            self._successors[group][position] = None
            self._nearest[group] = min(self._nearest[group], stage)

    def try_merge(self, before: int, position: int) -> None:
        """Merge a group with the group of a reading binding, unless another path leads from the first to the second."""
        before, after = self.find(before), self.find(position)
        if before == after or self._is_indirect(before, after):
            return
        stage = self.stage[after]
        if after == position:
            # A lone binding has no successors yet: its stage may still become lower.
            other_sources = [group for group in self._predecessors[after] if group != before]
            stage = max((self.stage[before], *(self.stage[group] + 1 for group in other_sources)))
            for group in other_sources:  # the binding's stage may become lower than the recorded stage
                self._nearest[group] = min(self._nearest[group], stage)
        # The successors of `before` become successors of the merged group and must lie above its stage.
        self._raise_successors(before, after, stage)
        group, other = sorted((before, after))
        self._parent[other] = group
        self.stage[group] = stage
        self._nearest[group] = min(self._nearest[group], self._nearest[other])
        self._slack[group] = max(self._slack[group], self._slack[other])
        for edges in (self._successors, self._predecessors):
            edges[group] = _union(edges[group], edges[other])
            edges[group].pop(group, None)
            edges[group].pop(other, None)
            edges[other] = {}
        # A group depending on either half depends on the merged group.
        if before in self._reached or after in self._reached:
            self._reached[group] = self._reached.pop(before, set()) | self._reached.pop(after, set())

    def _is_indirect(self, before: int, after: int) -> bool:
        """Return whether a path other than the direct edge may lead from one group to another."""
        low, high = self.stage[before], self.stage[after]
        known_dependents = self._reached.setdefault(before, set())
        visited: set[int] = set()
        origins: dict[int, int] = {}
        forward = self._walk(self._successors, before, after, low, high)
        backward = self._walk(self._predecessors, after, before, low, high)
        # The searches advance in turn: the search that ends first bounds the cost of both.
        for visits in range(_FREE_VISITS + self._budget):
            self._budget -= visits >= _FREE_VISITS
            # An exhausted search proves that no other path exists.
            step = next(backward, None)
            if step is None:
                return False
            current, group = step
            if group >= 0:
                # The last group before `after` on this path: remembered below if the path leads from `before`.
                origins[group] = origins.get(current, group)
                if group == before or group in visited or group in known_dependents:
                    known_dependents.add(origins[group])
                    return True
            step = next(forward, None)
            if step is None:
                return False
            current, group = step
            if group >= 0:
                if group == after or group in origins:
                    known_dependents.add(current if group == after else origins[group])
                    return True
                visited.add(group)
        return True

    def _walk(
        self, edges: list[dict[int, None]], start: int, end: int, low: int, high: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the edges of a breadth-first search as pairs; the second is -1 if the edge leads to no new group.

        The direct edge from ``start`` to ``end`` does not count.
        """
        visited = {start}
        pending = deque((start,))
        while pending:
            current = pending.popleft()
            neighbours: dict[int, None] = {}
            for neighbour in edges[current]:
                group = self.find(neighbour)
                neighbours[group] = None
                if group in visited or (group == end and current == start):
                    yield current, -1
                # Stages rise along every edge: all groups of a path lie between the stages of its ends.
                elif group == end or low < self.stage[group] < high:
                    visited.add(group)
                    pending.append(group)
                    yield current, group
                else:
                    yield current, -1
            neighbours.pop(current, None)
            # Later searches find the merged edges, without duplicates and without edges inside the group.
            edges[current] = neighbours

    def _raise_successors(self, before: int, after: int, stage: int) -> None:
        """Renumber the successors of ``before`` to make room for a higher stage.

        The old stages are a topological numbering: each group is renumbered once, after all its predecessors. Some room
        is left, more each time, to make renumbering rare for a group growing binding by binding.
        """
        if stage < self._nearest[before]:
            return
        pending: list[tuple[int, int]] = []
        self._raise(before, after, stage, self._slack[before], pending)
        if pending:
            self._slack[before] = min(2 * self._slack[before] + 1, len(self.stage))
        while pending:
            _, current = heapq.heappop(pending)
            # `_nearest` is a lower bound of the successors' stages: below this bound, no successor has to move.
            if self.stage[current] >= self._nearest[current]:
                self._raise(current, after, self.stage[current], 0, pending)

    def _raise(self, group: int, after: int, stage: int, slack: int, pending: list[tuple[int, int]]) -> None:
        """Raise the successors of a group above a stage, and queue the successors raised for the first time."""
        nearest = len(self.stage) ** 2
        successors = dict.fromkeys(map(self.find, self._successors[group]))
        successors.pop(group, None)
        self._successors[group] = successors
        for following in successors:
            # Part of the same group after the merge.
            if following == after:
                continue
            old = self.stage[following]
            if old <= stage:
                self.stage[following] = stage + 1 + slack
                heapq.heappush(pending, (old, following))
            nearest = min(nearest, self.stage[following])
        self._nearest[group] = nearest


def _union(left: dict[int, None], right: dict[int, None]) -> dict[int, None]:
    """Return one of two sets with the other's members, in time proportional to the smaller."""
    larger, smaller = (left, right) if len(left) >= len(right) else (right, left)
    larger.update(smaller)
    return larger
