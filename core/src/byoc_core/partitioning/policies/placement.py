"""Placement: a label for each item such that what the items cost and what flows between labels is small together.

This module and its neighbours :mod:`.forest` and :mod:`.labelling` know no IR: items are numbers, labels are numbers,
costs are whatever adds up and compares (integers give exact comparisons; ``math.inf`` forbids).

The problem is labelling with pairwise costs, on a hypergraph: NP-hard from three labels on (Boykov, Veksler, Zabih,
*Fast approximate energy minimization via graph cuts*, PAMI 2001). Systems that place layers on two machines cut
exactly: Neurosurgeon (Kang et al., ASPLOS 2017) tries every cut of a chain, DADS (Hu et al., INFOCOM 2019) takes a
minimum cut. TVM's CollagePartition (RFC 62, after Jeon et al., PACT 2022) finds a cheapest cover of the graph by
candidates with measured costs, as a shortest path. Here there are many labels, transfers, and ops that go together or
not at all: dynamic programming over a spanning forest, which is the optimum where the graph is a forest; then moves
that lower the true cost, of single items as those of Fiduccia and Mattheyses (DAC 1982), and of whole connected regions
of one label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Cost", "Flow", "PlacementProblem"]

Cost = float
"""An integer, or ``math.inf``."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A value: made by one item, read by others. It moves once to each other label that reads it.

    Attributes:
        producer: the item that makes it.
        readers: the items that read it, each once, the producer not among them.
        moves: ``moves[a][b]`` is the cost of bringing it from label ``a`` to label ``b``; finite, 0 for ``a == b``.
    """

    producer: int
    readers: tuple[int, ...]
    moves: Sequence[Sequence[Cost]]


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """What is to be placed. No cost is negative.

    Attributes:
        costs: ``costs[item][label]``; ``math.inf`` where it cannot be there.
        homes: for each item a label that it can always have: its cost there is finite, and no unit has that label.
        flows: the values.
        units: by label, for each item that can have the label only together with others: all of them, itself included.
            The units of a label are disjoint, and flows between its members connect each of them.
    """

    costs: Sequence[Sequence[Cost]]
    homes: Sequence[int]
    flows: Sequence[Flow]
    units: Sequence[Mapping[int, tuple[int, ...]]]

    @property
    def num_labels(self) -> int:
        """How many labels there are."""
        return len(self.units)

    def cost(self, labels: Sequence[int]) -> Cost:
        """Gives what a labelling costs; ``math.inf`` where it is not allowed. Cost: linear."""
        if any(labels[m] != label for item, label in enumerate(labels) for m in self.units[label].get(item, ())):
            return math.inf
        total: Cost = sum(self.costs[item][label] for item, label in enumerate(labels))
        for flow in self.flows:
            row = flow.moves[labels[flow.producer]]
            total += sum(row[label] for label in {labels[reader] for reader in flow.readers})
        return total

    def repaired(self, labels: Iterable[int]) -> list[int]:
        """Gives the labelling with every item at home that cannot have its label. Cost: linear."""
        fixed = list(labels)
        for item, label in enumerate(fixed):
            if self.costs[item][label] == math.inf:
                fixed[item] = self.homes[item]
        for item, label in enumerate(fixed):
            unit = self.units[label].get(item, ())
            if any(fixed[member] != label for member in unit):
                for member in unit:
                    if fixed[member] == label:
                        fixed[member] = self.homes[member]
        return fixed
