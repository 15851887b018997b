"""The best labelling of a spanning forest of a placement problem, by dynamic programming."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import NamedTuple

from byoc_core.partitioning.policies.placement import Cost, Flow, PlacementProblem

__all__ = ["label_forest"]


def label_forest(problem: PlacementProblem) -> tuple[list[int], bool]:
    """Label the items with the minimum cost over a spanning forest of items and flows.

    Min-sum belief propagation (Pearl 1988) on the tree with items and flows as nodes: exact, because every flow is one
    term regardless of the number of readers. If links between flows and readers close cycles, the heaviest links are
    kept, links within units before all others.

    Returns:
        The labels, an allowed labelling, and whether the labelling is the optimum of the problem (no link left out).
        Among equal labellings the lower label is preferred.

    Cost: ``O(k^2 2^k)`` for each link of an item and a flow at ``k`` labels, ``O(k^3)`` for flows with one reader.
    """
    return _Forest(problem).solve()


class _FlowLabels(NamedTuple):
    """The cost of a flow and the subtrees below it at a label of the parent, and the labels of the children."""

    cost: Cost
    producer_label: int
    reader_labels: list[int]


class _Forest:
    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        self._num_items = len(problem.costs)
        self._readers: list[list[int]] = [[] for _ in problem.flows]
        self._flows_of: list[list[int]] = [[] for _ in problem.costs]
        self._sets = _label_sets(problem.num_labels)
        self._tables: list[list[Cost]] = [list(row) for row in problem.costs]
        self._is_complete = self._span()

    def solve(self) -> tuple[list[int], bool]:
        order, parents, roots = self._order()
        flows = self._problem.flows
        # From the leaves up: the tables of all items below a flow are complete before the flow's cost is added above.
        for index in reversed(order):
            table = self._tables[parents[index]]
            for label, cost in enumerate(table):
                if cost != math.inf:
                    table[label] = cost + self._best(index, parents[index], label).cost
        labels = list(self._problem.homes)
        for root in roots:
            labels[root] = min(range(self._problem.num_labels), key=self._tables[root].__getitem__)
        # From the roots down: the label of the item above decides the labels of the flow's other items.
        for index in order:
            parent = parents[index]
            flow_labels = self._best(index, parent, labels[parent])
            labels[flows[index].producer] = flow_labels.producer_label
            for reader, label in zip(self._children(index, parent), flow_labels.reader_labels, strict=True):
                labels[reader] = label
        # Left-out links may tie items of a unit: the labelling of the forest may contain incomplete units.
        repaired = self._problem.repaired(labels)
        return repaired, self._is_complete and repaired == labels

    def _span(self) -> bool:
        """Choose the links of the forest, and return whether all links could be kept."""
        links = [(index, reader) for index, flow in enumerate(self._problem.flows) for reader in flow.readers]
        links.sort(key=lambda link: self._link_order(*link))
        parent = list(range(self._num_items + len(self._problem.flows)))
        for index, flow in enumerate(self._problem.flows):
            # A flow has a single producer: these links close no cycle, and all are kept.
            parent[self._num_items + index] = flow.producer
            self._flows_of[flow.producer].append(index)
        is_complete = True
        for index, reader in links:
            left, right = _find(parent, self._num_items + index), _find(parent, reader)
            if left == right:
                # The link would close a cycle: the forest ignores this reader's share of the flow's cost.
                is_complete = False
                continue
            parent[right] = left
            self._readers[index].append(reader)
            self._flows_of[reader].append(index)
        return is_complete

    def _link_order(self, index: int, reader: int) -> tuple[bool, Cost]:
        flow = self._problem.flows[index]
        return (not self._tied(flow, reader), -max(map(max, flow.moves)))

    def _tied(self, flow: Flow, reader: int) -> list[int]:
        """Return the labels allowed to the producer and a reader of a flow only together."""
        units = enumerate(self._problem.units)
        return [label for label, unit in units if unit and reader in unit.get(flow.producer, ())]

    def _order(self) -> tuple[list[int], list[int], list[int]]:
        """Return the flows, each after the flows between it and the tree's root; the item above each; and the roots."""
        parents = [-1] * len(self._problem.flows)
        seen = [False] * self._num_items
        order: list[int] = []
        roots = []
        for root in range(self._num_items):
            if seen[root]:
                continue
            roots.append(root)
            seen[root] = True
            pending = [root]
            while pending:
                item = pending.pop()
                for index in self._flows_of[item]:
                    if parents[index] < 0:
                        parents[index] = item
                        order.append(index)
                        members = [self._problem.flows[index].producer, *self._readers[index]]
                        pending += (member for member in members if not seen[member])
                        for member in members:
                            seen[member] = True
        return order, parents, roots

    def _children(self, index: int, parent: int) -> list[int]:
        return [reader for reader in self._readers[index] if reader != parent]

    def _best(self, index: int, parent: int, label: int) -> _FlowLabels:
        """Return the cheapest labels of a flow's other items, for a given label of the parent.

        The target labels of the value are tried as sets; each reader then takes the best label of the set for itself.
        """
        flow, tables = self._problem.flows[index], self._tables
        is_producer = parent == flow.producer
        children = [(tables[child], self._tied(flow, child)) for child in self._children(index, parent)]
        if is_producer and len(children) == 1 and not children[0][1]:
            # The most frequent case, by itself for speed: the only reader takes its best label.
            arrivals = list(map(operator.add, flow.moves[label], children[0][0]))
            cost = min(arrivals)
            if cost == math.inf:
                return _FlowLabels(cost, self._problem.homes[parent], [self._problem.homes[parent]])
            return _FlowLabels(cost, label, [label if arrivals[label] == cost else arrivals.index(cost)])
        tied = [] if is_producer else self._tied(flow, parent)
        best = _FlowLabels(math.inf, self._problem.homes[flow.producer], [self._problem.homes[parent]] * len(children))
        for source in (label,) if is_producer else range(self._problem.num_labels):
            base = 0 if is_producer else tables[flow.producer][source]
            # No cost is negative: `base` is a lower bound. A tied label permits no other label at the other end.
            if base >= best.cost or (source != label and (source in tied or label in tied)):
                continue
            row = flow.moves[source]
            # More labels than readers are never needed; the value is at its source without a move.
            for targets in self._sets[source][min(len(self._readers[index]), len(row) - 1)]:
                cost = base + sum(row[target] for target in targets)
                # If the parent is a reader, the value must reach the parent's label.
                if cost >= best.cost or not (is_producer or label in targets):
                    continue
                reader_labels = []
                for table, bound in children:
                    fitting = _fitting(targets, source, bound) if bound else targets
                    reader_labels.append(min(fitting, key=table.__getitem__))
                    cost += table[reader_labels[-1]]
                if cost < best.cost:
                    best = _FlowLabels(cost, source, reader_labels)
        return best


def _fitting(targets: tuple[int, ...], source: int, bound: list[int]) -> tuple[int, ...]:
    """Return the labels open to a reader; labels in ``bound`` are allowed only together with the producer."""
    return (source,) if source in bound else tuple(target for target in targets if target not in bound)


def _label_sets(num_labels: int) -> list[list[list[tuple[int, ...]]]]:
    """Return for each label and number the sets with the label and at most so many others; small sets first."""

    def sets(label: int, max_extra: int) -> Iterator[tuple[int, ...]]:
        other_labels = [other for other in range(num_labels) if other != label]
        for count in range(max_extra + 1):
            yield from ((label, *extra_labels) for extra_labels in itertools.combinations(other_labels, count))

    return [[list(sets(label, most)) for most in range(num_labels)] for label in range(num_labels)]


def _find(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node
