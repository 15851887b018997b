"""Random ensembles of trees, as attributes of the operators, and a slow evaluation of trees."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

NDArray = npt.NDArray[Any]

COMPARISONS = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)
NAMES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
NAN = float("nan")


@dataclass
class Tree:
    """A node with two children, or a leaf with weights by target."""

    feature: int = 0
    mode: int = 0
    threshold: float = 0.0
    members: list[float] = field(default_factory=list)
    missing: bool = False
    children: tuple[Tree, Tree] | None = None
    weights: dict[int, float] = field(default_factory=dict)

    def reach(self, row: NDArray) -> Tree:
        """Return the leaf of a sample."""
        if self.children is None:
            return self
        value = row[self.feature]
        if self.mode == 6:
            is_true = not math.isnan(value) and float(value) in self.members
        else:
            is_true = bool(COMPARISONS[self.mode](value, row.dtype.type(self.threshold)))
        is_true = is_true or (self.missing and math.isnan(value))
        return self.children[0 if is_true else 1].reach(row)


@dataclass
class Forest:
    """Random trees on integer features, and their attributes.

    Args:
        seed: of the random numbers.
        targets: the number of targets.
        modes: the modes of nodes.
        depth: the largest depth.
        weights_per_leaf: the least and largest number of targets with a weight.
        least_weight: the least weight; the largest is 1.
        own_targets: the targets with weights; all by default.
        num_trees: the number of trees.
    """

    seed: int
    targets: int = 1
    modes: tuple[int, ...] = (0,)
    depth: int = 5
    weights_per_leaf: tuple[int, int] = (1, 1)
    least_weight: float = -1.0
    own_targets: tuple[int, ...] = ()
    num_trees: int = 7
    num_features: int = 4

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.trees = [self._tree(self.depth if index else 0) for index in range(self.num_trees)]

    def _tree(self, depth: int) -> Tree:
        rng = self._rng
        if depth == 0 or rng.random() < 0.15:
            own = self.own_targets or tuple(range(self.targets))
            low, high = self.weights_per_leaf
            count = min(len(own), int(rng.integers(low, high + 1)))
            chosen = sorted(rng.choice(own, count, replace=False).tolist())
            return Tree(weights={t: round(float(rng.uniform(self.least_weight, 1)) * 64) / 64 for t in chosen})
        return Tree(
            int(rng.integers(self.num_features)),
            int(rng.choice(self.modes)),
            float(rng.integers(-3, 4)),
            rng.choice(np.arange(-3, 4), int(rng.integers(1, 4)), replace=False).astype(float).tolist(),
            bool(rng.random() < 0.4),
            (self._tree(depth - 1), self._tree(depth - 1)),
        )

    def samples(self, count: int, dtype: str = "float32") -> NDArray:
        """Return samples of small integers, equal to thresholds at times; floats may be NaN."""
        x = self._rng.integers(-4, 5, (count, self.num_features)).astype(dtype)
        if dtype.startswith("float"):
            x[self._rng.random(x.shape) < 0.15] = NAN
        return x

    def evaluate(self, x: NDArray, aggregate: str = "sum") -> NDArray:
        """Return the aggregated weights in float64, sample by sample."""
        result = np.zeros((len(x), self.targets))
        for index, row in enumerate(x):
            leaves = [tree.reach(row) for tree in self.trees]
            for target in range(self.targets):
                weights = [leaf.weights[target] for leaf in leaves if target in leaf.weights]
                if weights:
                    joined = {"min": min, "max": max}.get(aggregate, sum)(weights)
                    result[index, target] = joined / (self.num_trees if aggregate == "average" else 1)
        return result

    def named(self, prefix: str) -> dict[str, Any]:
        """Return the attributes of versions 1 and 3; ``prefix`` is ``target`` or ``class``."""
        keys = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
        nodes: dict[str, list[Any]] = {key: [] for key in (*keys, "missing_value_tracks_true")}
        votes: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}

        def add(tree: Tree, number: int, first: int) -> int:
            place = len(nodes["nodeids"])
            name = place - first
            is_leaf = tree.children is None
            mode = "LEAF" if is_leaf else NAMES[tree.mode]
            row = (number, name, tree.feature, tree.threshold, mode, 0, 0, int(tree.missing))
            for values, value in zip(nodes.values(), row, strict=True):
                values.append(value)
            if tree.children is not None:
                nodes["truenodeids"][place], nodes["falsenodeids"][place] = (
                    add(child, number, first) for child in tree.children
                )
            for target, weight in tree.weights.items():
                for values, value in zip(votes.values(), (number, name, target, weight), strict=True):
                    values.append(value)
            return name

        for number, tree in enumerate(self.trees):
            add(tree, number, len(nodes["nodeids"]))
        result = {f"nodes_{key}": value for key, value in nodes.items()}
        return result | {f"{prefix}_{key}": value for key, value in votes.items()}

    def listed(self, dtype: str = "float32") -> dict[str, Any]:
        """Return the attributes of version 5; each leaf must have a single weight."""
        keys = ("featureids", "modes", "splits", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
        nodes: dict[str, list[Any]] = {key: [] for key in (*keys, "missing_value_tracks_true")}
        leaves: dict[str, list[Any]] = {"targetids": [], "weights": []}
        sets: dict[int, list[float]] = {}

        def add(tree: Tree) -> tuple[int, int]:
            if tree.children is None:
                ((target, weight),) = tree.weights.items()
                leaves["targetids"].append(target)
                leaves["weights"].append(weight)
                return len(leaves["weights"]) - 1, 1
            place = len(nodes["modes"])
            row = (tree.feature, tree.mode, tree.threshold, 0, 0, 0, 0, int(tree.missing))
            for values, value in zip(nodes.values(), row, strict=True):
                values.append(value)
            if tree.mode == 6:
                sets[place] = tree.members
            for kind, child in zip(("true", "false"), tree.children, strict=True):
                nodes[f"{kind}nodeids"][place], nodes[f"{kind}leafs"][place] = add(child)
            return place, 0

        roots = []
        for tree in self.trees:
            stump = tree if tree.children is not None else Tree(children=(tree, tree))
            roots.append(add(stump)[0])
        result: dict[str, Any] = {f"nodes_{key}": value for key, value in nodes.items()}
        result["nodes_modes"] = np.array(nodes["modes"], np.uint8)
        result["nodes_splits"] = np.array(nodes["splits"], dtype)
        result |= {"tree_roots": roots, "n_targets": self.targets, "leaf_targetids": leaves["targetids"]}
        result["leaf_weights"] = np.array(leaves["weights"], dtype)
        if sets:
            members = [member for place in sorted(sets) for member in (*sets[place], NAN)]
            result["membership_values"] = np.array(members, dtype)
        return result
