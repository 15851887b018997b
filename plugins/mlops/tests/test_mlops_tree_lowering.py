"""Ensembles of trees in C, against the numpy kernel to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import dtype_name
from byoc_core.errors import ExecutionError
from byoc_core.ir import FunctionBuilder, IRModule, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.partitioning import ByCost
from byoc_mlops.tree_kernel import AGGREGATES, MEMBER, tree_ensemble
from byoc_mlops.tree_lowering import _BLOCK, _MOST_KEYS, can_lower_trees
from byoc_mlops.tree_tables import tree_tables
from hypothesis import given, settings
from hypothesis import strategies as st

NDArray = npt.NDArray[Any]

FEATURES, TARGETS = 3, 2
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0)


WEIGHTS_OF_LEAVES = ("any", "single", "all")
KEYS_OF_A_COMPARISON = (0, 1000)
"""Each comparison computes a key, or all keys are computed first."""


def random_operands(
    rng: np.random.Generator,
    dtype: str,
    modes: list[int],
    *,
    missing: bool,
    weights_of_leaves: str = "any",
    num_features: int = FEATURES,
) -> list[NDArray]:
    """Return the operands behind the samples: nodes shared by trees, leaves with the given kind of weights."""
    count, num_leaves, num_weights = (int(rng.integers(low, 30)) for low in (1, 2, 0))
    weight_leaves, weight_targets = rng.integers(0, num_leaves, num_weights), rng.integers(0, TARGETS, num_weights)
    if weights_of_leaves == "single":
        weight_leaves, weight_targets = rng.permutation(num_leaves), rng.integers(0, TARGETS, num_leaves)
    elif weights_of_leaves == "all":
        weight_leaves, weight_targets = np.divmod(np.arange(num_leaves * TARGETS), TARGETS)
    num_weights = len(weight_leaves)
    later = [int(rng.integers(node + 1, count + 1)) for node in range(count)]
    children = [
        np.array([node if node < count and rng.random() < 0.8 else -1 - rng.integers(num_leaves) for node in nodes])
        for nodes in (later, rng.permuted(np.stack([later, np.full(count, count)]), axis=0)[0])
    ]
    sets = rng.integers(0, count, 2 * count)
    weights = rng.integers(-4, 5, num_weights) / 3
    weights[rng.random(num_weights) < 0.2] = rng.choice(SPECIAL)
    thresholds, members = (rng.integers(-3, 4, size).astype(dtype) for size in (count, 2 * count))
    thresholds[rng.random(count) < 0.1] = rng.choice(SPECIAL)
    members[rng.random(2 * count) < 0.1] = rng.choice(SPECIAL)
    return [
        rng.integers(0, num_features, count),
        thresholds,
        rng.choice(modes, count),
        *children,
        rng.random(count) < 0.4 if missing else np.zeros(count, np.bool_),
        rng.choice(
            [0, min(1, count - 1), -1], int(rng.integers(0, 20))
        ),  # up to two groups of trees, and further trees
        sets,
        members,
        weight_leaves,
        weight_targets,
        weights.astype(dtype),
    ]


def random_samples(rng: np.random.Generator, count: int, dtype: str, num_features: int = FEATURES) -> NDArray:
    x = rng.integers(-4, 5, (count, num_features)).astype(dtype)
    return np.where(rng.random(x.shape) < 0.2, rng.choice(SPECIAL, x.shape), x).astype(dtype)


def tree_module(operands: list[NDArray], features: Dim, **attrs: Any) -> IRModule:
    """Return a module of a single op with constant trees; the number of samples is symbolic."""
    builder = FunctionBuilder("main", ops=default_ops().extended(byoc_core.backends.ops(["mlops"])))
    x = builder.param("x", tensor((symbol("n"), features), dtype_name(operands[1].dtype)))
    result = cast("Var", builder.emit("mlops.tree_ensemble", x, *operands, **attrs))
    return IRModule({"main": builder.finish(result)}, builder.constants, ops=builder.ops)


def module_types(executable: Any) -> set[str]:
    return {str(module.type_key) for module in executable.modules}


def same_bits(found: NDArray, wanted: NDArray) -> bool:
    """Return whether arrays are equal, zeros with equal signs; any NaN equals NaN."""
    both_nan = np.isnan(found) & np.isnan(wanted)
    unsigned = f"u{found.itemsize}"
    return found.dtype == wanted.dtype and bool((both_nan | (found.view(unsigned) == wanted.view(unsigned))).all())


@given(st.data())
@settings(max_examples=max(4, settings().max_examples // 4), deadline=None)
def test_c_equals_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dtype, aggregate = data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.sampled_from(AGGREGATES))
    modes = data.draw(st.sampled_from([*([mode] for mode in range(MEMBER + 1)), list(range(MEMBER + 1))]))
    kind = data.draw(st.sampled_from(WEIGHTS_OF_LEAVES))
    operands = random_operands(rng, dtype, modes, missing=data.draw(st.booleans()), weights_of_leaves=kind)
    attrs = {"num_targets": TARGETS, "aggregate": aggregate}
    with patch("byoc_mlops.tree_lowering._KEYS_OF_A_COMPARISON", data.draw(st.sampled_from(KEYS_OF_A_COMPARISON))):
        executable = byoc_core.build(tree_module(operands, FEATURES, **attrs), ["mlops"])
    assert module_types(executable) == {"csource"}
    run = byoc_core.VirtualMachine(executable)["main"]
    for count in (0, 1, 7, 8, 77):
        x = random_samples(rng, count, dtype)
        with np.errstate(all="ignore"):
            wanted = cast("Any", tree_ensemble)(x, *operands, **attrs)
        assert same_bits(np.asarray(run(x)), wanted)


@pytest.mark.parametrize("kind", WEIGHTS_OF_LEAVES)
def test_weights_of_leaves_are_recognized(kind: str) -> None:
    operands = random_operands(np.random.default_rng(1), "float32", [0], missing=False, weights_of_leaves=kind)
    tables = tree_tables(operands, FEATURES, TARGETS)
    assert tables is not None
    assert tables.weights_of_leaves == kind


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_blocks_of_many_features_are_short(dtype: str) -> None:
    rng = np.random.default_rng(2)
    num_features = 2000
    operands = random_operands(rng, dtype, [0, 3], missing=True)
    count = 600
    leaves, missing = np.arange(count + 1), rng.random(count) < 0.5
    nodes = [np.arange(count), rng.integers(-3, 4, count).astype(dtype), np.zeros(count, np.int64)]
    children = [np.append(np.arange(1, count), -1), -2 - np.arange(count), missing]  # each exit has a leaf of its own
    roots, weights = rng.integers(0, count, 9), (leaves + 1).astype(dtype)
    operands = [*nodes, *children, roots, np.zeros(0, np.int64), np.zeros(0, dtype), leaves, leaves % TARGETS, weights]
    tables = tree_tables(operands, num_features, TARGETS)
    assert tables is not None
    assert tables.num_slots * _BLOCK > _MOST_KEYS
    executable = byoc_core.build(tree_module(operands, num_features, num_targets=TARGETS), ["mlops"])
    assert module_types(executable) == {"csource"}
    x = random_samples(rng, 45, dtype, num_features)
    # Long walks of every second sample: values on the way to the end, but for a feature.
    x[::2, :count] = np.where(missing & (x[::2, :count] > 0), np.nan, -5)
    x[np.arange(0, 45, 2), rng.integers(0, count, 23)] = 9
    with np.errstate(all="ignore"):
        wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    assert len(np.unique(wanted, axis=0)) > 10
    assert same_bits(np.asarray(byoc_core.VirtualMachine(executable)["main"](x)), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", range(MEMBER))
@pytest.mark.parametrize("keys", KEYS_OF_A_COMPARISON)
def test_comparisons_know_all_kinds_of_floats(dtype: str, mode: int, keys: int) -> None:
    """A tree for each special threshold, with and without the flag of NaN, and samples beside the thresholds."""
    info, infinity = np.finfo(dtype), np.array(np.inf, dtype)
    tiny = np.nextafter(np.array(0, dtype), infinity)
    values = np.array([0.0, -0.0, tiny, -tiny, info.tiny, 1.5, info.max, -info.max, np.inf, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"):
        near = [values, np.nextafter(values, infinity), np.nextafter(values, -infinity), np.array([-np.nan], dtype)]
    x = np.repeat(np.concatenate(near)[:, np.newaxis], FEATURES, axis=1)
    thresholds = np.tile(values, 2)
    trees, ones = np.arange(len(thresholds)), np.ones(len(thresholds), np.int64)
    missing, weights = trees >= len(values), 2.0 ** np.append(trees, -1)  # a bit for each tree
    no_sets = (np.zeros(0, np.int64), np.zeros(0, dtype))
    last = len(trees)
    operands = [
        *(0 * ones, thresholds, mode * ones, -1 - trees, (-1 - last) * ones, missing, trees, *no_sets),
        *(np.arange(last + 1), np.zeros(last + 1, np.int64), np.where(np.arange(last + 1) < last, weights, 0)),
    ]
    operands[-1] = operands[-1].astype(dtype)
    wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    with patch("byoc_mlops.tree_lowering._KEYS_OF_A_COMPARISON", keys):
        executable = byoc_core.build(tree_module(operands, FEATURES, num_targets=TARGETS), ["mlops"])
    assert same_bits(np.asarray(byoc_core.VirtualMachine(executable)["main"](x)), wanted)


def test_a_tree_on_many_features_computes_no_further_keys() -> None:
    """A balanced tree of 63 nodes, each with a feature of its own, compares six times."""
    nodes, leaves = np.arange(63), np.arange(64)
    below = [np.where(2 * nodes + side < 63, 2 * nodes + side, 62 - 2 * nodes - side) for side in (1, 2)]
    weights = (leaves + 1).astype(np.float32)
    split: list[NDArray] = [nodes, np.zeros(63, np.float32), np.zeros(63, np.int64), *below, np.zeros(63, np.bool_)]
    operands: list[NDArray] = [*split, np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)]
    operands += [leaves, leaves % TARGETS, weights]
    executable = byoc_core.build(tree_module(operands, 63, num_targets=TARGETS), ["mlops"])
    (source,) = [module.get_source() for module in executable.modules]
    assert "_in_place_run" in source
    x = random_samples(np.random.default_rng(4), 45, "float32", 63)
    wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    assert len(np.unique(wanted, axis=0)) > 10
    assert same_bits(np.asarray(byoc_core.VirtualMachine(executable)["main"](x)), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sets_are_searched(dtype: str) -> None:
    """Members of a set, their neighbours among floats, and NaN, with and without the flag of NaN."""
    rng = np.random.default_rng(3)
    members = np.unique(np.append(rng.standard_normal(100), [0.0, -np.inf, np.inf])).astype(dtype)
    infinity = np.array(np.inf, dtype)
    near = [members, np.nextafter(members, infinity), np.nextafter(members, -infinity)]
    x = np.repeat(np.concatenate([*near, [np.nan, -np.nan, -0.0]])[:, np.newaxis], FEATURES, axis=1).astype(dtype)
    for missing in (False, True):
        operands = [
            *(np.array([0]), np.zeros(1, dtype), np.array([MEMBER]), np.array([-1]), np.array([-2])),
            *(np.array([missing]), np.array([0]), np.zeros(len(members), np.int64), rng.permutation(members)),
            *(np.array([0, 1]), np.array([0, 1]), np.ones(2, dtype)),
        ]
        run = byoc_core.VirtualMachine(byoc_core.build(tree_module(operands, FEATURES, num_targets=TARGETS), ["mlops"]))
        wanted = np.isin(x[:, 0], members) | (np.isnan(x[:, 0]) & missing)
        np.testing.assert_array_equal(np.asarray(run["main"](x))[:, 0], wanted)


def _chain(dtype: str = "float32") -> list[NDArray]:
    """Return a tree of two nodes and three leaves."""
    ints = (np.array([0, 1]), np.array([0, 0]), np.array([1, -2]), np.array([-1, -3]))
    features, modes, true_children, false_children = ints
    return [
        *(features, np.array([1, 2], dtype), modes, true_children, false_children, np.zeros(2, np.bool_)),
        *(np.array([0]), np.zeros(0, np.int64), np.zeros(0, dtype)),
        *(np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1, 2, 3], dtype)),
    ]


def _changed(index: int, value: Any) -> list[NDArray]:
    operands = _chain()
    operands[index] = np.asarray(value, operands[index].dtype)
    return operands


@pytest.mark.parametrize(
    ("operands", "problem"),
    [
        (_changed(3, [0, -2]), "the nodes of a tree form a cycle"),
        (_changed(0, [0, 3]), "an index lies outside"),
        (_changed(6, [2]), "an index lies outside"),
        (_changed(10, [0, 0, 2]), "an index lies outside"),
    ],
)
def test_wrong_trees_are_left_to_the_kernel(operands: list[NDArray], problem: str) -> None:
    """The kernel reports the fault in the call."""
    assert tree_tables(operands, FEATURES, TARGETS) is None
    executable = byoc_core.build(tree_module(operands, FEATURES, num_targets=TARGETS), ["mlops"])
    assert module_types(executable) == {"mlops"}
    with pytest.raises(ExecutionError, match=problem):
        byoc_core.VirtualMachine(executable)["main"](np.zeros((1, FEATURES), np.float32))


@pytest.mark.parametrize(("features", "dtype"), [(symbol("f"), "float32"), (FEATURES, "float16")])
def test_other_ensembles_are_left_to_the_kernel(features: Dim, dtype: str) -> None:
    operands, x = _chain(dtype), np.arange(12).reshape(4, 3).astype(dtype)
    executable = byoc_core.build(tree_module(operands, features, num_targets=TARGETS), ["mlops"])
    assert module_types(executable) == {"mlops"}
    wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), wanted)


def test_trees_are_built_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", "no-such-compiler")
    operands, x = _chain(), np.arange(12, dtype=np.float32).reshape(4, 3)
    executable = byoc_core.build(tree_module(operands, FEATURES, num_targets=TARGETS), ["mlops"])
    assert module_types(executable) == {"mlops"}
    wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), wanted)


def test_artifacts_run_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operands, x = _chain(), np.arange(12, dtype=np.float32).reshape(4, 3)
    executable = byoc_core.build(tree_module(operands, FEATURES, num_targets=TARGETS), ["mlops"])
    executable.save(tmp_path / "trees.byoc")
    monkeypatch.setenv("BYOC_CC", "no-such-compiler")
    loaded = byoc_core.load(tmp_path / "trees.byoc")
    assert module_types(loaded) == {"csource"}
    wanted = cast("Any", tree_ensemble)(x, *operands, num_targets=TARGETS, aggregate="sum")
    np.testing.assert_array_equal(byoc_core.VirtualMachine(loaded)["main"](x), wanted)


@pytest.mark.parametrize("count", [1, 100, 100_000])
def test_trees_are_offloaded_by_cost(count: int) -> None:
    module = tree_module(_chain(), FEATURES, num_targets=TARGETS)
    executable = byoc_core.build(module, ["mlops"], policy=ByCost(sizes={"n": count}))
    assert [op["outcome"] for op in executable.report_data["ops"]] == ["mlops"]
    assert module_types(executable) == {"csource"}


def test_several_ensembles_of_a_model() -> None:
    """Ensembles with other aggregates, kinds of weights and numbers of targets have other functions in C."""
    single = [*_chain()[:9], np.array([0, 1, 2]), np.array([0, 1, 1]), np.array([1, 2, 3], np.float32)]
    of_all = [[*_chain()[:9], *np.divmod(np.arange(3 * n), n), np.arange(3 * n).astype(np.float32)] for n in (1, 2, 3)]
    ensembles = [(arrays, TARGETS) for arrays in (_chain(), _changed(2, [1, 3]), _changed(5, [True, False]), single)]
    ensembles += [(arrays, number) for number, arrays in enumerate(of_all, 1)]
    ops = default_ops().extended(byoc_core.backends.ops(["mlops"]))
    builder = FunctionBuilder("main", ops=ops)
    x = builder.param("x", tensor((symbol("n"), FEATURES), "float32"))
    results = [
        cast("Var", builder.emit("mlops.tree_ensemble", x, *arrays, num_targets=number, aggregate=aggregate))
        for arrays, number in ensembles
        for aggregate in AGGREGATES
    ]
    module = IRModule({"main": builder.finish(*results)}, builder.constants, ops=builder.ops)
    executable = byoc_core.build(module, ["mlops"])
    assert module_types(executable) == {"csource"}
    samples = random_samples(np.random.default_rng(1), 40, "float32")
    found = iter(byoc_core.VirtualMachine(executable)["main"](samples))
    for arrays, number in ensembles:
        for aggregate in AGGREGATES:
            wanted = cast("Any", tree_ensemble)(samples, *arrays, num_targets=number, aggregate=aggregate)
            assert same_bits(np.asarray(next(found)), wanted)


def test_ops_without_operands_are_not_lowered() -> None:
    builder = FunctionBuilder("main", ops=default_ops())
    function = builder.finish(builder.bind("arange", [], {"stop": 5}).result)
    assert not any(map(can_lower_trees, function.bindings))
