"""Labellings of a placement problem, and cost-lowering moves: of single items and of whole regions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from byoc_core.partitioning.policies.forest import label_forest
from byoc_core.partitioning.policies.placement import Cost, PlacementProblem

__all__ = ["Labelling", "find_labelling"]

_MAX_ROUNDS = 32
"""The maximum number of rounds of :meth:`Labelling.improve` over all items; more than four are seldom needed."""


def find_labelling(problem: PlacementProblem, starts: Iterable[Sequence[int]] = ()) -> Labelling:
    """Return a labelling of small cost: the optimum if items and flows form a forest.

    Args:
        problem: the placement problem.
        starts: known labellings; the result costs no more than any of these, nor than all items at home.

    Cost: the cost of :func:`~byoc_core.partitioning.policies.forest.label_forest`, and a few rounds of moves.
    """
    labels, is_optimal = label_forest(problem)
    best = Labelling(problem, labels)
    if not is_optimal:
        best.improve()
        for start in (problem.homes, *starts):
            other = Labelling(problem, start)
            if other.cost < best.cost:
                other.improve()
                best = other
    return best


class Labelling:
    """An allowed labelling of a problem, with the costs of changes.

    Args:
        problem: the placement problem.
        labels: a label for each item; a disallowed label is changed to the item's home.
    """

    def __init__(self, problem: PlacementProblem, labels: Iterable[int]) -> None:
        self.problem = problem
        self.labels = problem.repaired(labels)
        self.cost = problem.cost(self.labels)
        self.num_steps = 0
        self._flows_of: list[list[int]] = [[] for _ in problem.costs]
        self._changed: set[int] = set()  # flows with a relabelled item
        self._counts: list[list[int]] = []  # number of a flow's readers by label
        for index, flow in enumerate(problem.flows):
            counts = [0] * problem.num_labels
            for reader in flow.readers:
                counts[self.labels[reader]] += 1
                self._flows_of[reader].append(index)
            self._flows_of[flow.producer].append(index)
            self._counts.append(counts)

    def improve(self) -> None:
        """Make cost-lowering moves until there is none, or for a bounded number of rounds.

        Cost: per round ``O(k^2)`` for each link of an item and a flow at ``k`` labels.
        """
        items: Iterable[int] = range(len(self.labels))
        for _ in range(_MAX_ROUNDS):
            self._changed.clear()
            for group in self._groups(items):
                self._move(group)
            if not self._changed:
                return
            flows = (self.problem.flows[index] for index in sorted(self._changed))
            items = sorted({member for flow in flows for member in (flow.producer, *flow.readers)})

    def changes(self, items: Iterable[int], label: int) -> dict[int, int]:
        """Return the new labels of all items to be changed for some items to have a label.

        Items not allowed the label stay; items allowed the label only together with others bring the others along. The
        rest of a unit after the loss of a member goes home.
        """
        units = self.problem.units[label]
        new: dict[int, int] = {}
        for item in items:
            unit = units.get(item, (item,))
            if all(self.problem.costs[member][label] != math.inf for member in unit):
                new.update((member, label) for member in unit if self.labels[member] != label)
        for item in list(new):
            for member in self.problem.units[self.labels[item]].get(item, ()):
                new.setdefault(member, self.problem.homes[member])
        return new

    def difference(self, changes: Mapping[int, int]) -> Cost:
        """Return the increase of the cost by some changes. Cost: ``O(k)`` for each touched flow."""
        total: Cost = 0
        touched: dict[int, None] = {}
        for item, label in changes.items():
            costs = self.problem.costs[item]
            total += costs[label] - costs[self.labels[item]]
            touched.update(dict.fromkeys(self._flows_of[item]))
        shifted = self._shifted(changes)
        for index in touched:
            flow = self.problem.flows[index]
            before, after = self.labels[flow.producer], changes.get(flow.producer, self.labels[flow.producer])
            counts = self._counts[index]
            total += _transfers(flow.moves[after], shifted.get(index, counts)) - _transfers(flow.moves[before], counts)
        self.num_steps += len(touched)
        return total

    def apply(self, changes: Mapping[int, int]) -> None:
        """Give items new labels (by item), and update the cost and the counts of readers."""
        self.cost += self.difference(changes)
        for index, counts in self._shifted(changes).items():
            self._counts[index] = counts
        for item, label in changes.items():
            self.labels[item] = label
            self._changed.update(self._flows_of[item])

    def _shifted(self, changes: Mapping[int, int]) -> dict[int, list[int]]:
        """Return the new counts of the flows with changed readers."""
        shifted: dict[int, list[int]] = {}
        for item, label in changes.items():
            for index in self._flows_of[item]:
                if self.problem.flows[index].producer != item:
                    counts = shifted.get(index)
                    if counts is None:
                        counts = shifted[index] = list(self._counts[index])
                    counts[self.labels[item]] -= 1
                    counts[label] += 1
        return shifted

    def _move(self, group: Sequence[int]) -> None:
        """Give a group the label with the greatest reduction of the cost, if there is any."""
        best: dict[int, int] = {}
        best_difference: Cost = 0
        for label in range(self.problem.num_labels):
            changes = self.changes(group, label)
            difference = self.difference(changes) if changes else 0
            if difference < best_difference:
                best, best_difference = changes, difference
        if best:
            self.apply(best)

    def _groups(self, items: Iterable[int]) -> Iterator[Sequence[int]]:
        """Yield the groups to move: some items alone, then every connected region of one label at that time."""
        yield from ((item,) for item in items)
        seen = [False] * len(self.labels)
        for start in range(len(self.labels)):
            if not seen[start]:
                yield self._region(start, seen)

    def _region(self, start: int, seen: list[bool]) -> list[int]:
        label = self.labels[start]
        region, pending = [], [start]
        seen[start] = True
        visited: set[int] = set()
        while pending:
            item = pending.pop()
            region.append(item)
            for index in self._flows_of[item]:
                flow = self.problem.flows[index]
                if index in visited or self.labels[flow.producer] != label:
                    continue
                visited.add(index)
                for member in (flow.producer, *flow.readers):
                    if not seen[member] and self.labels[member] == label:
                        seen[member] = True
                        pending.append(member)
        return region


def _transfers(row: Sequence[Cost], counts: Sequence[int]) -> Cost:
    total: Cost = 0
    for cost, count in zip(row, counts, strict=True):
        if count:
            total += cost
    return total
