"""Ensembles of trees, against ONNX Runtime and a slow evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.transform import evaluate_function
from byoc_mlops.ops import OPS
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.mlops.tests.ml_nodes import check_node, import_model, node_model, refusal, run_node, run_onnxruntime
from plugins.mlops.tests.random_trees import Forest

ALL_MODES = (0, 1, 2, 3, 4, 5)
TRANSFORMS = pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
NUMBERS = {"AVERAGE": 0, "SUM": 1, "MIN": 2, "MAX": 3}
AGGREGATES = pytest.mark.parametrize("aggregate", NUMBERS)
ERROR = 2.0**-17


@AGGREGATES
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("modes", [(0,), (1,), ALL_MODES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("with_base", [False, True])
def test_regressors(aggregate: str, targets: int, modes: tuple[int, ...], dtype: str, with_base: bool) -> None:
    """ONNX Runtime adds base values only to targets with weights, the definition to all targets."""
    forest = Forest(1, targets, modes, weights_per_leaf=(targets if with_base else 1, 3))
    attrs: dict[str, Any] = {"n_targets": targets, "aggregate_function": aggregate, **forest.named("target")}
    base = [0.5, -0.25, 0.125][:targets]
    x = forest.samples(40, dtype)
    attrs |= {"base_values": base} if with_base else {}
    (result,) = check_node("TreeEnsembleRegressor", [x], error=ERROR, **attrs)
    expected = forest.evaluate(x, aggregate.lower()) + (base if with_base else 0)
    np.testing.assert_allclose(result, expected, rtol=ERROR, atol=ERROR)


@TRANSFORMS
@pytest.mark.parametrize("targets", [1, 3])
def test_transforms_of_regressors(transform: str, targets: int) -> None:
    forest = Forest(2, targets, least_weight=0.0)
    attrs: dict[str, Any] = {"n_targets": targets, "aggregate_function": "AVERAGE", "post_transform": transform}
    check_node("TreeEnsembleRegressor", [forest.samples(40)], error=2**-14, **attrs, **forest.named("target"))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integers(dtype: str) -> None:
    """ONNX Runtime has no regressors of integers."""
    forest = Forest(3, 3, ALL_MODES)
    x = forest.samples(40, dtype)
    attrs = forest.named("target") | {"n_targets": 3}
    (result,) = run_node("TreeEnsembleRegressor", [x], **attrs)
    (wanted,) = run_node("TreeEnsembleRegressor", [x.astype(np.float64)], **attrs)
    np.testing.assert_array_equal(result, wanted)
    attrs = forest.named("class") | {"classlabels_int64s": [4, 5, 6]}
    check_node("TreeEnsembleClassifier", [x], 2, error=ERROR, **attrs)


def test_base_values_of_targets_without_weights() -> None:
    forest = Forest(1, 3, num_trees=2)
    attrs = {"n_targets": 3, "base_values": [0.5, -0.25, 0.125], **forest.named("target")}
    x = forest.samples(40)
    (result,) = run_node("TreeEnsembleRegressor", [x], **attrs)
    np.testing.assert_allclose(result, forest.evaluate(x) + np.array([0.5, -0.25, 0.125]), rtol=ERROR, atol=ERROR)


def test_tensors_of_float64() -> None:
    forest = Forest(4, 2, weights_per_leaf=(2, 2))
    attrs: dict[str, Any] = forest.named("target") | {"n_targets": 2}
    for name in ("nodes_values", "target_weights"):
        attrs[f"{name}_as_tensor"] = np.array(attrs.pop(name)) / 3
    attrs["base_values_as_tensor"] = np.array([0.1, 0.2])
    x = forest.samples(40, "float64") / 3
    check_node("TreeEnsembleRegressor", [x], error=2**-22, **attrs)


@TRANSFORMS
@pytest.mark.parametrize("least_weight", [-1.0, 0.0])
@pytest.mark.parametrize("weights_per_leaf", [(0, 2), (1, 1), (3, 3)])
@pytest.mark.parametrize("with_base", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_classifiers(
    transform: str, least_weight: float, weights_per_leaf: tuple[int, int], with_base: bool, dtype: str
) -> None:
    """Of three classes; the first trees are single leaves, so some classes have no weights for some samples."""
    forest = Forest(5, 3, weights_per_leaf=weights_per_leaf, least_weight=least_weight, num_trees=2)
    attrs: dict[str, Any] = {"classlabels_int64s": [7, -3, 5], "post_transform": transform, **forest.named("class")}
    attrs |= {"base_values": [0.01, 0.02, 0.03]} if with_base else {}
    x = forest.samples(60, dtype)
    if transform == "PROBIT":  # scores are in range
        attrs["class_weights"] = [abs(weight) / 8 for weight in attrs["class_weights"]]
    check_node("TreeEnsembleClassifier", [x], 2, error=2**-14, **attrs)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("least_weight", [-1.0, 0.0])
@pytest.mark.parametrize("own_target", [0, 1])
@pytest.mark.parametrize("with_base", [False, True])
def test_two_classes(transform: str, least_weight: float, own_target: int, with_base: bool) -> None:
    forest = Forest(6, 2, least_weight=least_weight, own_targets=(own_target,), num_trees=2)
    attrs: dict[str, Any] = {"classlabels_int64s": [7, 8], "post_transform": transform, **forest.named("class")}
    attrs |= {"base_values": [0.125]} if with_base else {}
    x = forest.samples(60)
    if own_target and with_base:
        found = refusal("TreeEnsembleClassifier", [x], 2, **attrs)
        assert found == "has base values for a class without weights; got 1, expected 0"
    else:
        check_node("TreeEnsembleClassifier", [x], 2, error=ERROR, **attrs)


@pytest.mark.parametrize("with_base", [False, True])
def test_two_classes_with_weights_of_both(with_base: bool) -> None:
    """The class of the higher score; ONNX Runtime has the same scores, and chooses in another way."""
    forest = Forest(7, 2, weights_per_leaf=(2, 2))
    attrs: dict[str, Any] = {"classlabels_int64s": [7, 8], **forest.named("class")}
    base = [0.5, -0.25] if with_base else [0.0, 0.0]
    attrs |= {"base_values": base} if with_base else {}
    x = forest.samples(60)
    label, scores = run_node("TreeEnsembleClassifier", [x], 2, **attrs)
    expected = forest.evaluate(x) + base
    np.testing.assert_allclose(scores, expected, atol=ERROR)
    np.testing.assert_array_equal(label, np.array([7, 8])[expected.argmax(axis=1)])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "PROBIT"])
@pytest.mark.parametrize("least_weight", [-1.0, 0.0])
@pytest.mark.parametrize("with_base", [False, True])
def test_a_single_class(transform: str, least_weight: float, with_base: bool) -> None:
    forest = Forest(8, 1, least_weight=least_weight, num_trees=2)
    attrs: dict[str, Any] = {"classlabels_int64s": [1], "post_transform": transform, **forest.named("class")}
    attrs |= {"base_values": [0.125]} if with_base else {}
    check_node("TreeEnsembleClassifier", [forest.samples(60)], 2, error=ERROR, **attrs)


@AGGREGATES
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("modes", [(0,), (3,), (6,), (*ALL_MODES, 6)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ensembles_of_version_5(aggregate: str, targets: int, modes: tuple[int, ...], dtype: str) -> None:
    forest = Forest(9, targets, modes)
    attrs = {"aggregate_function": NUMBERS[aggregate], **forest.listed(dtype)}
    x = forest.samples(50, dtype)
    (result,) = check_node("TreeEnsemble", [x], version=5, error=ERROR, **attrs)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_allclose(result, forest.evaluate(x, aggregate.lower()), rtol=ERROR, atol=ERROR)


@pytest.mark.parametrize("transform", range(5))
def test_transforms_of_version_5(transform: int) -> None:
    """ONNX Runtime swaps the numbers 1 (SOFTMAX) and 2 (LOGISTIC) of the definition."""
    forest = Forest(10, 3, least_weight=0.0)
    attrs, x = {"aggregate_function": 0, **forest.listed()}, forest.samples(50)
    (result,) = run_node("TreeEnsemble", [x], version=5, post_transform=transform, **attrs)
    number = {1: 2, 2: 1}.get(transform, transform)
    model = node_model("TreeEnsemble", [x], version=5, post_transform=number, **attrs)
    (wanted,) = run_onnxruntime(model, [x])
    np.testing.assert_allclose(result, wanted, rtol=2**-14, atol=2**-14)


def test_float16() -> None:
    """ONNX Runtime has no float16."""
    forest = Forest(11, 2, (*ALL_MODES, 6))
    x = forest.samples(50, "float16")
    (result,) = run_node("TreeEnsemble", [x], version=5, **forest.listed("float16"))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, forest.evaluate(x), rtol=2**-10, atol=2**-10)


@given(
    st.integers(0, 10**6), st.integers(1, 4), st.sets(st.sampled_from(ALL_MODES), min_size=1), st.integers(0, 8),
    st.sampled_from(["sum", "average", "min", "max"]), st.integers(1, 30), st.integers(0, 9),
)  # fmt: skip
def test_random_trees(
    seed: int, targets: int, modes: set[int], depth: int, aggregate: str, num_trees: int, num_samples: int
) -> None:
    forest = Forest(seed, targets, tuple(sorted(modes)), depth, (0, targets), num_trees=num_trees)
    x = forest.samples(num_samples, "float64")
    attrs = {"n_targets": targets, "aggregate_function": aggregate.upper(), **forest.named("target")}
    assume(attrs["target_ids"])  # the package onnx has no attributes without numbers
    module = import_model(node_model("TreeEnsembleRegressor", [x], **attrs))
    (result,) = evaluate_function(module, "main", [x])
    np.testing.assert_allclose(result, forest.evaluate(x, aggregate), rtol=1e-6, atol=1e-6)


def test_many_samples_are_computed_in_steps() -> None:
    forest = Forest(12, 2, num_trees=40)
    x = forest.samples(5000)
    (result,) = run_node("TreeEnsembleRegressor", [x], n_targets=2, **forest.named("target"))
    chosen = np.arange(0, 5000, 500)
    np.testing.assert_allclose(result[chosen], forest.evaluate(x[chosen]), rtol=1e-6, atol=1e-6)


KERNEL = {op.name: op.kernel for op in OPS}["mlops.tree_ensemble"]


def _stump(**changed: Any) -> dict[str, Any]:
    operands: dict[str, Any] = {
        "x": np.zeros((2, 3)),
        "features": np.array([1]),
        "thresholds": np.zeros(1),
        "modes": np.array([0]),
        "true_children": np.array([-1]),
        "false_children": np.array([-2]),
        "missing_true": np.zeros(1, np.bool_),
        "roots": np.array([0]),
        "member_nodes": np.zeros(0, np.int64),
        "members": np.zeros(0),
        "weight_leaves": np.array([0, 1]),
        "weight_targets": np.array([0, 0]),
        "weights": np.array([0.5, 0.25]),
        "num_targets": 1,
        "aggregate": "sum",
    }
    return operands | {name: np.array(value) for name, value in changed.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"true_children": [0]}, "op `mlops.tree_ensemble`: the nodes of a tree form a cycle; got 0"),
        ({"true_children": [1]}, "operand `true_children`: an index lies outside; got 1, expected below 1"),
        ({"features": [3]}, "operand `features`: an index lies outside; got 3, expected 0 or more, below 3"),
        ({"modes": [7]}, "operand `modes`: an index lies outside; got 7, expected 0 or more, below 7"),
        ({"roots": [2]}, "operand `roots`: an index lies outside; got 2, expected below 1"),
        (
            {"weight_targets": [0, 1]},
            "operand `weight_targets`: an index lies outside; got 1, expected 0 or more, below 1",
        ),
        ({"weight_leaves": [0, -1]}, "operand `weight_leaves`: an index lies outside; got -1, expected 0 or more"),
    ],
)
def test_damaged_operands(changed: dict[str, Any], message: str) -> None:
    """The operands may come from a damaged file."""
    assert KERNEL is not None
    np.testing.assert_array_equal(KERNEL(**_stump()), [[0.5], [0.5]])
    with pytest.raises(ExecutionError) as caught:
        KERNEL(**_stump(**changed))
    assert message in str(caught.value)


def _change(attrs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**attrs, **changed}


def test_malformed_named_trees() -> None:
    forest = Forest(13, 2, num_trees=3, depth=2)
    x, good = forest.samples(3), {"n_targets": 2, **forest.named("target")}
    names, modes = good["nodes_nodeids"], good["nodes_modes"]
    for changed, message in (
        ({"aggregate_function": "MEAN"}, "attribute `aggregate_function` is unknown; got MEAN, expected SUM, "),
        ({"nodes_nodeids": names[:-1]}, "attributes `nodes_treeids` and `nodes_nodeids` have different sizes"),
        ({"nodes_values": [0.0]}, "attributes `nodes_nodeids` and `nodes_values` have different sizes; got 1"),
        ({"nodes_modes": ["BRANCH_SAME", *modes[1:]]}, "attribute `nodes_modes` is unknown; got BRANCH_SAME"),
        ({"nodes_featureids": [4] * len(names)}, "attribute `nodes_featureids` has a number outside; got 4"),
        ({"nodes_truenodeids": [99] * len(names)}, "attribute `nodes_truenodeids` names an unknown node; got node 99"),
        ({"nodes_treeids": [0] * len(names)}, "a node is listed twice"),
        ({"nodes_truenodeids": [0] * len(names), "nodes_falsenodeids": [0] * len(names)}, "a tree has not exactly one"),
        ({"target_ids": [2] * len(good["target_ids"])}, "attribute `target_ids` has a number outside; got 2"),
        ({"target_nodeids": [0] * len(good["target_ids"])}, "attribute `target_nodeids` names an inner node; got 0"),
        ({"base_values": [1.0]}, "attribute `base_values` has the wrong size; got 1, expected 0 or 2"),
        ({"nodes_values_as_tensor": np.zeros(1)}, "has attributes `nodes_values` and `nodes_values_as_tensor`"),
    ):
        found = refusal("TreeEnsembleRegressor", [x], **_change(good, **changed))
        assert found.startswith(message), found


def test_malformed_classifiers() -> None:
    forest = Forest(14, 2, own_targets=(1,))
    x, good = forest.samples(3), forest.named("class")
    for changed, message in (
        ({}, "lacks labels"),
        ({"classlabels_int64s": [5]}, "attribute `class_ids` has a number outside; got 1, expected 0 to 0"),
        (
            {"classlabels_int64s": [5], "class_ids": [0] * len(good["class_ids"])},
            "has a single class with another label",
        ),
        ({"classlabels_int64s": [5, 6], "base_values": [1.0]}, "has base values for a class without weights; got 1"),
    ):
        found = refusal("TreeEnsembleClassifier", [x], 2, **_change(good, **changed))
        assert found.startswith(message), found
    zero = Forest(14, 2, own_targets=(0,)).named("class") | {"classlabels_int64s": [5, 6], "post_transform": "PROBIT"}
    assert "PROBIT for two classes" in refusal("TreeEnsembleClassifier", [x], 2, **zero)


def test_malformed_ensembles() -> None:
    forest = Forest(15, 2, (0, 6))
    x, good = forest.samples(3), forest.listed()
    count = len(good["nodes_featureids"])
    for changed, message in (
        ({"aggregate_function": 4}, "attribute `aggregate_function` is unknown; got 4, expected 0 to 3"),
        ({"post_transform": 5}, "attribute `post_transform` is unknown; got 5, expected 0 to 4"),
        ({"tree_roots": [count]}, "attribute `tree_roots` has a number outside"),
        ({"nodes_modes": np.full(count, 7, np.uint8)}, "attribute `nodes_modes` has a number outside; got 7"),
        ({"leaf_targetids": [2] * len(good["leaf_targetids"])}, "attribute `leaf_targetids` has a number outside"),
        ({"leaf_targetids": [0]}, "attributes `leaf_targetids` and `leaf_weights` have different sizes"),
        ({"membership_values": np.zeros(1, np.float32)}, "attribute `membership_values` has another number of sets"),
        ({"nodes_truenodeids": [9999] * count}, "attribute `nodes_truenodeids` has a number outside; got 9999"),
    ):
        found = refusal("TreeEnsemble", [x], version=5, **_change(good, **changed))
        assert found.startswith(message), found
    assert refusal("TreeEnsemble", [forest.samples(3, "int64")], version=5, **good) == (
        "the samples are not floats; got int64"
    )
