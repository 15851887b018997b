"""Linear models, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.mlops.tests.ml_nodes import check_node, refusal, run_node

X = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)
TRANSFORMS = pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
COEFFICIENTS = np.random.default_rng(1).uniform(-1, 1, 12).astype(np.float32)
ERROR = 2.0**-17


def _attrs(count: int, **more: Any) -> dict[str, Any]:
    scaled = COEFFICIENTS / 8  # PROBIT takes scores from 0 to 1
    return {"coefficients": scaled[: 3 * count].tolist(), "intercepts": [0.5, 0.4, 0.45, 0.6][:count], **more}


@TRANSFORMS
@pytest.mark.parametrize("targets", [1, 2, 4])
@pytest.mark.parametrize("with_intercepts", [True, False])
def test_regressors(transform: str, targets: int, with_intercepts: bool) -> None:
    attrs = _attrs(targets, targets=targets, post_transform=transform)
    if not with_intercepts:
        del attrs["intercepts"]
    x = X if with_intercepts or transform != "PROBIT" else np.abs(X)
    check_node("LinearRegressor", [x], error=ERROR, **attrs)


def test_regressors_of_a_vector_and_of_integers() -> None:
    """ONNX Runtime has float32 only."""
    attrs = _attrs(2, targets=2)
    (wanted,) = run_node("LinearRegressor", [X[:1]], **attrs)
    (result,) = run_node("LinearRegressor", [X[0]], **attrs)
    np.testing.assert_array_equal(result, wanted)
    numbers = np.round(X * 4)
    (wanted,) = run_node("LinearRegressor", [numbers], **attrs)
    for dtype in ("float64", "int64", "int32"):
        (result,) = run_node("LinearRegressor", [numbers.astype(dtype)], **attrs)
        np.testing.assert_array_equal(result, wanted)


@TRANSFORMS
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("labels", [[7, -3], [5, 9, 2], [1, 2, 3, 4]])
def test_classifiers(transform: str, dtype: str, labels: list[int]) -> None:
    x = X if dtype.startswith("float") else np.round(X)
    attrs = _attrs(len(labels), classlabels_ints=labels, post_transform=transform, multi_class=1)
    check_node("LinearClassifier", [x.astype(dtype)], 2, error=ERROR, **attrs)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[7, 8], None])
def test_classifiers_of_a_single_score(transform: str, labels: list[int] | None) -> None:
    attrs: dict[str, Any] = {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.1], "post_transform": transform}
    attrs |= {} if labels is None else {"classlabels_ints": labels}
    check_node("LinearClassifier", [X], 2, error=ERROR, **attrs)


def test_zeros_under_softmax_zero() -> None:
    coefficients = np.eye(3).ravel().tolist()
    x = np.array([[0, 1, 2], [0, 0, -1], [1e-8, 5, 3]], np.float32)
    attrs = {"coefficients": coefficients, "intercepts": [0.0] * 3, "classlabels_ints": [1, 2, 3]}
    check_node("LinearClassifier", [x], 2, error=ERROR, post_transform="SOFTMAX_ZERO", **attrs)


def test_classifiers_without_intercepts() -> None:
    attrs = _attrs(3, classlabels_ints=[5, 6, 7])
    with_zeros = {**attrs, "intercepts": [0.0] * 3}
    del attrs["intercepts"]
    for result, wanted in zip(
        run_node("LinearClassifier", [X], 2, **attrs), run_node("LinearClassifier", [X], 2, **with_zeros), strict=True
    ):
        np.testing.assert_array_equal(result, wanted)


def test_malformed_models() -> None:
    assert refusal("LinearRegressor", [X], coefficients=[1.0, 2.0]) == (
        "attribute `coefficients` has the wrong size for 1 scores; got 2, expected 1 times 3"
    )
    assert refusal("LinearRegressor", [X], coefficients=[1.0] * 3, intercepts=[1.0, 2.0]) == (
        "attribute `intercepts` has the wrong size; got 2, expected 1"
    )
    assert refusal("LinearRegressor", [X], coefficients=[1.0] * 3, targets=0) == (
        "attribute `targets` is not positive; got 0"
    )
    assert refusal("LinearRegressor", [X[None]], coefficients=[1.0] * 3) == (
        "the samples are not a matrix; got (1, 6, 3), expected (samples, features)"
    )
    assert refusal("LinearRegressor", [X], coefficients=[1.0] * 3, post_transform="CUBE").startswith(
        "attribute `post_transform` is unknown; got CUBE, expected NONE, "
    )
    assert refusal("LinearClassifier", [X], 2, coefficients=[1.0] * 6, intercepts=[0.0, 0.0], classlabels_ints=[1]) == (
        "has another number of labels than scores; got 1, expected 2"
    )
    attrs: dict[str, Any] = {"coefficients": [1.0] * 3, "intercepts": [0.0], "classlabels_ints": [1, 2]}
    assert "PROBIT for two classes" in refusal("LinearClassifier", [X], 2, post_transform="PROBIT", **attrs)
