"""The tables of an ensemble of trees for the C: leaves are nodes too, and weights are in the order of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ExecutionError

from byoc_mlops.tree_kernel import MEMBER, Forest, Leaves

__all__ = ["TreeTables", "tree_tables"]

NDArray = npt.NDArray[Any]

_MOST_ENTRIES = 2**30
"""The largest number of nodes, members or weights: indices of pairs of children are 32-bit."""


@dataclass(frozen=True)
class TreeTables:
    """The tables of the kernel in C, with an element or more each.

    Node ``m`` of ``num_nodes`` nodes is an inner node; the other nodes are leaves, with themselves as children.

    Attributes:
        thresholds: of nodes.
        features: of nodes.
        children: the true child and the false child of each node.
        modes: of nodes.
        missing: whether NaN goes to the true child, of nodes.
        set_starts: the first member of each node's set, and the number of members.
        members: the sets of all nodes, each sorted.
        roots: the nodes where trees begin.
        depths: the largest number of decisions in each tree.
        starts: the first weight of each leaf, and the number of weights.
        targets: of weights.
        weights: in float64.
        num_nodes: the number of inner nodes.
        used_modes: the modes of inner nodes, in ascending order.
    """

    thresholds: NDArray
    features: NDArray
    children: NDArray
    modes: NDArray
    missing: NDArray
    set_starts: NDArray
    members: NDArray
    roots: NDArray
    depths: NDArray
    starts: NDArray
    targets: NDArray
    weights: NDArray
    num_nodes: int
    used_modes: tuple[int, ...]


def tree_tables(operands: Sequence[NDArray], num_features: int, num_targets: int) -> TreeTables | None:
    """Return the tables for the operands of ``mlops.tree_ensemble`` behind the samples.

    ``None`` if an index lies outside or a tree has a cycle, since such trees fail for some samples at most, and for
    trees too large for 32-bit indices.

    Cost: ``O(M * log(M))`` for each level of the trees.
    """
    *nodes, leaf_ids, targets, weights = operands
    forest = Forest(*nodes)
    try:
        forest.check(num_features)
        leaves = Leaves(leaf_ids, targets, weights, num_targets, "sum")
    except ExecutionError:
        return None
    count = len(forest.features)
    depths = _find_depths(forest)
    links = np.concatenate([forest.true_children, forest.false_children, forest.roots])
    used = np.unique(links[links < 0])[::-1]  # from leaf 0 on
    sizes = (count + len(used), len(weights), len(forest.members))
    if depths is None or max(sizes) > _MOST_ENTRIES:
        return None

    def number(links: NDArray) -> NDArray:
        """Return children or roots as nodes."""
        return np.where(links >= 0, links, count + len(used) - 1 - np.searchsorted(used[::-1], links))

    own = count + np.arange(len(used))
    pairs = np.stack([number(forest.true_children), number(forest.false_children)], axis=1)
    starts, order = _order_weights(leaves, -1 - used)
    set_starts, members = _order_members(forest, count + len(used))
    return TreeTables(
        thresholds=_padded(forest.thresholds, len(used)),
        features=_padded(forest.features, len(used), np.int32),
        children=_padded(np.concatenate([pairs, np.stack([own, own], axis=1)]).reshape(-1), 0, np.int32),
        modes=_padded(forest.modes, len(used), np.uint8),
        missing=_padded(nodes[5], len(used), np.uint8),
        set_starts=set_starts.astype(np.int32),
        members=_padded(members, 1),
        roots=_padded(number(forest.roots), 0, np.int32),
        depths=_padded(depths, 0, np.int32),
        starts=starts.astype(np.int32),
        targets=_padded(leaves.targets[order], 1, np.int32),
        weights=_padded(leaves.weights[order], 1),
        num_nodes=count,
        used_modes=tuple(forest.used_modes),
    )


def _padded(array: NDArray, count: int, dtype: npt.DTypeLike | None = None) -> NDArray:
    """Return an array with zeros behind, at least a single element."""
    return np.append(array, np.zeros(max(count, 1 - len(array)), array.dtype)).astype(dtype or array.dtype)


def _find_depths(forest: Forest) -> NDArray | None:
    """Return the depth of each tree; ``None`` for a tree with a cycle."""
    count = len(forest.features)
    depths = np.zeros(len(forest.roots), np.int64)
    trees = np.flatnonzero(forest.roots >= 0)
    nodes = forest.roots[trees]
    for level in range(1, count + 1):
        if not len(nodes):
            break
        depths[trees] = level
        below = np.concatenate([forest.true_children[nodes], forest.false_children[nodes]])
        keys = np.unique((np.tile(trees, 2) * count + below)[below >= 0])
        trees, nodes = np.divmod(keys, count)
    return None if len(nodes) else depths


def _order_weights(leaves: Leaves, ids: NDArray) -> tuple[NDArray, NDArray]:
    """Return the first weight of each leaf, with the number of weights behind, and the places of the weights."""
    rows = np.minimum(ids, len(leaves.counts))
    counts, firsts = np.append(leaves.counts, 0)[rows], np.append(leaves.starts, 0)[rows]
    starts = np.append(0, np.cumsum(counts))
    order = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], counts)
    return starts, order


def _order_members(forest: Forest, count: int) -> tuple[NDArray, NDArray]:
    """Return the first member of each node's set, with the number of members behind, and the members."""
    is_used = ~np.isnan(forest.members) & (forest.modes[forest.member_nodes] == MEMBER)
    owners, members = forest.member_nodes[is_used], forest.members[is_used]
    order = np.lexsort((members, owners))
    return np.append(0, np.cumsum(np.bincount(owners, minlength=count))), members[order]
