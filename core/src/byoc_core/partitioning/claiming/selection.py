"""Selection among overlapping matches: which become composites, and why the others do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.ir import Binding
from byoc_core.ir.sizes import dependencies
from byoc_core.pattern import CompositePattern, FunctionIndex, Match, Rejection

__all__ = ["Candidate", "OnRefusal", "select"]

OnRefusal = Callable[["Candidate", Rejection, tuple[str, ...]], None]
"""Called with a candidate that is not taken, the reason, and the ops that the reason speaks of."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A match that its pattern's check lets pass.

    Attributes:
        pattern: what matched.
        order: the pattern's place among all patterns of the pass.
        match: what it matched.
        positions: of the matched bindings in the function, ascending.
        number: how many matches of the same pattern at the same root were found before it.
    """

    pattern: CompositePattern
    order: int
    match: Match
    positions: tuple[int, ...]
    number: int

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The place in the order of selection, lowest first; no two candidates of one function share it.

        A match of higher priority goes first; then the one of more ops; then that of the earlier pattern; then that
        whose last op stands earlier in the function; then that which the pattern's earlier alternatives and operand
        orders give.
        """
        return -self.pattern.priority, -len(self.positions), self.order, self.positions[-1], self.number


def select(
    index: FunctionIndex, candidates: Sequence[Candidate], on_refusal: OnRefusal
) -> tuple[list[int], dict[int, Candidate]]:
    """Chooses matches by rank; one that shares an op with a better one, or would close a cycle, is left out.

    Returns:
        The group of each binding (composites and single ops), which do not depend on one another in a cycle; and the
        chosen candidate at each matched position.

    Cost: ``O(n log n)`` in candidates. For each match whose inner values are read elsewhere, a search of what depends
    on it, or it on, between its first op and its last.
    """
    bindings = index.function.bindings
    group_of = list(range(len(bindings)))
    chosen: dict[int, Candidate] = {}
    order: _Order | None = None
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank):
        winners = {chosen[p].rank: chosen[p] for p in candidate.positions if p in chosen}
        if winners:
            contested = tuple(_name(bindings[p]) for p in candidate.positions if p in chosen)
            on_refusal(candidate, _lost(list(winners.values())), contested)
            continue
        if _may_depend_on_others(candidate):
            order = order or _Order(bindings)
            way = order.contract(candidate.positions)
            if way is not None:
                names = tuple(_name(bindings[position]) for position in way)
                on_refusal(candidate, _would_close_cycle(names), names)
                continue
        chosen.update(dict.fromkeys(candidate.positions, candidate))
        for position in candidate.positions:
            group_of[position] = candidate.positions[-1]
    return group_of, chosen


def _name(binding: Binding) -> str:
    return binding.results[0].name


def _lost(winners: Sequence[Candidate]) -> Rejection:
    places = (f"`{winner.pattern.name}` at `{_name(winner.match.root)}`" for winner in winners)
    return Rejection("lost", f"lost to {' and '.join(places)}")


def _would_close_cycle(names: Sequence[str]) -> Rejection:
    listed = ", ".join(f"`{name}`" for name in names)
    return Rejection("would-close-cycle", f"it would depend on itself through {listed}")


def _may_depend_on_others(candidate: Candidate) -> bool:
    """Tells whether a composite of the match can stand on a cycle that its single ops do not stand on.

    Where only the last op is read outside, every way into the composite leads on to that op, so each way through the
    composite is a way through its ops; and those alone form no cycle.
    """
    match = candidate.match
    return bool(match.leaked) or any(binding.op.declares_results for binding in match.bindings)


class _Order:
    """A topological order of single ops and contracted groups, repaired with each contraction.

    Source: D. J. Pearce and P. H. J. Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006;
    here groups of nodes become one where they insert edges.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._sources = dependencies(bindings)
        self._readers: list[list[int]] = [[] for _ in bindings]
        for position, sources in enumerate(self._sources):
            for source in sources:
                self._readers[source].append(position)
        self._place = list(range(len(bindings)))  # by the first position of a group
        self._group = list(range(len(bindings)))
        self._members: dict[int, Sequence[int]] = {}

    def contract(self, positions: Sequence[int]) -> list[int] | None:
        """Makes one group of single ops, unless it closed a cycle.

        Returns:
            ``None``, or the ops on a shortest such way, in order.
        """
        inside = frozenset(positions)
        low, high = (pick(map(self._place.__getitem__, positions)) for pick in (min, max))
        after, way = self._search(positions, inside, self._readers, lambda place: place < high)
        if way is not None:
            return way
        before, _ = self._search(positions, inside, self._sources, lambda place: place > low)
        first = positions[0]
        moved = [*self._by_place(before), first, *self._by_place(after)]
        places = sorted([*map(self._place.__getitem__, (*before, *after)), *map(self._place.__getitem__, positions)])
        spare = len(places) - len(moved)
        for number, group in enumerate(moved):
            self._place[group] = places[number if number < len(before) else number + spare]
        for position in positions:
            self._group[position] = first
        self._members[first] = positions
        return None

    def _by_place(self, groups: Mapping[int, object]) -> list[int]:
        return sorted(groups, key=self._place.__getitem__)

    def _search(
        self,
        positions: Sequence[int],
        inside: frozenset[int],
        edges: Sequence[Sequence[int]],
        is_near: Callable[[int], bool],
    ) -> tuple[dict[int, tuple[int, int]], list[int] | None]:
        """Gives the groups that edges lead to from some ops, breadth first, and a way back to those ops, if any."""
        reached: dict[int, tuple[int, int]] = {}  # by group: the op that an edge leads to it from, and to
        pending = deque(self._edges(positions, edges))
        while pending:
            start, end = pending.popleft()
            group = self._group[end]
            if end in inside:
                if start not in inside:
                    return reached, self._way(reached, start, inside)
            elif group not in reached and is_near(self._place[group]):
                reached[group] = start, end
                pending.extend(self._edges(self._members.get(group, (group,)), edges))
        return reached, None

    @staticmethod
    def _edges(positions: Sequence[int], edges: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
        return ((position, end) for position in positions for end in edges[position])

    def _way(self, reached: Mapping[int, tuple[int, int]], last: int, inside: frozenset[int]) -> list[int]:
        """Gives the ops of a way: of a group on it, the op where the way enters and that where it leaves."""
        way = []
        while last not in inside:
            start, entered = reached[self._group[last]]
            way += [last] if entered == last else [last, entered]
            last = start
        return way[::-1]
