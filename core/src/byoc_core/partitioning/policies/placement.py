"""Placement: a label for each item, with a small total cost of the items and of the flows between labels.

This module and its neighbours :mod:`.forest` and :mod:`.labelling` know no IR: items are numbers, labels are numbers,
costs are anything with addition and comparison (integers give exact comparisons; ``math.inf`` forbids).

The problem is labelling with pairwise costs, on a hypergraph: NP-hard from three labels on (Boykov, Veksler, Zabih,
*Fast approximate energy minimization via graph cuts*, PAMI 2001). Systems placing layers on two machines cut exactly:
Neurosurgeon (Kang et al., ASPLOS 2017) tries every cut of a chain, DADS (Hu et al., INFOCOM 2019) takes a minimum cut.
TVM's CollagePartition (RFC 62, after Jeon et al., PACT 2022) finds a cheapest cover of the graph by candidates with
measured costs, as a shortest path. Here there are many labels, transfers, and ops bound together (all or none). The
method is dynamic programming over a spanning forest, the optimum if the graph is a forest; then moves lowering the true
cost: of single items as in Fiduccia and Mattheyses (DAC 1982), and of whole connected regions of one label.
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
    """A value: made by one item, read by others. The value moves once to each other label with a reader.

    Attributes:
        producer: the item making the value.
        readers: the items reading the value, each once, the producer not among them.
        moves: ``moves[a][b]`` is the cost of a move from label ``a`` to label ``b``; finite, 0 for ``a == b``.
    """

    producer: int
    readers: tuple[int, ...]
    moves: Sequence[Sequence[Cost]]


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """A placement problem. No cost is negative.

    Attributes:
        costs: ``costs[item][label]``; ``math.inf`` for a forbidden label.
        homes: for each item an always allowed label: with finite cost, and without a unit.
        flows: the values.
        units: by label, for each item allowed the label only together with others: all these items, including the item.
            The units of a label are disjoint, and each unit is connected by flows between its members.
    """

    costs: Sequence[Sequence[Cost]]
    homes: Sequence[int]
    flows: Sequence[Flow]
    units: Sequence[Mapping[int, tuple[int, ...]]]

    @property
    def num_labels(self) -> int:
        """The number of labels."""
        return len(self.units)

    def cost(self, labels: Sequence[int]) -> Cost:
        """Return the cost of a labelling; ``math.inf`` for a disallowed labelling. Cost: linear."""
        if any(labels[m] != label for item, label in enumerate(labels) for m in self.units[label].get(item, ())):
            return math.inf
        total: Cost = sum(self.costs[item][label] for item, label in enumerate(labels))
        for flow in self.flows:
            row = flow.moves[labels[flow.producer]]
            total += sum(row[label] for label in {labels[reader] for reader in flow.readers})
        return total

    def repaired(self, labels: Iterable[int]) -> list[int]:
        """Return the labelling with all items of disallowed labels or incomplete units moved home. Cost: linear."""
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
