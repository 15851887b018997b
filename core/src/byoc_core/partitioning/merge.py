"""Merging: neighbouring claims of one backend become one region, never at the price of a cycle.

First every binding gets a *stage*: the most changes of backend on any way to it. Claims of one backend and one
stage that are connected form a group; a way that leaves the group reaches a higher stage and cannot come back, so
these groups are convex and acyclic together, in linear time. Then groups of one backend joined by an edge are merged
where no other way leads from one to the other; the stages of what follows are raised to stay a topological numbering.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Function, IRModule, Var
from byoc_core.partitioning.legality import check_partition
from byoc_core.partitioning.ordering import barrier_epochs, sort_groups
from byoc_core.partitioning.outline import Outliner
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_regions, with_bindings

__all__ = ["MergeCompositeFunctions"]


@dataclass(frozen=True)
class MergeCompositeFunctions(Pass):
    """Makes a function annotated for ``RunCodegen`` of every maximal group of neighbouring claims of one backend."""

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module with region functions.

        All functions are treated, bodies of ``if`` and ``loop`` included; impure bindings are barriers.

        Raises:
            InternalError: the result breaks a law of partition.

        Cost: ``O(n log n)``, plus for each pair of neighbouring groups of one backend the groups between their stages.
        """
        outliner = Outliner(module)
        changed = {name: _merge(function, name, outliner, module) for name, function in module.functions.items()}
        if not outliner.functions:
            return module
        merged = module.with_functions({**outliner.functions, **changed})
        check_partition(module, merged)
        return merged


def _merge(function: Function, source: str, outliner: Outliner, module: IRModule) -> Function:
    if "Codegen" in function.attrs:
        return function
    epochs = barrier_epochs(function, module.functions)
    inner = list(map_regions(function.bindings, lambda region: _merge(region, source, outliner, module)))
    function = with_bindings(function, inner)
    if not any(binding.codegen for binding in function.bindings):
        return function
    group_of = _Groups(function.bindings, epochs).solve()
    ordered = sort_groups(function.bindings, group_of, epochs)
    if ordered is None:
        raise InternalError(f"function `{source}`", "its regions depend on one another in a cycle", detail=str(module))
    readers = _readers(function)
    bindings = []
    for positions in ordered:
        members = [function.bindings[position] for position in positions]
        if members[0].codegen is None:
            bindings.extend(members)
        else:
            bindings.append(outliner.outline(source, members, _outputs(members, readers)))
    return replace(function, bindings=tuple(bindings))


def _readers(function: Function) -> dict[int, list[int]]:
    """Gives the ``id`` of each binding that reads a value, by the value's ``id``; 0 for the function's results."""
    readers: dict[int, list[int]] = {}
    for binding in function.bindings:
        for operand in binding.operands:
            readers.setdefault(id(operand), []).append(id(binding))
    for result in function.results:
        readers.setdefault(id(result), []).append(0)
    return readers


def _outputs(members: Sequence[Binding], readers: dict[int, list[int]]) -> list[Var]:
    inside = {id(binding) for binding in members}
    outputs = [r for b in members for r in b.results if any(reader not in inside for reader in readers.get(id(r), ()))]
    return outputs or [members[-1].results[0]]


class _Groups:
    """Groups of bindings with a topological numbering (``stage``) and their edges."""

    def __init__(self, bindings: Sequence[Binding], epochs: Sequence[int]) -> None:
        self._bindings = bindings
        self._epochs = epochs
        self._parent = list(range(len(bindings)))
        self._stage = [0] * len(bindings)
        self._successors: list[set[int]] = [set() for _ in bindings]
        self._predecessors: list[list[int]] = [[] for _ in bindings]

    def solve(self) -> list[int]:
        """Gives the group of each binding."""
        self._number()
        self._join_edges()
        pending = self._neighbours()
        while pending:
            refused = [(source, position) for source, position in pending if not self._try_merge(source, position)]
            pending = refused if len(refused) < len(pending) else []
        return [self._find(position) for position in range(len(self._bindings))]

    def _neighbours(self) -> list[tuple[int, int]]:
        """Gives the edges between different groups of one claim, nearest stages first at each reader."""
        return [
            (source, position)
            for position, sources in enumerate(self._predecessors)
            for source in sorted(sources, key=lambda source: -self._stage[self._find(source)])
            if self._claim(position) is not None
            and self._claim(source) == self._claim(position)
            and self._find(source) != self._find(position)
        ]

    def _claim(self, position: int) -> tuple[str, int] | None:
        claim = self._bindings[position].codegen
        return None if claim is None else (claim, self._epochs[position])

    def _number(self) -> None:
        producer: dict[int, int] = {}
        highest, floor = -1, 0
        for position, binding in enumerate(self._bindings):
            if position and self._epochs[position] != self._epochs[position - 1]:
                floor = highest + 1
            sources = list({producer[id(o)]: None for o in binding.operands if id(o) in producer})
            claim = self._claim(position)
            stages = (self._stage[s] + (claim is None or self._claim(s) != claim) for s in sources)
            self._predecessors[position] = sources
            self._stage[position] = max((floor, *stages))
            highest = max(highest, self._stage[position])
            producer.update((id(result), position) for result in binding.results)

    def _join_edges(self) -> None:
        for position, sources in enumerate(self._predecessors):
            claim = self._claim(position)
            for source in sources:
                if claim is not None and self._claim(source) == claim and self._stage[source] == self._stage[position]:
                    self._unite(source, position)
        for position, sources in enumerate(self._predecessors):
            group = self._find(position)
            for source in sources:
                before = self._find(source)
                if before != group:
                    self._successors[before].add(group)

    def _find(self, position: int) -> int:
        root = position
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[position] != root:
            self._parent[position], position = root, self._parent[position]
        return root

    def _unite(self, left: int, right: int) -> int:
        left, right = sorted((self._find(left), self._find(right)))
        self._parent[right] = left
        return left

    def _successor_groups(self, group: int) -> Iterable[int]:
        """Gives the groups right after one, each once; stale entries are cleaned on the way."""
        current = {self._find(after) for after in self._successors[group]} - {group}
        self._successors[group] = current
        return current

    def _try_merge(self, source: int, position: int) -> bool:
        """Merges the groups of an edge and tells whether they are one now."""
        before, after = self._find(source), self._find(position)
        if before == after:
            return True
        if self._is_indirect(before, after):
            return False
        stage = max(self._stage[before], self._stage[after])
        following = self._successors[before] | self._successors[after]
        group = self._unite(before, after)
        self._stage[group] = stage
        self._successors[group] = following
        self._raise_stages(group)
        return True

    def _is_indirect(self, before: int, after: int) -> bool:
        """Tells whether a way other than the direct edge leads from one group to another."""
        limit = self._stage[after]
        pending = [group for group in self._successor_groups(before) if group != after]
        visited = set(pending)
        while pending:
            group = pending.pop()
            if self._stage[group] >= limit:
                continue
            for following in self._successor_groups(group):
                if following == after:
                    return True
                if following not in visited:
                    visited.add(following)
                    pending.append(following)
        return False

    def _raise_stages(self, group: int) -> None:
        """Raises what follows a group until every edge leads to a higher stage; each group is visited once.

        The old stages are a topological numbering, so a group is popped after all raised groups before it.
        """
        pending, queued = [(self._stage[group], group)], {group}
        while pending:
            _, current = heapq.heappop(pending)
            for following in self._successor_groups(current):
                if self._stage[following] <= self._stage[current]:
                    if following not in queued:
                        queued.add(following)
                        heapq.heappush(pending, (self._stage[following], following))
                    self._stage[following] = self._stage[current] + 1
