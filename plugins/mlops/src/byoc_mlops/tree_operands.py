"""The operands of an ensemble of trees, read from the attributes of the operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Value

from byoc_mlops.scores import read_float_array
from byoc_mlops.tree_kernel import MEMBER

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import NodeContext

__all__ = ["Trees", "check_range", "read_listed_trees", "read_named_trees"]

NDArray = npt.NDArray[Any]

_MODE_NAMES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEAF = "LEAF"


@dataclass(frozen=True)
class Trees:
    """The operands of ``mlops.tree_ensemble`` but the samples, in order, as arrays."""

    features: NDArray
    thresholds: NDArray
    modes: NDArray
    true_children: NDArray
    false_children: NDArray
    missing_true: NDArray
    roots: NDArray
    member_nodes: NDArray
    members: NDArray
    weight_leaves: NDArray
    weight_targets: NDArray
    weights: NDArray

    def emit(self, node: NodeContext, x: Value, num_targets: int, aggregate: str = "sum") -> Value:
        """Return the aggregated weights, in the dtype of the samples ``(N, F)``."""
        dtype = to_numpy(node.tensor_type(x).dtype)
        reals, flags = ("thresholds", "members", "weights"), ("missing_true",)
        operands = [
            array.astype(dtype if name in reals else np.bool_ if name in flags else np.int64)
            for name, array in vars(self).items()
        ]
        attrs = {"num_targets": num_targets, "aggregate": aggregate}
        return node.emit("mlops.tree_ensemble", x, *map(node.constant, operands), **attrs)

    def emit_counts(self, node: NodeContext, x: Value, num_targets: int) -> Value:
        """Return the number of weights added for each target."""
        return replace(self, weights=np.ones_like(self.weights)).emit(node, x, num_targets)

    def always_votes(self, num_targets: int) -> bool:
        """Return whether each leaf has a weight for each target."""
        leaves = -1 - np.concatenate([a[a < 0] for a in (self.true_children, self.false_children, self.roots)])
        pairs = np.unique(self.weight_leaves * num_targets + self.weight_targets)
        votes = np.unique(leaves)[:, np.newaxis] * num_targets + np.arange(num_targets)
        return bool(np.isin(votes, pairs).all())


def _check_lengths(node: NodeContext, arrays: Mapping[str, NDArray]) -> None:
    """Check that attributes have equal numbers of elements.

    Raises:
        FrontendError: the numbers differ.
    """
    (first, size), *rest = ((name, len(array)) for name, array in arrays.items())
    for name, other in rest:
        if other != size:
            raise node.error(f"attributes `{first}` and `{name}` have different sizes", got=other, expected=size)


def check_range(node: NodeContext, name: str, array: NDArray, limit: int) -> None:
    """Check that numbers are not negative, and below a limit.

    Raises:
        FrontendError: a number lies outside.
    """
    outside = (array < 0) | (array >= limit)
    if outside.any():
        raise node.error(
            f"attribute `{name}` has a number outside", got=int(array[outside][0]), expected=f"0 to {limit - 1}"
        )


def _read_ints(node: NodeContext, name: str) -> NDArray:
    return np.array(node.attr_ints(name) if node.has_attr(name) else (), np.int64)


def _check_features(node: NodeContext, trees: Trees) -> None:
    num_features = node.shape(0)[-1]
    if isinstance(num_features, int):
        check_range(node, "nodes_featureids", trees.features, num_features)


class _NamedNodes:
    """Nodes with the names ``(tree, node)`` of the operators of versions 1 and 3."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self.trees, self.ids = _read_ints(node, "nodes_treeids"), _read_ints(node, "nodes_nodeids")
        _check_lengths(node, {"nodes_treeids": self.trees, "nodes_nodeids": self.ids})
        if not len(self.ids):
            raise node.error("has no nodes")
        self.least = int(self.ids.min())
        self.span = int(self.ids.max()) - self.least + 1
        self.tree_names = np.unique(self.trees)
        keys = self._keys(self.trees, self.ids)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        if (self.keys[1:] == self.keys[:-1]).any():
            raise node.error("a node is listed twice")

    def _keys(self, trees: NDArray, ids: NDArray) -> NDArray:
        return np.asarray(np.searchsorted(self.tree_names, trees) * self.span + (ids - self.least))

    def find(self, name: str, trees: NDArray, ids: NDArray) -> NDArray:
        """Return the positions of nodes in the lists.

        Raises:
            FrontendError: a node is unknown.
        """
        keys = self._keys(trees, ids)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_known = (self.keys[positions] == keys) & np.isin(trees, self.tree_names)
        is_known &= (ids >= self.least) & (ids < self.least + self.span)
        if not is_known.all():
            first = int(np.flatnonzero(~is_known)[0])
            got = f"node {int(ids[first])} of tree {int(trees[first])}"
            raise self.node.error(f"attribute `{name}` names an unknown node", got=got)
        return np.asarray(self.order[positions])


def read_named_trees(node: NodeContext, prefix: str) -> Trees:
    """Return the trees of ``TreeEnsembleRegressor`` (``target``) or ``TreeEnsembleClassifier`` (``class``).

    Raises:
        FrontendError: sizes, names or modes are wrong, or a tree has not exactly one root.
    """
    nodes = _NamedNodes(node)
    node.ignore_attrs("nodes_hitrates", "nodes_hitrates_as_tensor")  # for speed
    features, thresholds = _read_ints(node, "nodes_featureids"), read_float_array(node, "nodes_values")
    names = node.attr_strings("nodes_modes")
    modes = np.array([_find_mode(node, name) for name in names], np.int64)
    children = {name: _read_ints(node, name) for name in ("nodes_truenodeids", "nodes_falsenodeids")}
    missing = _read_missing(node, len(nodes.ids))
    lists = {"nodes_featureids": features, "nodes_values": thresholds, "nodes_modes": modes, **children}
    _check_lengths(node, {"nodes_nodeids": nodes.ids, **lists, "nodes_missing_value_tracks_true": missing})
    is_inner = modes >= 0
    inner = np.flatnonzero(is_inner)
    found = {name: nodes.find(name, nodes.trees[inner], ids[inner]) for name, ids in children.items()}
    is_root = np.ones(len(modes), np.bool_)
    for positions in found.values():
        is_root[positions] = False
    roots = np.flatnonzero(is_root)
    if not np.array_equal(np.sort(nodes.trees[roots]), nodes.tree_names):
        raise node.error("a tree has not exactly one root", got=f"{len(roots)} roots of {len(nodes.tree_names)} trees")
    numbers = np.where(is_inner, np.cumsum(is_inner) - 1, 0 - np.cumsum(~is_inner))
    weight_trees, weight_nodes = (_read_ints(node, f"{prefix}_{name}") for name in ("treeids", "nodeids"))
    targets, weights = _read_ints(node, f"{prefix}_ids"), read_float_array(node, f"{prefix}_weights")
    weight_lists = (weight_trees, weight_nodes, targets, weights)
    weight_names = [f"{prefix}_{name}" for name in ("treeids", "nodeids", "ids", "weights")]
    _check_lengths(node, dict(zip(weight_names, weight_lists, strict=True)))
    leaves = numbers[nodes.find(f"{prefix}_nodeids", weight_trees, weight_nodes)]
    if (leaves >= 0).any():
        raise node.error(f"attribute `{prefix}_nodeids` names an inner node", got=int(weight_nodes[leaves >= 0][0]))
    trees = Trees(
        features[inner],
        thresholds[inner],
        modes[inner],
        numbers[found["nodes_truenodeids"]],
        numbers[found["nodes_falsenodeids"]],
        missing[inner],
        numbers[roots],
        np.zeros(0, np.int64),
        np.zeros(0),
        -1 - leaves,
        targets,
        weights,
    )
    _check_features(node, trees)
    return trees


def _find_mode(node: NodeContext, name: str) -> int:
    """Return the number of a mode; -1 for a leaf."""
    if name == _LEAF:
        return -1
    if name not in _MODE_NAMES:
        raise node.error("attribute `nodes_modes` is unknown", got=name, expected=", ".join((*_MODE_NAMES, _LEAF)))
    return _MODE_NAMES.index(name)


def _read_missing(node: NodeContext, count: int) -> NDArray:
    flags = _read_ints(node, "nodes_missing_value_tracks_true")
    return flags.astype(np.bool_) if len(flags) else np.zeros(count, np.bool_)


def read_listed_trees(node: NodeContext, targets: int) -> Trees:
    """Return the trees of ``TreeEnsemble``.

    Raises:
        FrontendError: sizes, indices or modes are wrong.
    """
    node.ignore_attrs("nodes_hitrates")
    features, modes = _read_ints(node, "nodes_featureids"), node.attr_array("nodes_modes").reshape(-1).astype(np.int64)
    thresholds, missing = node.attr_array("nodes_splits").reshape(-1), _read_missing(node, len(features))
    children, is_leaf = (
        {kind: _read_ints(node, f"nodes_{kind}{suffix}") for kind in ("true", "false")}
        for suffix in ("nodeids", "leafs")
    )
    leaf_targets, leaf_weights = _read_ints(node, "leaf_targetids"), node.attr_array("leaf_weights").reshape(-1)
    roots = _read_ints(node, "tree_roots")
    _check_lengths(
        node,
        {
            "nodes_featureids": features,
            "nodes_modes": modes,
            "nodes_splits": thresholds,
            "nodes_missing_value_tracks_true": missing,
            **{f"nodes_{kind}nodeids": ids for kind, ids in children.items()},
            **{f"nodes_{kind}leafs": flags for kind, flags in is_leaf.items()},
        },
    )
    _check_lengths(node, {"leaf_targetids": leaf_targets, "leaf_weights": leaf_weights})
    numbers = {}
    for kind, ids in children.items():
        flags = is_leaf[kind] != 0
        check_range(node, f"nodes_{kind}nodeids", ids[flags], len(leaf_weights))
        check_range(node, f"nodes_{kind}nodeids", ids[~flags], len(features))
        numbers[kind] = np.where(flags, -1 - ids, ids)
    check_range(node, "nodes_modes", modes, MEMBER + 1)
    check_range(node, "leaf_targetids", leaf_targets, targets)
    check_range(node, "tree_roots", roots, len(features))
    member_nodes, members = _read_sets(node, np.flatnonzero(modes == MEMBER))
    trees = Trees(
        features,
        thresholds,
        modes,
        numbers["true"],
        numbers["false"],
        missing,
        roots,
        member_nodes,
        members,
        np.arange(len(leaf_weights)),
        leaf_targets,
        leaf_weights,
    )
    _check_features(node, trees)
    return trees


def _read_sets(node: NodeContext, set_nodes: NDArray) -> tuple[NDArray, NDArray]:
    """Return pairs of a node and a member: the sets of all nodes with a set, in order, each followed by NaN.

    Raises:
        FrontendError: there are fewer or more sets than such nodes.
    """
    has_members = node.has_attr("membership_values")
    members = node.attr_array("membership_values").reshape(-1) if has_members else np.zeros(0)
    is_end = np.isnan(members)
    count = int(is_end.sum()) + (len(members) > 0 and not is_end[-1])
    if count != len(set_nodes):
        problem = "attribute `membership_values` has another number of sets than nodes ask for"
        raise node.error(problem, got=count, expected=len(set_nodes))
    if not count:
        return np.zeros(0, np.int64), np.zeros(0)
    owners = set_nodes[np.minimum(np.cumsum(is_end) - is_end, count - 1)]
    return owners[~is_end], members[~is_end]
