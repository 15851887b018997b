"""Importers of ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.ir import Value

from byoc_mlops.scores import (
    TRANSFORMS,
    cast_to,
    choose_label,
    emit_binary_scores,
    read_float_array,
    read_labels,
    read_matrix,
    read_transform,
    transform_scores,
)
from byoc_mlops.tree_kernel import AGGREGATES
from byoc_mlops.tree_operands import Trees, check_range, read_listed_trees, read_named_trees

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]

NDArray = npt.NDArray[Any]

_AGGREGATE_NAMES = {"SUM": "sum", "AVERAGE": "average", "MIN": "min", "MAX": "max"}
_AGGREGATE_NUMBERS = ("average", "sum", "min", "max")


def _import_regressor(node: NodeContext) -> Sequence[Imported]:
    """Import a regressor; base values are added to all targets, in ONNX Runtime only to targets with weights."""
    name, targets = node.attr_string("aggregate_function", "SUM"), node.attr_int("n_targets", 1)
    if name not in _AGGREGATE_NAMES:
        names = ", ".join(_AGGREGATE_NAMES)
        raise node.error("attribute `aggregate_function` is unknown", got=name, expected=names)
    trees, transform, base = read_named_trees(node, "target"), read_transform(node), _read_base(node, targets)
    check_range(node, "target_ids", trees.weight_targets, targets)
    x, _ = read_matrix(node, None)
    scores = trees.emit(node, x, targets, _AGGREGATE_NAMES[name])
    return (transform_scores(node, cast_to(node, _add_base(node, scores, base), "float32"), transform),)


def _read_base(node: NodeContext, *sizes: int) -> NDArray:
    base = read_float_array(node, "base_values")
    if len(base) not in (0, *sizes):
        expected = " or ".join(map(str, (0, *sizes)))
        raise node.error("attribute `base_values` has the wrong size", got=len(base), expected=expected)
    return base


def _add_base(node: NodeContext, scores: Value, base: NDArray) -> Value:
    if not len(base):
        return scores
    return node.emit("add", scores, node.constant(base.astype(to_numpy(node.tensor_type(scores).dtype))))


def _import_classifier(node: NodeContext) -> Sequence[Imported]:
    """Import a classifier by the rules of ONNX Runtime.

    A class without weights in the reached leaves is not chosen, unless there are base values. If all weights belong to
    one of two classes, the first class is chosen by the sign of the score, or by 0.5 without negative weights. With
    weights for both classes, the class with the higher score is chosen; ONNX Runtime chooses by the sign of the second
    score, and returns 1 or 0 in place of the label.
    """
    labels, transform = read_labels(node, "classlabels_int64s"), read_transform(node)
    if not labels:
        raise node.error("lacks labels")
    trees, count = read_named_trees(node, "class"), len(labels)
    check_range(node, "class_ids", trees.weight_targets, count)
    voted = np.unique(trees.weight_targets)
    base = _read_base(node, *((1, 2) if count == 2 else (count,)))
    x, _ = read_matrix(node, None)
    if count == 1:
        return _single_class(node, _add_base(node, trees.emit(node, x, 1), base), labels, transform)
    if count == 2 and len(voted) == 1:
        return _two_classes(node, trees, x, base, labels, transform)
    if len(base) not in (0, count):
        raise node.error("attribute `base_values` has the wrong size", got=len(base), expected=f"0 or {count}")
    scores = _add_base(node, trees.emit(node, x, count), base)
    candidates: Value = scores
    if not len(base) and not trees.always_votes(count):
        zero, lowest = (node.constant(np.asarray(n, node.tensor_type(scores).dtype)) for n in (0, -np.inf))
        has_votes = node.emit("greater", trees.emit_counts(node, x, count), zero)
        candidates = node.emit("where", has_votes, scores, lowest)
    label = choose_label(node, node.emit("argmax", candidates, axis=1, keepdims=False), labels)
    return label, transform_scores(node, cast_to(node, scores, "float32"), transform)


def _exceeds(node: NodeContext, score: Value, bound: float) -> Value:
    """Return 1 for scores ``(N, 1)`` above a bound, else 0, as ``(N,)``."""
    limit = node.constant(np.asarray(bound, node.tensor_type(score).dtype))
    is_above = node.reshape(node.emit("greater", score, limit), node.shape_of(score)[:1])
    return node.emit("cast", is_above, dtype="int64")


def _single_class(
    node: NodeContext, score: Value, labels: Sequence[int] | Sequence[str], transform: str
) -> tuple[Imported, Imported]:
    """Return 1 for positive scores, else 0.

    Raises:
        FrontendError: the label is not 1.
    """
    if labels != (1,):
        raise node.error("has a single class with another label than 1", got=labels[0], expected=1)
    return _exceeds(node, score, 0.0), transform_scores(node, cast_to(node, score, "float32"), transform)


def _two_classes(
    node: NodeContext, trees: Trees, x: Value, base: NDArray, labels: Sequence[int] | Sequence[str], transform: str
) -> tuple[Imported, Imported]:
    """Return label and scores from the weights of a single one of two classes.

    Weights of the first class are scores of the second class; the first class then has the complement. With weights of
    the second class, the score of the first class is 0.

    Raises:
        FrontendError: base values have no meaning.
    """
    is_second = bool(trees.weight_targets.any())
    if len(base) > (0 if is_second else 1):
        raise node.error("has base values for a class without weights", got=len(base), expected=0 if is_second else 1)
    is_signed = bool((trees.weights < 0).any())
    single = replace(trees, weight_targets=np.zeros_like(trees.weight_targets))
    score = _add_base(node, single.emit(node, x, 1), base)
    label = choose_label(node, _exceeds(node, score, 0.0 if is_signed else 0.5), labels)
    score = cast_to(node, score, "float32")
    if not is_second:
        return label, emit_binary_scores(node, score, transform, is_signed=is_signed)
    nothing = node.emit("multiply", score, node.constant(np.float32(0)))
    return label, transform_scores(node, node.emit("concat", nothing, score, axis=1), transform)


def _import_tree_ensemble(node: NodeContext) -> Sequence[Imported]:
    """Import the operator of version 5: leaves apart from nodes, sets, results in the dtype of the samples.

    The transforms have the numbers of the standard; ONNX Runtime swaps SOFTMAX and LOGISTIC.
    """
    aggregate, transform = node.attr_int("aggregate_function", 1), node.attr_int("post_transform", 0)
    targets = node.attr_int("n_targets", 1)
    for name, number, limit in (
        ("aggregate_function", aggregate, len(AGGREGATES)),
        ("post_transform", transform, len(TRANSFORMS)),
    ):
        if not 0 <= number < limit:
            raise node.error(f"attribute `{name}` is unknown", got=number, expected=f"0 to {limit - 1}")
    if not is_float(node.type(0).dtype):
        raise node.error("the samples are not floats", got=node.type(0).dtype)
    trees = read_listed_trees(node, targets)
    x, _ = read_matrix(node, None)
    scores = trees.emit(node, x, targets, _AGGREGATE_NUMBERS[aggregate])
    return (transform_scores(node, scores, TRANSFORMS[transform]),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "TreeEnsemble": _import_tree_ensemble,
    "TreeEnsembleClassifier": _import_classifier,
    "TreeEnsembleRegressor": _import_regressor,
}
"""The module's importers, by ONNX name."""
