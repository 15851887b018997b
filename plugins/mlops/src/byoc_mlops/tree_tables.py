"""The tables of an ensemble of trees for the C: comparisons of integers, and weights in the order of leaves.

The integers of floats, of the same size, are in the order of the floats. So ``<=``, ``<``, ``>`` and ``>=`` are all a
comparison of an integer with a limit, with two successors: for integers up to the limit, and above. ``==`` and
``!=`` are two such comparisons, and a set is a tree of these. NaN becomes the least or the largest integer, by the
successor of NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ExecutionError

from byoc_mlops.tree_kernel import MEMBER, MODES, Forest, Leaves

__all__ = ["LANES", "TreeTables", "tree_tables"]

NDArray = npt.NDArray[Any]

LANES = 8
"""The number of walks taking turns: the distance of slots in the keys."""

_MOST_ELEMENTS = 2**31 - 1
"""The largest number of elements of a table: indices are 32-bit."""

_LESS_EQUAL, _LESS, _GREATER_EQUAL, _GREATER, _EQUAL, _NOT_EQUAL = range(len(MODES))


@dataclass(frozen=True)
class TreeTables:
    """The tables of the kernel in C, with an element or more each.

    A record has four elements of 32 bits for float32, and six for float64: the limit, the slot, the next pair of
    records, and the leaf. The records of the roots come first. A pair has the records for keys up to the limit and
    above.

    Attributes:
        nodes: the records.
        features: the feature of each slot of a sample's keys; slots with NaN as the least key come first.
        depths: the largest number of comparisons in each tree.
        starts: the first weight of each leaf, and the number of weights.
        targets: of weights.
        weights: in float64.
        num_low: the number of slots with NaN as the least key.
        num_slots: the number of slots.
        weights_of_leaves: ``"all"``: each leaf has a weight for each target, in order; ``"single"``: each leaf has one
            weight; ``"any"`` otherwise.
    """

    nodes: NDArray
    features: NDArray
    depths: NDArray
    starts: NDArray
    targets: NDArray
    weights: NDArray
    num_low: int
    num_slots: int
    weights_of_leaves: Literal["all", "single", "any"]


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
    comparisons = _Comparisons(forest, nodes[5])
    depths = _find_depths(comparisons, forest.roots)
    if depths is None:
        return None
    keys, slots = np.unique(comparisons.nan_above * num_features + comparisons.features, return_inverse=True)
    links = _order_links(forest.roots, comparisons)
    used = np.unique(links[links < 0])[::-1]  # from leaf 0 on
    starts, order = _order_weights(leaves, -1 - used)
    if max(len(links) * 6, len(keys) * LANES, len(order)) > _MOST_ELEMENTS:
        return None
    records = _write_records(links, comparisons, slots, used)
    counts, ordered_targets = np.diff(starts), leaves.targets[order]
    has_all = bool(
        (counts == num_targets).all() and (ordered_targets.reshape(-1, num_targets) == range(num_targets)).all()
    )
    return TreeTables(
        nodes=_padded(records.reshape(-1), np.int32),
        features=_padded(keys % num_features, np.int32),
        depths=_padded(depths, np.int32),
        starts=starts.astype(np.int32),
        targets=_padded(ordered_targets, np.int32),
        weights=_padded(leaves.weights[order], np.float64),
        num_low=int(np.searchsorted(keys, num_features)),
        num_slots=len(keys),
        weights_of_leaves="all" if has_all else "single" if (counts == 1).all() else "any",
    )


def _padded(array: NDArray, dtype: npt.DTypeLike) -> NDArray:
    """Return an array in a dtype, with a zero if empty."""
    return array.astype(dtype) if len(array) else np.zeros(1, dtype)


class _Comparisons:
    """Comparisons of keys with limits, one for each node; the further comparisons of nodes stand behind.

    Attributes:
        features: the compared features.
        limits: the largest keys leading to ``low``.
        nan_above: whether NaN leads to ``high``.
        low: the successors for keys up to the limit: comparisons, or leaves as in :class:`Forest`.
        high: the successors for keys above the limit.
    """

    def __init__(self, forest: Forest, missing: NDArray) -> None:
        thresholds, modes, missing = forest.thresholds, forest.modes, missing.astype(np.bool_)
        yes, no = forest.true_children, forest.false_children
        upper, lower = _upper_limits(thresholds), _lower_limits(thresholds)
        is_open = (modes == _LESS) | (modes == _GREATER_EQUAL)
        is_reversed = (modes == _GREATER_EQUAL) | (modes == _GREATER)
        self.features = forest.features
        self.limits = np.where(is_open, lower, upper)
        self.limits[np.isnan(thresholds) & is_reversed] = np.iinfo(upper.dtype).max - 1
        self.low, self.high = np.where(is_reversed, no, yes), np.where(is_reversed, yes, no)
        self.nan_above = is_reversed == missing
        self._split_equal(modes, lower, yes, no, missing)
        self._split_sets(forest, missing)

    def _split_equal(self, modes: NDArray, lower: NDArray, yes: NDArray, no: NDArray, missing: NDArray) -> None:
        """Compare with the upper limit, then with the lower limit."""
        nodes = np.flatnonzero((modes == _EQUAL) | (modes == _NOT_EQUAL))
        is_equal = modes[nodes] == _EQUAL
        equal, other = np.where(is_equal, yes[nodes], no[nodes]), np.where(is_equal, no[nodes], yes[nodes])
        self.low[nodes], self.high[nodes] = len(self.features) + np.arange(len(nodes)), other
        self.nan_above[nodes] = ~(is_equal & missing[nodes])
        self._append(nodes, lower[nodes], other, equal, np.ones(len(nodes), np.bool_))

    def _split_sets(self, forest: Forest, missing: NDArray) -> None:
        """Search the members, sorted."""
        order = np.lexsort((forest.members, forest.member_nodes))
        owners, members = forest.member_nodes[order], forest.members[order]
        rows: list[_Row] = []
        nodes: list[int] = []
        count = len(self.features)
        least = int(np.iinfo(self.limits.dtype).min)  # the key of NaN alone
        starts = np.searchsorted(owners, np.arange(count + 1)).tolist()
        for node in np.flatnonzero(forest.modes == MEMBER).tolist():
            own = np.unique(members[starts[node] : starts[node + 1]])
            own = own[~np.isnan(own)]
            nan_found = bool(missing[node])
            search = _Search(int(forest.true_children[node]), int(forest.false_children[node]), nan_found, least)
            row = search.find(_upper_limits(own).tolist(), _lower_limits(own).tolist(), count, rows)
            self.limits[node], self.low[node], self.high[node], self.nan_above[node] = row
            nodes += [node] * (len(rows) - len(nodes))
        if rows:
            self._append(np.array(nodes), *map(np.array, zip(*rows, strict=True)))

    def _append(self, nodes: NDArray, limits: NDArray, low: NDArray, high: NDArray, nan_above: NDArray) -> None:
        """Add comparisons with the features of nodes."""
        self.features = np.append(self.features, self.features[nodes])
        self.limits = np.append(self.limits, limits.astype(self.limits.dtype))
        self.low, self.high = np.append(self.low, low), np.append(self.high, high)
        self.nan_above = np.append(self.nan_above, nan_above)


_Row = tuple[int, int, int, bool]
"""A comparison: the limit, the successors, and whether NaN leads to the second."""


@dataclass(frozen=True)
class _Search:
    """The search of a key among members.

    Attributes:
        found: the successor for members.
        absent: the successor for other keys.
        nan_found: whether NaN leads to ``found``.
        least: the least key, of NaN alone.
    """

    found: int
    absent: int
    nan_found: bool
    least: int

    def find(self, uppers: list[int], lowers: list[int], first: int, rows: list[_Row]) -> _Row:
        """Return the first comparison of the search among distinct, sorted members, given by their limits.

        The further comparisons are appended to ``rows``, the comparisons from number ``first`` on. NaN takes part in
        the search for the least member.
        """

        def add(row: _Row) -> int:
            rows.append(row)
            return first + len(rows) - 1

        if not uppers:
            return self.least, self.found, self.absent, not self.nan_found
        half = len(uppers) // 2
        if not half:
            return uppers[0], add((lowers[0], self.absent, self.found, True)), self.absent, not self.nan_found
        low = add(self.find(uppers[:half], lowers[:half], first, rows))
        high = add(self.find(uppers[half:], lowers[half:], first, rows))
        return lowers[half], low, high, False


def _upper_limits(thresholds: NDArray) -> NDArray:
    """Return the largest keys of floats up to the thresholds; no float's key for NaN."""
    bits = thresholds.view(f"i{thresholds.itemsize}")
    largest = np.iinfo(bits.dtype)
    keys = np.where(bits < 0, bits ^ largest.max, bits)
    return np.where(np.isnan(thresholds), largest.min, np.where(thresholds == 0, 0, keys)).astype(bits.dtype)


def _lower_limits(thresholds: NDArray) -> NDArray:
    """Return the largest keys of floats below the thresholds; no float's key for NaN."""
    upper = _upper_limits(thresholds)
    below_zero = -2  # -1 is the key of -0.0
    return np.where(np.isnan(thresholds), upper, np.where(thresholds == 0, below_zero, upper - 1)).astype(upper.dtype)


def _find_depths(comparisons: _Comparisons, roots: NDArray) -> NDArray | None:
    """Return the depth of each tree; ``None`` for a tree with a cycle."""
    count = len(comparisons.features)
    depths = np.zeros(len(roots), np.int64)
    trees = np.flatnonzero(roots >= 0)
    nodes = roots[trees]
    for level in range(1, count + 1):
        if not len(nodes):
            break
        depths[trees] = level
        below = np.concatenate([comparisons.low[nodes], comparisons.high[nodes]])
        keys = np.unique((np.tile(trees, 2) * count + below)[below >= 0])
        trees, nodes = np.divmod(keys, count)
    return None if len(nodes) else depths


def _order_links(roots: NDArray, comparisons: _Comparisons) -> NDArray:
    """Return the comparison or leaf of each record: roots, a further root for an even number, pairs."""
    pairs = np.stack([comparisons.low, comparisons.high], axis=1).reshape(-1)
    return np.concatenate([roots, roots[: len(roots) % 2], pairs])


def _write_records(links: NDArray, comparisons: _Comparisons, slots: NDArray, used: NDArray) -> NDArray:
    """Return the records of comparisons and leaves; ``used`` are the leaves, descending."""
    key_size = comparisons.limits.itemsize // 4
    records = np.zeros((len(links), 2 * key_size + 2), np.int32)
    is_leaf = links < 0
    inner = links[~is_leaf]
    limits = np.full(len(links), np.iinfo(comparisons.limits.dtype).max)
    limits[~is_leaf] = comparisons.limits[inner]
    records[:, :key_size] = limits.astype(comparisons.limits.dtype).view(np.int32).reshape(-1, key_size)
    records[~is_leaf, key_size] = slots[inner] * LANES
    first_pair = len(links) - 2 * len(comparisons.features)
    following = np.arange(len(links))
    following[~is_leaf] = first_pair + 2 * inner
    records[:, key_size + 1] = following * records.shape[1]
    records[is_leaf, key_size + 2] = len(used) - 1 - np.searchsorted(used[::-1], links[is_leaf])
    return records


def _order_weights(leaves: Leaves, ids: NDArray) -> tuple[NDArray, NDArray]:
    """Return the first weight of each leaf, with the number of weights behind, and the places of the weights."""
    rows = np.minimum(ids, len(leaves.counts))
    counts, firsts = np.append(leaves.counts, 0)[rows], np.append(leaves.starts, 0)[rows]
    starts = np.append(0, np.cumsum(counts))
    order = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], counts)
    return starts, order
