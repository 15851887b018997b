"""Groups of claims: which bindings go into one region together.

Bindings are taken in order, each with the groups that it reads from. Every group has a *stage*, a topological
numbering: an edge between two groups leads to a higher stage. A binding joins the group of a value that it reads, if
both are claimed by one backend and no other way leads from that group to the binding, for with such a way the region
would depend on itself. The group of the highest stage is asked first: then a refusal holds for good, since the other
way passes through a binding of another claim, and the groups that result are maximal.

Ways are searched from both ends at once, between the stages of the two groups only. What long searches look at beyond
a fixed length is drawn on one budget of the function. A search that meets its bound leaves the groups apart, which is
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
"""How many edges any search may look at from either end."""
_SEARCH_BUDGET = 1_000_000
"""How many more the searches of a function may look at, all together, ..."""
_SEARCH_BUDGET_PER_BINDING = 64
"""... and how many more again for each of its bindings."""


def may_share(binding: Binding) -> bool:
    """Tells whether a binding may have others in its region.

    A data-dependent one may not: the others could not know the sizes.
    """
    return binding.codegen is not None and not is_data_dependent(binding)


def group_claims(bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
    """Gives the group of each binding, named by its first member's position.

    Args:
        bindings: in SSA order; those that :func:`may_share` denies are groups of their own.
        epochs: from :func:`byoc_core.partitioning.merging.ordering.barrier_epochs`; groups stay within one.

    Cost: ``O(n log n)`` in bindings and operands, plus a bounded search per edge between groups of one claim. Long
    searches are seldom: they come where long branches that are independent of each other are read together, and around
    hubs, values that a good part of the function reads: there they grow with the number of readers, until the budget
    ends them (a thousand hubs in 100,000 bindings take about forty times as long as a hundred in 10,000).
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
            groups.try_merge(candidate, position)
    return [groups.find(position) for position in range(len(bindings))]


class _Groups:
    """Disjoint groups of positions, each named by its first one, with the edges between them and their stages."""

    def __init__(self, count: int) -> None:
        self.stage = [0] * count
        self._parent = list(range(count))
        self._successors: list[dict[int, None]] = [{} for _ in range(count)]
        self._predecessors: list[dict[int, None]] = [{} for _ in range(count)]
        self._nearest = [count * count] * count  # no successor has a lower stage
        self._slack = [0] * count
        self._budget = _SEARCH_BUDGET + _SEARCH_BUDGET_PER_BINDING * count
        self._reached: dict[int, set[int]] = {}  # groups that are known to depend on a group

    def find(self, position: int) -> int:
        """Gives the group of a position."""
        root = position
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[position] != root:
            self._parent[position], position = root, self._parent[position]
        return root

    def add(self, position: int, sources: Sequence[int]) -> None:
        """Makes a group of one binding, behind all others."""
        before = dict.fromkeys(map(self.find, sources))
        stage = max((self.stage[group] + 1 for group in before), default=0)
        self._predecessors[position] = before
        self.stage[position] = stage
        for group in before:
            self._successors[group][position] = None
            self._nearest[group] = min(self._nearest[group], stage)

    def try_merge(self, before: int, position: int) -> None:
        """Merges a group with that of a binding that reads from it, unless another way leads from it there."""
        before, after = self.find(before), self.find(position)
        if before == after or self._is_indirect(before, after):
            return
        stage = self.stage[after]
        if after == position:
            others = [group for group in self._predecessors[after] if group != before]
            stage = max((self.stage[before], *(self.stage[group] + 1 for group in others)))
            for group in others:  # the binding's stage may become lower than the one they know
                self._nearest[group] = min(self._nearest[group], stage)
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
        if before in self._reached or after in self._reached:
            self._reached[group] = self._reached.pop(before, set()) | self._reached.pop(after, set())

    def _is_indirect(self, before: int, after: int) -> bool:
        """Tells whether a way other than the direct edge may lead from one group to another."""
        low, high = self.stage[before], self.stage[after]
        known = self._reached.setdefault(before, set())
        visited: set[int] = set()
        origins: dict[int, int] = {}
        forward = self._walk(self._successors, before, after, low, high)
        backward = self._walk(self._predecessors, after, before, low, high)
        for visits in range(_FREE_VISITS + self._budget):
            self._budget -= visits >= _FREE_VISITS
            step = next(backward, None)
            if step is None:
                return False
            current, group = step
            if group >= 0:
                origins[group] = origins.get(current, group)
                if group == before or group in visited or group in known:
                    known.add(origins[group])
                    return True
            step = next(forward, None)
            if step is None:
                return False
            current, group = step
            if group >= 0:
                if group == after or group in origins:
                    known.add(current if group == after else origins[group])
                    return True
                visited.add(group)
        return True

    def _walk(
        self, edges: list[dict[int, None]], start: int, end: int, low: int, high: int
    ) -> Iterator[tuple[int, int]]:
        """Yields the edges of a breadth-first search as pairs; the second is -1 where the edge leads nowhere new.

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
                elif group == end or low < self.stage[group] < high:
                    visited.add(group)
                    pending.append(group)
                    yield current, group
                else:
                    yield current, -1
            neighbours.pop(current, None)
            edges[current] = neighbours

    def _raise_successors(self, before: int, after: int, stage: int) -> None:
        """Renumbers what follows ``before`` so that it may get a higher stage.

        The old stages are a topological numbering, so each group is renumbered once, after all that come before it.
        Some room is left, more each time, so that a group that grows binding by binding seldom comes here.
        """
        if stage < self._nearest[before]:
            return
        pending: list[tuple[int, int]] = []
        self._raise(before, after, stage, self._slack[before], pending)
        if pending:
            self._slack[before] = min(2 * self._slack[before] + 1, len(self.stage))
        while pending:
            _, current = heapq.heappop(pending)
            if self.stage[current] >= self._nearest[current]:
                self._raise(current, after, self.stage[current], 0, pending)

    def _raise(self, group: int, after: int, stage: int, slack: int, pending: list[tuple[int, int]]) -> None:
        """Lifts the successors of a group above a stage, and queues those that were lifted for the first time."""
        nearest = len(self.stage) ** 2
        successors = dict.fromkeys(map(self.find, self._successors[group]))
        successors.pop(group, None)
        self._successors[group] = successors
        for following in successors:
            if following == after:
                continue
            old = self.stage[following]
            if old <= stage:
                self.stage[following] = stage + 1 + slack
                heapq.heappush(pending, (old, following))
            nearest = min(nearest, self.stage[following])
        self._nearest[group] = nearest


def _union(left: dict[int, None], right: dict[int, None]) -> dict[int, None]:
    """Gives one of two sets with the other's members, in time proportional to the smaller."""
    larger, smaller = (left, right) if len(left) >= len(right) else (right, left)
    larger.update(smaller)
    return larger
