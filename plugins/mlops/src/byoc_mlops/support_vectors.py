"""Importers of support vector machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import Value

from byoc_mlops.linear import emit_linear
from byoc_mlops.scores import (
    cast_to,
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

__all__ = ["IMPORTERS"]

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class _Kernel:
    """A kernel function of samples and support vectors.

    Attributes:
        node: the node.
        kind: the function.
        gamma: the factor of products, or of distances.
        coef0: the addend of products.
        degree: the exponent of ``POLY``.
    """

    node: NodeContext
    kind: str
    gamma: float
    coef0: float
    degree: float

    @classmethod
    def read(cls, node: NodeContext) -> _Kernel:
        """Read the attributes of a node.

        Raises:
            FrontendError: the kernel is unknown, or has another number of parameters.
        """
        kind, kinds = node.attr_string("kernel_type", "LINEAR"), ("LINEAR", "POLY", "RBF", "SIGMOID")
        if kind not in kinds:
            raise node.error("attribute `kernel_type` is unknown", got=kind, expected=", ".join(kinds))
        parameters = read_float_array(node, "kernel_params")
        if len(parameters) not in (0, 3):
            raise node.error("attribute `kernel_params` has the wrong size", got=len(parameters), expected=3)
        gamma, coef0, degree = map(float, parameters if len(parameters) else (0, 0, 0))
        return cls(node, kind, gamma, coef0, degree)

    def emit(self, x: Value, vectors: Floats) -> Value:
        """Return the kernel of samples and vectors: ``(N, F), (V, F) -> (N, V)``, in float32.

        Distances are computed from products, in float64: these cancel for samples near a vector.
        """
        emit = self.node.emit
        if self.kind == "RBF":
            x, vectors = cast_to(self.node, x, "float64"), vectors.astype(np.float64)
        products: Value = emit("nn.dense", x, self.node.constant(vectors))
        if self.kind == "LINEAR":
            return products
        if self.kind == "RBF":
            own = emit("sum", emit("multiply", x, x), axis=(1,), keepdims=True)
            squares = emit("add", own, self.node.constant((vectors**2).sum(axis=1)))
            distances = emit("subtract", squares, self._scaled(products, 2.0))
            distances = emit("maximum", distances, self.node.constant(np.float64(0)))
            return cast_to(self.node, emit("exp", self._scaled(distances, -self.gamma)), "float32")
        shifted = emit("add", self._scaled(products, self.gamma), self.node.constant(np.float32(self.coef0)))
        if self.kind == "SIGMOID":
            return emit("tanh", shifted)
        return emit("power", shifted, self.node.constant(np.float32(self.degree)))

    def _scaled(self, value: Value, factor: float) -> Value:
        constant = self.node.constant(np.asarray(factor, self.node.tensor_type(value).dtype))
        return self.node.emit("multiply", value, constant)


def _read_vectors(node: NodeContext, count: int, num_features: object) -> Floats:
    """Return the support vectors ``(count, F)``.

    Raises:
        FrontendError: the vectors have other sizes.
    """
    vectors = read_float_array(node, "support_vectors")
    width, rest = divmod(len(vectors), count)
    if rest or not width or (isinstance(num_features, int) and width != num_features):
        problem = f"attribute `support_vectors` has the wrong size for {count} vectors"
        raise node.error(problem, got=len(vectors), expected=f"{count} times {num_features}")
    return vectors.reshape(count, width)


def _read_sized(node: NodeContext, name: str, size: int) -> Floats:
    """Return the first numbers of a list of floats.

    Raises:
        FrontendError: the list is shorter.
    """
    numbers = read_float_array(node, name)
    if len(numbers) < size:
        raise node.error(f"attribute `{name}` has the wrong size", got=len(numbers), expected=size)
    return numbers[:size]


def _import_regressor(node: NodeContext) -> Sequence[Imported]:
    """Import a regressor, or a detector of outliers: -1 for outliers, else 1. No transform has an effect, as in ORT."""
    read_transform(node)
    kernel, count = _Kernel.read(node), node.attr_int("n_supports", 0)
    x, num_features = read_matrix(node)
    coefficients, rho = read_float_array(node, "coefficients"), _read_sized(node, "rho", 1)
    if count > 0:
        x = kernel.emit(x, _read_vectors(node, count, num_features))
        num_features = count
    node.ignore_attrs("support_vectors")  # of linear models
    if isinstance(num_features, int) and len(coefficients) != num_features:
        problem = "attribute `coefficients` has the wrong size"
        raise node.error(problem, got=len(coefficients), expected=num_features)
    score = emit_linear(node, x, coefficients[np.newaxis], rho)
    if not node.attr_flag("one_class"):
        return (score,)
    positive, inside, outside = (node.constant(np.float32(number)) for number in (0, 1, -1))
    return (node.emit("where", node.emit("greater", score, positive), inside, outside),)


def _import_classifier(node: NodeContext) -> Sequence[Imported]:
    labels, transform = read_labels(node, "classlabels_ints"), read_transform(node)
    if not labels:
        raise node.error("lacks labels")
    sizes = node.attr_ints("vectors_per_class") if node.has_attr("vectors_per_class") else ()
    if not sum(sizes):
        return _import_linear_classifier(node, labels, transform)
    count = len(labels)
    if len(sizes) != count or min(sizes) < 0 or count < 2:
        raise node.error("attribute `vectors_per_class` has the wrong size", got=sizes, expected=f"{count} sizes")
    num_pairs = count * (count - 1) // 2
    x, num_features = read_matrix(node)
    vectors = _read_vectors(node, sum(sizes), num_features)
    coefficients = _read_sized(node, "coefficients", (count - 1) * sum(sizes)).reshape(count - 1, sum(sizes))
    kernels = _Kernel.read(node).emit(x, vectors)
    pairs = emit_linear(node, kernels, _pair_coefficients(sizes, coefficients), _read_sized(node, "rho", num_pairs))
    label = choose_label(node, _vote(node, pairs, count), labels)
    slopes, shifts = (read_float_array(node, name) for name in ("prob_a", "prob_b"))
    if len(slopes):
        if not len(slopes) == len(shifts) == num_pairs:
            problem = "attributes `prob_a` and `prob_b` have the wrong size"
            raise node.error(problem, got=(len(slopes), len(shifts)), expected=num_pairs)
        return label, transform_scores(node, _emit_probabilities(node, pairs, slopes, shifts, count), transform)
    if count == 2:
        return label, emit_binary_scores(node, pairs, transform, is_signed=transform == "NONE")
    return label, transform_scores(node, pairs, transform)


def _pair_coefficients(sizes: Sequence[int], coefficients: Floats) -> Floats:
    """Return the coefficients of all vectors for each pair of classes, ``(K * (K - 1) / 2, V)``.

    Class ``i`` against ``j`` counts the vectors of ``i`` by row ``j - 1``, and the vectors of ``j`` by row ``i``, as in
    libsvm.
    """
    starts = np.cumsum((0, *sizes))
    rows = []
    for first in range(len(sizes)):
        for second in range(first + 1, len(sizes)):
            row = np.zeros(starts[-1], np.float32)
            of_first, of_second = (slice(starts[k], starts[k + 1]) for k in (first, second))
            row[of_first], row[of_second] = coefficients[second - 1, of_first], coefficients[first, of_second]
            rows.append(row)
    return np.stack(rows)


def _vote(node: NodeContext, pairs: Value, count: int) -> Value:
    """Return the class with the most pairs won, ``(N,)``; of several the first."""
    first, second = np.triu_indices(count, 1)
    signs = np.zeros((count, len(first)), np.float32)
    signs[first, np.arange(len(first))], signs[second, np.arange(len(first))] = 1, -1
    lost = np.bincount(second, minlength=count).astype(np.float32)
    is_first = node.emit("greater", pairs, node.constant(np.float32(0)))
    votes = emit_linear(node, node.emit("cast", is_first, dtype="float32"), signs, lost)
    return node.emit("argmax", votes, axis=1, keepdims=False)


def _emit_probabilities(node: NodeContext, pairs: Value, slopes: Floats, shifts: Floats, count: int) -> Value:
    """Return probabilities ``(N, K)`` by Platt's sigmoid of each pair and pairwise coupling."""
    emit = node.emit
    exponents = emit("add", emit("multiply", pairs, node.constant(slopes)), node.constant(shifts))
    return emit("mlops.couple_probabilities", emit("sigmoid", emit("negative", exponents)), num_classes=count)


def _import_linear_classifier(
    node: NodeContext, labels: Sequence[int] | Sequence[str], transform: str
) -> Sequence[Imported]:
    """Import a classifier without support vectors: a linear model for each class, with a common intercept.

    Of two classes, ONNX Runtime chooses the second if the highest score is above 0 (0.5 without negative coefficients),
    else the class of the highest score; of more classes always the latter.
    """
    _Kernel.read(node)
    node.ignore_attrs("kernel_type", "support_vectors", "prob_b", "vectors_per_class")
    x, num_features = read_matrix(node)
    coefficients, rho = read_float_array(node, "coefficients"), _read_sized(node, "rho", 1)
    width, rest = divmod(len(coefficients), len(labels))
    if rest or not width or (isinstance(num_features, int) and width != num_features):
        problem = "attribute `coefficients` has the wrong size"
        raise node.error(problem, got=len(coefficients), expected=f"{len(labels)} times {num_features}")
    scores = emit_linear(node, x, coefficients.reshape(len(labels), width), rho)
    index: Value = node.emit("argmax", scores, axis=1, keepdims=False)
    if len(labels) == 2 and not len(read_float_array(node, "prob_a")):
        highest, second = node.emit("max", scores, axis=(1,), keepdims=False), node.constant(np.int64(1))
        if (coefficients >= 0).all():
            is_second = node.emit("greater_equal", highest, node.constant(np.float32(0.5)))
        else:
            is_second = node.emit("greater", highest, node.constant(np.float32(0)))
        index = node.emit("where", is_second, second, index)
    node.ignore_attrs("prob_a")
    return choose_label(node, index, labels), transform_scores(node, scores, transform)


IMPORTERS: Mapping[str, NodeImporter] = {
    "SVMClassifier": _import_classifier,
    "SVMRegressor": _import_regressor,
}
"""The module's importers, by ONNX name."""
