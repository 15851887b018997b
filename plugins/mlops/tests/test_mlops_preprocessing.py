"""Preparation of features, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.mlops.tests.ml_nodes import check_node, refusal, run_node

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
X = np.array([[1, -2, 3, 0], [0, 0, 0, 0], [-5, -1, -2, -1], [0, -4, 0, -1], [7, 2, 2, 2]])
NAN = float("nan")


@DTYPES
def test_columns_are_chosen(dtype: str) -> None:
    for x in (X, X[0], np.stack([X, -X])):
        for indices in ([2, 0], [[1, 1, 3]], 2):
            check_node("ArrayFeatureExtractor", [x.astype(dtype), np.array(indices)])


@DTYPES
def test_numbers_become_bits(dtype: str) -> None:
    """ONNX Runtime has float32 only."""
    check_node("Binarizer", [X.astype(np.float32)], threshold=0.5)
    (wanted,) = run_node("Binarizer", [X.astype(np.float32)])
    (result,) = run_node("Binarizer", [X.astype(dtype)], threshold=0.0)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, wanted)


@DTYPES
def test_features_are_scaled(dtype: str) -> None:
    x = X.astype(dtype)
    check_node("Scaler", [x], error=2**-22, scale=[2.0, 3.5, 0.1, 1.0], offset=[0.5, 1.0, -1.0, 0.0])
    check_node("Scaler", [x], error=2**-22, scale=[0.3], offset=[0.5])


@DTYPES
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_normalised(norm: str, dtype: str) -> None:
    check_node("Normalizer", [X.astype(dtype)], error=2**-22, norm=norm)
    check_node("Normalizer", [X[0].astype(dtype)], error=2**-22, norm=norm)


@pytest.mark.parametrize("replaced", [0.0, -1.0, NAN])
@pytest.mark.parametrize("imputed", [[9.0], [9.0, 8.0, 7.0, 6.5]])
def test_missing_floats_are_replaced(replaced: float, imputed: list[float]) -> None:
    x = X.astype(np.float32)
    x[0, 1] = x[3, 3] = NAN
    check_node("Imputer", [x], imputed_value_floats=imputed, replaced_value_float=replaced)
    (result,) = run_node("Imputer", [x.astype(np.float64)], imputed_value_floats=imputed, replaced_value_float=replaced)
    (wanted,) = run_node("Imputer", [x], imputed_value_floats=imputed, replaced_value_float=replaced)
    np.testing.assert_array_equal(result, wanted)


def test_missing_integers_are_replaced() -> None:
    check_node("Imputer", [X], imputed_value_int64s=[9, 8, 7, 6], replaced_value_int64=0)
    check_node("Imputer", [X], imputed_value_int64s=[9], replaced_value_int64=-1)
    (result,) = run_node("Imputer", [X.astype(np.int32)], imputed_value_int64s=[9], replaced_value_int64=-1)
    np.testing.assert_array_equal(result, np.where(X == -1, 9, X))


@DTYPES
def test_features_are_joined(dtype: str) -> None:
    x = X.astype(dtype)
    check_node("FeatureVectorizer", [x, x[:, :2]], inputdimensions=[4, 2])
    check_node("FeatureVectorizer", [x, x], inputdimensions=[2, 6])
    for single in ([x], [x, x]):
        (result,) = run_node("FeatureVectorizer", single)
        np.testing.assert_array_equal(result, np.concatenate(single, axis=1).astype(np.float32))


def test_vectors_are_rows() -> None:
    x = np.arange(3, dtype=np.float32)
    (result,) = run_node("FeatureVectorizer", [np.ones((1, 2), np.float32), np.zeros((1, 1), np.float32)])
    np.testing.assert_array_equal(result, [[1, 1, 0]])
    assert refusal("FeatureVectorizer", [x], dynamic=True, inputdimensions=[3]) == (
        "the number of columns of input 0 is unknown; got n_i0, expected 3"
    )


@pytest.mark.parametrize(
    ("op_type", "attrs", "message"),
    [
        (
            "Scaler",
            {"scale": [1.0, 2.0], "offset": [0.0]},
            "attribute `scale` has the wrong size; got 2, expected 1 or 4",
        ),
        ("Scaler", {"scale": [1.0]}, "lacks attribute `offset`"),
        ("Normalizer", {"norm": "L3"}, "attribute `norm` is unknown; got L3, expected MAX, L1, L2"),
        ("Imputer", {"imputed_value_floats": [1.0]}, "lacks attribute `imputed_value_int64s` for elements of int64"),
        (
            "FeatureVectorizer",
            {"inputdimensions": [1, 2]},
            "attribute `inputdimensions` has the wrong size; got 2, expected 1",
        ),
        (
            "FeatureVectorizer",
            {"inputdimensions": [0]},
            "the number of columns of input 0 is unknown; got 4, expected 0",
        ),
    ],
)
def test_malformed_nodes(op_type: str, attrs: dict[str, Any], message: str) -> None:
    assert refusal(op_type, [X], **attrs) == message


def test_malformed_ranks() -> None:
    assert "neither a vector nor a matrix" in refusal("Normalizer", [X[None]])
    assert "neither a vector nor a matrix" in refusal("FeatureVectorizer", [X[None]])
    assert refusal("ArrayFeatureExtractor", [np.array(1.0), np.array([0])]) == (
        "chooses from a scalar; got (), expected one axis or more"
    )
