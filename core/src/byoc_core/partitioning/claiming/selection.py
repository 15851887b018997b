"""Selection among overlapping matches, with reasons for the refused matches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.ir import Binding
from byoc_core.ir.sizes import dependencies
from byoc_core.pattern import CompositePattern, FunctionIndex, Match, Rejection

__all__ = ["Candidate", "OnRefusal", "select"]

OnRefusal = Callable[["Candidate", Rejection, tuple[str, ...]], None]
"""Called with a refused candidate, the reason, and the ops named by the reason."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A match accepted by the pattern's check.

    Attributes:
        pattern: the matching pattern.
        order: the pattern's place among all patterns of the pass.
        match: the match.
        positions: positions of the matched bindings in the function, ascending.
        number: the number of earlier matches of the same pattern at the same root.
    """

    pattern: CompositePattern
    order: int
    match: Match
    positions: tuple[int, ...]
    number: int

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The place in the order of selection, lowest first; unique among the candidates of a function.

        The order is: higher priority; more ops; earlier pattern; last op earlier in the function; earlier alternatives
        and operand orders of the pattern.
        """
        return -self.pattern.priority, -len(self.positions), self.order, self.positions[-1], self.number


def select(
    index: FunctionIndex, candidates: Sequence[Candidate], on_refusal: OnRefusal
) -> tuple[list[int], dict[int, Candidate]]:
    """Choose matches by rank; skip a match sharing an op with a better match, or closing a cycle.

    Returns:
        The group of each binding (composites and single ops), without cyclic dependences; and the chosen candidate at
        each matched position.

    Cost: ``O(n log n)`` in candidates. For each match with inner values read elsewhere, a search of the dependents and
    dependences of the match between the first op and the last.
    """
    bindings = index.function.bindings
    group_of = list(range(len(bindings)))
    selected: dict[int, Candidate] = {}
    order: _GroupOrder | None = None
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank):
        winners = {selected[p].rank: selected[p] for p in candidate.positions if p in selected}
        if winners:
            contested = tuple(_name(bindings[p]) for p in candidate.positions if p in selected)
            on_refusal(candidate, _lost(list(winners.values())), contested)
            continue
        if _may_depend_on_others(candidate):
            order = order or _GroupOrder(bindings)
            cycle = order.contract(candidate.positions)
            if cycle is not None:
                names = tuple(_name(bindings[position]) for position in cycle)
                on_refusal(candidate, _would_close_cycle(names), names)
                continue
        selected.update(dict.fromkeys(candidate.positions, candidate))
        for position in candidate.positions:
            group_of[position] = candidate.positions[-1]
    return group_of, selected


def _name(binding: Binding) -> str:
    return binding.results[0].name


def _lost(winners: Sequence[Candidate]) -> Rejection:
    winner_texts = (f"`{winner.pattern.name}` at `{_name(winner.match.root)}`" for winner in winners)
    return Rejection("lost", f"lost to {' and '.join(winner_texts)}")


def _would_close_cycle(names: Sequence[str]) -> Rejection:
    listed = ", ".join(f"`{name}`" for name in names)
    return Rejection("would-close-cycle", f"the composite would depend on itself through {listed}")


def _may_depend_on_others(candidate: Candidate) -> bool:
    """Return whether a composite of the match can close a cycle not closed by the single ops.

    If only the last op is read outside, every path into the composite continues to that op. Each path through the
    composite is then a path through the ops, and the ops alone form no cycle.
    """
    match = candidate.match
    return bool(match.leaked) or any(binding.op.declares_results for binding in match.bindings)


class _GroupOrder:
    """A topological order of single ops and contracted groups, repaired with each contraction.

    Source: D. J. Pearce and P. H. J. Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006;
    here groups of nodes are merged instead of edges being inserted.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._sources = dependencies(bindings)
        self._readers: list[list[int]] = [[] for _ in bindings]
        for position, sources in enumerate(self._sources):
            for source in sources:
                self._readers[source].append(position)
        self._rank = list(range(len(bindings)))  # by the first position of a group
        self._group = list(range(len(bindings)))
        self._members: dict[int, Sequence[int]] = {}

    def contract(self, positions: Sequence[int]) -> list[int] | None:
        """Merge single ops to one group, unless the group closes a cycle.

        Returns:
            ``None``, or the ops on a shortest cycle, in order.
        """
        inside = frozenset(positions)
        low, high = (pick(map(self._rank.__getitem__, positions)) for pick in (min, max))
        after, cycle = self._search(positions, inside, self._readers, lambda rank: rank < high)
        if cycle is not None:
            return cycle
        before, _ = self._search(positions, inside, self._sources, lambda rank: rank > low)
        first = positions[0]
        moved = [*self._by_rank(before), first, *self._by_rank(after)]
        ranks = sorted([*map(self._rank.__getitem__, (*before, *after)), *map(self._rank.__getitem__, positions)])
        spare = len(ranks) - len(moved)
        for number, group in enumerate(moved):
            self._rank[group] = ranks[number if number < len(before) else number + spare]
        for position in positions:
            self._group[position] = first
        self._members[first] = positions
        return None

    def _by_rank(self, groups: Mapping[int, object]) -> list[int]:
        return sorted(groups, key=self._rank.__getitem__)

    def _search(
        self,
        positions: Sequence[int],
        inside: frozenset[int],
        edges: Sequence[Sequence[int]],
        is_near: Callable[[int], bool],
    ) -> tuple[dict[int, tuple[int, int]], list[int] | None]:
        """Return the groups reached by edges from some ops, breadth first, and a path back to these ops, if any."""
        reached: dict[int, tuple[int, int]] = {}  # by group: source and target op of an edge leading to the group
        pending = deque(self._edges(positions, edges))
        while pending:
            start, end = pending.popleft()
            group = self._group[end]
            if end in inside:
                if start not in inside:
                    return reached, self._path(reached, start, inside)
            elif group not in reached and is_near(self._rank[group]):
                reached[group] = start, end
                pending.extend(self._edges(self._members.get(group, (group,)), edges))
        return reached, None

    @staticmethod
    def _edges(positions: Sequence[int], edges: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
        return ((position, end) for position in positions for end in edges[position])

    def _path(self, reached: Mapping[int, tuple[int, int]], last: int, inside: frozenset[int]) -> list[int]:
        """Return the ops of a path: for a group on the path, the ops of entry and exit."""
        path = []
        while last not in inside:
            start, entered = reached[self._group[last]]
            path += [last] if entered == last else [last, entered]
            last = start
        return path[::-1]
