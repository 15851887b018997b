"""Importers of linear models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import Value

from byoc_mlops.scores import (
    choose_label,
    emit_binary_scores,
    read_float_array,
    read_labels,
    read_matrix,
    read_transform,
    transform_scores,
)

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS", "emit_linear"]


def emit_linear(node: NodeContext, x: Value, coefficients: npt.NDArray[Any], intercepts: npt.NDArray[Any]) -> Value:
    """Return ``x @ coefficients.T + intercepts``, without an addition of no intercepts.

    Shapes: ``(N, F), (E, F), (E,) or (0,) -> (N, E)``.
    """
    product = node.emit("nn.dense", x, node.constant(coefficients))
    return node.emit("add", product, node.constant(intercepts)) if len(intercepts) else product


def _read_model(node: NodeContext, count: int) -> tuple[Value, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return samples ``(N, F)``, coefficients ``(count, F)`` and intercepts.

    Raises:
        FrontendError: the numbers of coefficients, intercepts and features do not fit.
    """
    x, num_features = read_matrix(node)
    coefficients, intercepts = (read_float_array(node, name) for name in ("coefficients", "intercepts"))
    width, rest = divmod(len(coefficients), count)
    if rest or not width or (isinstance(num_features, int) and num_features != width):
        problem = f"attribute `coefficients` has the wrong size for {count} scores"
        raise node.error(problem, got=len(coefficients), expected=f"{count} times {num_features}")
    if len(intercepts) not in (0, count):
        raise node.error("attribute `intercepts` has the wrong size", got=len(intercepts), expected=count)
    return x, coefficients.reshape(count, width), intercepts


def _import_regressor(node: NodeContext) -> Sequence[Imported]:
    targets = node.attr_int("targets", 1)
    if targets < 1:
        raise node.error("attribute `targets` is not positive", got=targets)
    return (transform_scores(node, emit_linear(node, *_read_model(node, targets)), read_transform(node)),)


def _import_classifier(node: NodeContext) -> Sequence[Imported]:
    """Import a classifier; the label is the class of the highest score before the transform.

    A single score is the score of the second of two classes: chosen if above 0.
    """
    node.ignore_attrs("multi_class")  # the kind of training
    labels, transform = read_labels(node, "classlabels_ints"), read_transform(node)
    count = len(node.attr_floats("intercepts")) if node.has_attr("intercepts") else 0
    count = count or _count_scores(node, len(labels))
    if len(labels) not in (0, count) and (count, len(labels)) != (1, 2):
        raise node.error("has another number of labels than scores", got=len(labels), expected=count)
    scores = emit_linear(node, *_read_model(node, count))
    if count > 1:
        best = node.emit("argmax", scores, axis=1, keepdims=False)
        label = choose_label(node, best, labels) if labels else best
        return label, transform_scores(node, scores, transform)
    is_second = node.emit("greater", scores, node.constant(np.zeros((), np.float32)))
    index = node.emit("cast", node.reshape(is_second, node.shape_of(scores)[:1]), dtype="int64")
    if len(labels) != 2:
        return choose_label(node, index, (0, 1)), transform_scores(node, scores, transform)
    return choose_label(node, index, labels), emit_binary_scores(node, scores, transform, is_signed=False)


def _count_scores(node: NodeContext, num_labels: int) -> int:
    """Return the number of scores of a classifier without intercepts."""
    num_features = node.shape(0)[-1]
    if not isinstance(num_features, int) or not num_features:
        return max(num_labels, 1)
    return max(len(node.attr_floats("coefficients")) // num_features, 1)


IMPORTERS: Mapping[str, NodeImporter] = {
    "LinearClassifier": _import_classifier,
    "LinearRegressor": _import_regressor,
}
"""The module's importers, by ONNX name."""
