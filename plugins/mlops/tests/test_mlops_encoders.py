"""Encoders of categories and labels, against ONNX Runtime and dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.transform import evaluate_function
from byoc_mlops.key_kernel import key_index
from hypothesis import given
from hypothesis import strategies as st

from plugins.mlops.tests.ml_nodes import check_node, import_model, node_model, refusal, run_node

NAN = float("nan")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("categories", [[3, 1, 0], [3, 1, 0, 1]])
def test_categories_become_ones(dtype: str, categories: list[int]) -> None:
    """ONNX Runtime has no int32."""
    for x in (np.array([1, 3, 0, -2]), np.array([[1, 3], [7, 0]]), np.array([1.5, -0.5, 3.9])):
        if dtype == "int32":
            (result,) = run_node("OneHotEncoder", [x.astype(dtype)], cats_int64s=categories)
            (wanted,) = run_node("OneHotEncoder", [x.astype("int32").astype("int64")], cats_int64s=categories)
            np.testing.assert_array_equal(result, wanted)
        else:
            check_node("OneHotEncoder", [x.astype(dtype)], cats_int64s=categories, zeros=1)


def test_unknown_categories_may_be_errors() -> None:
    known = np.array([[1, 3], [3, 0]])
    check_node("OneHotEncoder", [known], cats_int64s=[3, 1, 0, 1], zeros=0)
    module = import_model(node_model("OneHotEncoder", [known], cats_int64s=[3, 1, 0], zeros=0))
    with pytest.raises(ExecutionError, match="an index lies outside axis 0"):
        evaluate_function(module, "main", [known + 4])


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    "attrs",
    [
        {"keys_int64s": [1, 2, 1], "values_floats": [5.0, 6.0, 7.0]},
        {"keys_int64s": [1, 2], "values_int64s": [5, 6], "default_int64": 4},
        {"keys_int64s": [1, 2], "values_floats": [5.0, 6.5], "default_float": 0.5, "default_int64": 3},
        {"keys_int64s": [4], "values_int64s": [5]},
    ],
)
def test_integers_are_mapped(version: int, attrs: dict[str, Any]) -> None:
    check_node("LabelEncoder", [np.array([[1, 2, 3], [9, 4, 2]])], version=version, **attrs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"keys_floats": [1.0, NAN, 0.0, -0.0, 1.0], "values_int64s": [5, 6, 7, 8, 9]},
        {"keys_floats": [1.0, 2.5], "values_floats": [5.0, NAN], "default_float": -2.0},
    ],
)
def test_floats_are_mapped(attrs: dict[str, Any]) -> None:
    check_node("LabelEncoder", [np.array([1, 0, -0.0, NAN, 2.5, 3], np.float32)], version=4, **attrs)


@pytest.mark.parametrize(("version", "found"), [(2, -1), (3, -1), (4, 6), (5, 6)])
def test_keys_of_nan(version: int, found: int) -> None:
    """Before version 4, ONNX Runtime finds no NaN. The bits of a NaN have no effect."""
    x = np.array([0x3F800000, 0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    attrs: dict[str, Any] = {"keys_floats": [1.0, NAN, 3.0], "values_int64s": [5, 6, 7]}
    (result,) = check_node("LabelEncoder", [x], version=version, **attrs)
    assert result.tolist() == [5, found, found, found]


@pytest.mark.parametrize("key", ["float32", "float64", "int64", "int32", "int16"])
@pytest.mark.parametrize("value", ["float32", "float64", "int64", "int32", "int16"])
@pytest.mark.parametrize("with_default", [True, False])
def test_tensors_map(key: str, value: str, with_default: bool) -> None:
    """ONNX Runtime has few of the pairs."""
    attrs: dict[str, Any] = {"keys_tensor": np.array([3, 1], key), "values_tensor": np.array([30, 10], value)}
    attrs |= {"default_tensor": np.array([7], value)} if with_default else {}
    x = np.array([1, 2, 3], key)
    pairs = {("int64", "int64"), ("int64", "float64"), ("float64", "float64"), ("float32", "float32")}
    if (key, value) in pairs:
        check_node("LabelEncoder", [x], version=4, **attrs)
    (result,) = run_node("LabelEncoder", [x], version=4, **attrs)
    unknown = 7 if with_default else -0.0 if value.startswith("float") else -1
    assert result.dtype == np.dtype(value)
    np.testing.assert_array_equal(result, [10, unknown, 30])


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-6, 6)), st.sampled_from(["int64", "float64"]))
def test_the_search_equals_a_dictionary(keys: list[int], values: list[int], dtype: str) -> None:
    expected = [keys.index(value) if value in keys else len(keys) for value in values]
    result = key_index(np.array(values, dtype), np.array(keys, dtype))
    assert result.dtype == np.int64
    assert result.tolist() == expected


X = np.array([1, 2])


@pytest.mark.parametrize(
    ("op_type", "attrs", "message"),
    [
        (
            "OneHotEncoder",
            {"cats_strings": ["a"]},
            "has categories of text for numbers; expected `cats_int64s`",
        ),
        ("OneHotEncoder", {}, "lacks attribute `cats_int64s`"),
        (
            "LabelEncoder",
            {"keys_strings": ["a"], "values_int64s": [1]},
            "has keys of another dtype than the input; got strings, expected int64",
        ),
        (
            "LabelEncoder",
            {"keys_int64s": [1, 2], "values_int64s": [1]},
            "has different numbers of keys and values; got 2 and 1",
        ),
        (
            "LabelEncoder",
            {"keys_floats": [1.0], "values_int64s": [1]},
            "has keys of another dtype than the input; got float32, expected int64",
        ),
        (
            "LabelEncoder",
            {"keys_int64s": [1]},
            (
                "has not exactly one list of values; got 0, expected one of `values_int64s`, `values_floats`, "
                "`values_strings`, `values_tensor`"
            ),
        ),
        (
            "LabelEncoder",
            {
                "keys_int64s": [1],
                "values_tensor": np.array([1]),
                "default_tensor": np.array([1, 2]),
            },
            "attribute `default_tensor` is not a number of the values' dtype; got int64",
        ),
    ],
)
def test_malformed_nodes(op_type: str, attrs: dict[str, Any], message: str) -> None:
    assert refusal(op_type, [X], version=4, **attrs) == message
