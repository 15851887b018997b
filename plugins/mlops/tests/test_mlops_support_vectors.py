"""Support vector machines, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_mlops.coupling_kernel import couple_probabilities

from plugins.mlops.tests.ml_nodes import check_node, refusal, run_node

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (8, 3)).astype(np.float32)
KERNELS = pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
TRANSFORMS = pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
PARAMETERS: dict[str, Any] = {"kernel_params": [0.5, 0.25, 3.0]}
ERROR = 2.0**-16


@KERNELS
@TRANSFORMS
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors(kernel: str, transform: str, one_class: int) -> None:
    rng = np.random.default_rng(1)
    attrs: dict[str, Any] = {
        "coefficients": rng.uniform(-1, 1, 5).tolist(),
        "support_vectors": rng.uniform(-1, 1, 15).tolist(),
        "n_supports": 5,
        "rho": [0.1],
    }
    check_node(
        "SVMRegressor", [X], error=ERROR, kernel_type=kernel, post_transform=transform, one_class=one_class,
        **attrs, **PARAMETERS,
    )  # fmt: skip


def test_linear_regressors() -> None:
    """Without support vectors, the kernel has no effect."""
    attrs: dict[str, Any] = {"coefficients": [1.0, -2.0, 0.5], "rho": [0.1], "kernel_type": "RBF"}
    check_node("SVMRegressor", [X], error=ERROR, **attrs, **PARAMETERS)


def test_samples_near_support_vectors() -> None:
    """Distances do not cancel."""
    x = (1000 + X).astype(np.float32)
    attrs: dict[str, Any] = {
        "coefficients": [1.0] * 8,
        "support_vectors": x.ravel().tolist(),
        "n_supports": 8,
        "rho": [0.0],
    }
    check_node("SVMRegressor", [x], error=ERROR, kernel_type="RBF", kernel_params=[4.0, 0.0, 0.0], **attrs)


def _classifier(labels: list[int], sizes: list[int], seed: int = 2, *, low: float = -1) -> dict[str, Any]:
    rng, count = np.random.default_rng(seed), len(labels)
    return {
        "classlabels_ints": labels,
        "vectors_per_class": sizes,
        "support_vectors": rng.uniform(-1, 1, 3 * sum(sizes)).tolist(),
        "coefficients": rng.uniform(low, 1, (count - 1) * sum(sizes)).tolist(),
        "rho": rng.uniform(-0.3, 0.3, count * (count - 1) // 2).tolist(),
    }


@KERNELS
@TRANSFORMS
@pytest.mark.parametrize("sizes", [[2, 1], [2, 1, 3], [1, 2, 2, 1]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_classifiers(kernel: str, transform: str, sizes: list[int], dtype: str) -> None:
    x = X.astype(dtype) if dtype.startswith("float") else np.round(2 * X).astype(dtype)
    attrs = _classifier([7, 9, -1, 4][: len(sizes)], sizes)
    if len(sizes) == 2 and transform == "PROBIT":
        assert "PROBIT for two classes" in refusal("SVMClassifier", [x], 2, post_transform=transform, **attrs)
        return
    check_node(
        "SVMClassifier", [x], 2, error=ERROR, kernel_type=kernel, post_transform=transform, **attrs, **PARAMETERS
    )


@KERNELS
@TRANSFORMS
@pytest.mark.parametrize("sizes", [[2, 1], [2, 1, 3], [1, 2, 2, 1]])
def test_probabilities(kernel: str, transform: str, sizes: list[int]) -> None:
    attrs, count = _classifier([7, 9, -1, 4][: len(sizes)], sizes), len(sizes)
    rng, num_pairs = np.random.default_rng(3), count * (count - 1) // 2
    attrs |= {"prob_a": rng.uniform(-2, 0, num_pairs).tolist(), "prob_b": rng.uniform(-1, 1, num_pairs).tolist()}
    check_node(
        "SVMClassifier", [X], 2, error=2**-14, kernel_type=kernel, post_transform=transform, **attrs, **PARAMETERS
    )


@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("sizes", [[2, 1], [2, 2, 2]])
def test_signs_of_coefficients_have_no_effect_on_votes(low: float, sizes: list[int]) -> None:
    attrs = _classifier([0, 1, 2][: len(sizes)], sizes, 4, low=low)
    check_node("SVMClassifier", [X], 2, error=ERROR, **attrs, **PARAMETERS)


@TRANSFORMS
@pytest.mark.parametrize("labels", [[7], [7, 8], [7, 8, 9]])
@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("prob_a", [None, [1.0]])
def test_linear_classifiers(transform: str, labels: list[int], low: float, prob_a: list[float] | None) -> None:
    rng = np.random.default_rng(5)
    attrs: dict[str, Any] = {"coefficients": rng.uniform(low, 0.5, 3 * len(labels)).tolist(), "rho": [0.1]}
    attrs |= {} if prob_a is None else {"prob_a": prob_a, "prob_b": [0.0]}
    attrs |= {"classlabels_ints": labels, "post_transform": transform}
    check_node("SVMClassifier", [X], 2, error=ERROR, **attrs, **PARAMETERS)


def test_coupling_finds_consistent_probabilities() -> None:
    """Probabilities of pairs made from probabilities of classes determine the latter, up to the rule for stopping."""
    rng = np.random.default_rng(6)
    for count in (2, 3, 6):
        classes = rng.uniform(0.1, 1, (50, count))
        classes /= classes.sum(axis=1, keepdims=True)
        first, second = np.triu_indices(count, 1)
        pairs = classes[:, first] / (classes[:, first] + classes[:, second])
        result = couple_probabilities(pairs, num_classes=count)
        np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(result, classes, atol=0.05)
        nothing = couple_probabilities(pairs[:0], num_classes=count)
        assert nothing.shape == (0, count)


def test_malformed_machines() -> None:
    attrs: dict[str, Any] = {"coefficients": [1.0] * 3, "rho": [0.1]}
    assert refusal("SVMRegressor", [X], kernel_type="COSINE", **attrs).startswith(
        "attribute `kernel_type` is unknown; got COSINE, expected LINEAR, "
    )
    assert refusal("SVMRegressor", [X], kernel_params=[1.0], **attrs) == (
        "attribute `kernel_params` has the wrong size; got 1, expected 3"
    )
    assert refusal("SVMRegressor", [X], coefficients=[1.0], rho=[0.0]) == (
        "attribute `coefficients` has the wrong size; got 1, expected 3"
    )
    assert refusal("SVMRegressor", [X], coefficients=[1.0] * 3) == (
        "attribute `rho` has the wrong size; got 0, expected 1"
    )
    assert refusal("SVMRegressor", [X], n_supports=2, support_vectors=[1.0] * 5, **attrs) == (
        "attribute `support_vectors` has the wrong size for 2 vectors; got 5, expected 2 times 3"
    )
    assert refusal("SVMClassifier", [X], 2, **attrs) == "lacks labels"
    good = _classifier([1, 2, 3], [1, 1, 1])
    assert refusal("SVMClassifier", [X], 2, **{**good, "vectors_per_class": [1, 2]}) == (
        "attribute `vectors_per_class` has the wrong size; got (1, 2), expected 3 sizes"
    )
    assert refusal("SVMClassifier", [X], 2, **{**good, "coefficients": [1.0]}) == (
        "attribute `coefficients` has the wrong size; got 1, expected 6"
    )
    assert refusal("SVMClassifier", [X], 2, prob_a=[1.0], prob_b=[1.0], **good) == (
        "attributes `prob_a` and `prob_b` have the wrong size; got (1, 1), expected 3"
    )
    assert refusal("SVMClassifier", [X], 2, coefficients=[1.0], rho=[0.0], classlabels_ints=[1, 2]) == (
        "attribute `coefficients` has the wrong size; got 1, expected 2 times 3"
    )


def test_one_sample_is_a_vector() -> None:
    attrs = _classifier([7, 8, 9], [2, 1, 1])
    for result, wanted in zip(
        run_node("SVMClassifier", [X[0]], 2, **attrs), run_node("SVMClassifier", [X[:1]], 2, **attrs), strict=True
    ):
        np.testing.assert_array_equal(result, wanted)
