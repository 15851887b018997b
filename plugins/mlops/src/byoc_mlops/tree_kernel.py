"""The reference kernel of an ensemble of decision trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ExecutionError

__all__ = ["AGGREGATES", "MEMBER", "MODES", "Forest", "Leaves", "tree_ensemble"]

NDArray = npt.NDArray[Any]

AGGREGATES = ("sum", "average", "min", "max")
"""The ways of joining the weights of a target."""

MODES: tuple[Callable[[NDArray, NDArray], NDArray], ...] = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)
"""The comparisons of a feature with a threshold, by the number of the mode."""

MEMBER = len(MODES)
"""The mode of a node asking whether a feature is in the node's set."""

_CHUNK = 1 << 16
"""The number of weights aggregated at once: the arrays of a step stay in the cache."""


def tree_ensemble(
    x: NDArray,
    features: NDArray,
    thresholds: NDArray,
    modes: NDArray,
    true_children: NDArray,
    false_children: NDArray,
    missing_true: NDArray,
    roots: NDArray,
    member_nodes: NDArray,
    members: NDArray,
    weight_leaves: NDArray,
    weight_targets: NDArray,
    weights: NDArray,
    *,
    num_targets: int,
    aggregate: str,
) -> NDArray:
    """Return the aggregated weights of the leaves reached by each sample; weights are added in float64.

    All samples go through all trees side by side, a level of the trees at a time.

    Shapes: ``x`` ``(N, F)``; six arrays of nodes ``(M,)``; ``roots`` ``(T,)``; two arrays of members ``(S,)``; three
    arrays of weights ``(W,)``. The result is ``(N, num_targets)``.

    Cost: ``O(N * T * depth + M + W * log(W))``.

    Raises:
        ExecutionError: an index lies outside, a mode is unknown, or nodes form a cycle.
    """
    leaves = Leaves(weight_leaves, weight_targets, weights, num_targets, aggregate)
    forest = Forest(
        features, thresholds, modes, true_children, false_children, missing_true, roots, member_nodes, members
    )
    forest.check(x.shape[1])
    result = np.empty((len(x), num_targets), x.dtype)
    step = max(1, int(_CHUNK // max(1.0, len(roots) * leaves.mean_count)))
    for start in range(0, len(x), step):
        rows = x[start : start + step]
        result[start : start + step] = leaves.join(forest.find_leaves(rows))
    return result


class Forest:
    """The inner nodes of trees.

    A child ``c`` is a node if not negative, else the leaf ``-1 - c``; so is a root.
    """

    def __init__(
        self,
        features: NDArray,
        thresholds: NDArray,
        modes: NDArray,
        true_children: NDArray,
        false_children: NDArray,
        missing_true: NDArray,
        roots: NDArray,
        member_nodes: NDArray,
        members: NDArray,
    ) -> None:
        self.features, self.thresholds, self.modes = features, thresholds, modes
        self.true_children, self.false_children = true_children, false_children
        self.missing_true = missing_true if missing_true.any() else None
        self.roots = roots
        self.used_modes = [int(mode) for mode in np.unique(modes)]
        self.member_nodes, self.members = member_nodes, members
        self.sets = _Sets(member_nodes, members)

    def check(self, num_features: int) -> None:
        """Check all indices.

        Raises:
            ExecutionError: an index lies outside, or a mode is unknown.
        """
        count = len(self.features)
        for name, found, least, limit in (
            ("features", self.features, 0, num_features),
            ("modes", self.modes, 0, MEMBER + 1),
            ("true_children", self.true_children, None, count),
            ("false_children", self.false_children, None, count),
            ("roots", self.roots, None, count),
            ("member_nodes", self.sets.nodes, 0, count),
        ):
            _check_range(name, found, least, limit)

    def find_leaves(self, x: NDArray) -> NDArray:
        """Return the leaf reached by each sample in each tree: ``(N, F) -> (N, T)``.

        Raises:
            ExecutionError: nodes form a cycle.
        """
        num_samples, num_features = x.shape
        values = np.ascontiguousarray(x).reshape(-1)
        states = np.tile(self.roots, num_samples)
        moving = np.flatnonzero(states >= 0)
        nodes, rows = states[moving], moving // max(len(self.roots), 1) * num_features
        for _ in range(len(self.features)):
            if not len(moving):
                break
            is_true = self._decide(values[rows + self.features[nodes]], nodes)
            nodes = np.where(is_true, self.true_children[nodes], self.false_children[nodes])
            states[moving] = nodes
            is_node = nodes >= 0
            moving, nodes, rows = moving[is_node], nodes[is_node], rows[is_node]
        if len(moving):
            raise ExecutionError("op `mlops.tree_ensemble`", "the nodes of a tree form a cycle", got=int(nodes[0]))
        return (-1 - states).reshape(num_samples, len(self.roots))

    def _decide(self, values: NDArray, nodes: NDArray) -> NDArray:
        """Return the decisions of nodes about values; NaN follows the comparison, or the node's flag if set."""
        if len(self.used_modes) == 1:
            result = self._compare(self.used_modes[0], values, nodes)
        else:
            result = np.empty(len(values), np.bool_)
            modes = self.modes[nodes]
            for mode in self.used_modes:
                indices = np.flatnonzero(modes == mode)
                result[indices] = self._compare(mode, values[indices], nodes[indices])
        if self.missing_true is not None:
            result |= np.isnan(values) & self.missing_true[nodes]
        return result

    def _compare(self, mode: int, values: NDArray, nodes: NDArray) -> NDArray:
        return self.sets.contain(values, nodes) if mode == MEMBER else MODES[mode](values, self.thresholds[nodes])


class _Sets:
    """The sets of nodes, as pairs of a node and a member."""

    def __init__(self, nodes: NDArray, members: NDArray) -> None:
        self.nodes = nodes
        self._distinct = np.unique(members[~np.isnan(members)])
        is_number = ~np.isnan(members)
        self._pairs = np.sort(self._number_pairs(nodes[is_number], members[is_number])[0])

    def _number_pairs(self, nodes: NDArray, values: NDArray) -> tuple[NDArray, NDArray]:
        """Return a number for each pair of a node and a value, and whether the value is a member of any set."""
        ranks = np.searchsorted(self._distinct, values)
        inside = ranks < len(self._distinct)
        ranks = np.where(inside, ranks, 0)
        is_member = inside & (self._distinct[ranks] == values) if len(self._distinct) else inside
        return nodes * max(len(self._distinct), 1) + ranks, is_member

    def contain(self, values: NDArray, nodes: NDArray) -> NDArray:
        """Return whether each value is in the set of its node; NaN never is. Cost: ``O(log(members))`` for a value."""
        if not len(self._pairs):
            return np.zeros(len(values), np.bool_)
        pairs, is_member = self._number_pairs(nodes, values)
        found = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.asarray(is_member & (self._pairs[found] == pairs))


class Leaves:
    """The weights of leaves; a leaf has any number of weights, each for a target."""

    def __init__(self, leaves: NDArray, targets: NDArray, weights: NDArray, num_targets: int, aggregate: str) -> None:
        _check_range("weight_leaves", leaves, 0, None)
        _check_range("weight_targets", targets, 0, num_targets)
        order = np.argsort(leaves, kind="stable")
        self.targets, self.weights = targets[order], weights[order].astype(np.float64)
        self.counts = np.bincount(leaves)
        self.starts = np.cumsum(self.counts) - self.counts
        self.num_targets, self.aggregate = num_targets, aggregate

    @property
    def mean_count(self) -> float:
        """The number of weights of a leaf, on average."""
        return len(self.weights) / max(len(self.counts), 1)

    def join(self, leaves: NDArray) -> NDArray:
        """Return the aggregated weights of the leaves of samples: ``(N, T) -> (N, num_targets)``; 0 without weights."""
        num_samples, num_trees = leaves.shape
        reached = np.minimum(leaves.reshape(-1), len(self.counts))
        counts = np.append(self.counts, 0)[reached]
        starts = np.append(self.starts, 0)[reached]
        ends = np.cumsum(counts)
        entries = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
        samples = np.repeat(np.repeat(np.arange(num_samples), num_trees), counts)
        slots, weights = samples * self.num_targets + self.targets[entries], self.weights[entries]
        size = num_samples * self.num_targets
        if self.aggregate in ("sum", "average"):
            result: NDArray = np.bincount(slots, weights, minlength=size)
            result = result / max(num_trees, 1) if self.aggregate == "average" else result
        else:
            is_least = self.aggregate == "min"
            result = np.full(size, np.inf if is_least else -np.inf)
            (np.minimum if is_least else np.maximum).at(result, slots, weights)
            result[np.bincount(slots, minlength=size) == 0] = 0
        return result.reshape(num_samples, self.num_targets)


def _check_range(name: str, found: NDArray, least: int | None, limit: int | None) -> None:
    outside = np.zeros(found.shape, np.bool_)
    if least is not None:
        outside |= found < least
    if limit is not None:
        outside |= found >= limit
    if outside.any():
        low = "" if least is None else f"{least} or more"
        high = "" if limit is None else f"below {limit}"
        raise ExecutionError(
            f"op `mlops.tree_ensemble`, operand `{name}`",
            "an index lies outside",
            got=int(found[outside][0]),
            expected=", ".join(filter(None, (low, high))),
        )
