"""Drawn cases are the same everywhere, valid, and cover their purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_conformance.drawing import (
    BLOCK_ROOTS,
    BYTE_ROOTS,
    REGIMES,
    canonical_trials,
    draw_array,
    draw_blocks,
    draw_byte_blocks,
    draw_graph,
    draw_operands,
    drawn_trials,
    generator_of,
    graph_ops,
    near_trials,
    node_cases,
    node_groups,
)
from byoc_conformance.promises.l2_numerics import random_graphs
from byoc_conformance.subject import Subject, SubjectSpec
from byoc_core.dtypes import computing_dtypes, dtype_name, float_limits, is_float
from byoc_core.ir import ConstantStore, IRModule, TensorType, Trait, print_function, verify
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, dtypes_of
from byoc_core.transform import evaluate_function
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", ["add", "nn.conv2d", "take", "sum", "nn.lstm", "concat", "cast"])
def test_trials_are_the_same_each_time_and_valid(name: str) -> None:
    op = default_ops()[name]
    first, second = ([str(trial) for trial in drawn_trials(op, 20, 3, is_dynamic=True)] for _ in range(2))
    assert first == second
    assert first != [str(trial) for trial in drawn_trials(op, 20, 4, is_dynamic=True)]
    canonical = [str(trial) for trial in canonical_trials(op)]
    assert len({*first} - {*canonical}) >= 8
    for trial in drawn_trials(op, 20, 3, is_dynamic=True):
        store = ConstantStore()
        function = trial.named("main").function(store, generator_of(0))
        verify(IRModule({"main": function}, store))


def test_no_function_is_drawn_twice() -> None:
    for name in canonical_cases(default_ops()):
        trials = [str(trial) for trial in drawn_trials(default_ops()[name], 20, 0, is_dynamic=True)]
        assert len(set(trials)) == len(trials), name


def test_every_op_is_tried_in_every_dtype_that_it_takes() -> None:
    for name, cases in canonical_cases(default_ops()).items():
        op = default_ops()[name]
        accepted = {dtype for case in cases[:1] for dtype in dtypes_of(case, op)}
        trials = [*canonical_trials(op), *drawn_trials(op, 0, 0, is_dynamic=False)]
        assert {trial.dtype for trial in trials} >= accepted, name


def test_drawn_trials_have_what_canonical_ones_lack() -> None:
    op = default_ops()["add"]
    trials = list(drawn_trials(op, 100, 0, is_dynamic=False))
    assert any(trial.constants for trial in trials)
    assert any(1 in operand.shape for trial in trials for operand in trial.case.operands)
    assert any(17 in operand.shape for trial in trials for operand in trial.case.operands)
    assert any(len({operand.shape for operand in trial.case.operands}) == 2 for trial in trials)
    assert not any(type_.symbols for trial in trials for type_ in trial.types())


def test_every_op_is_drawn_and_its_symbols_change_their_sizes() -> None:
    without_other_sizes = set()
    for name in canonical_cases(default_ops()):
        trials = list(drawn_trials(default_ops()[name], 0, 0, is_dynamic=True))
        least = (
            0 if name == "as_size" else 3 if default_ops()[name].operands else 1
        )  # a single number has no other form
        assert len(trials) >= least, name
        symbolic = [trial for trial in trials if trial.symbols != "none"]
        other_cases = [trial.other_case(generator_of(0, name, index)) for index, trial in enumerate(symbolic)]
        if not any(other is not None for other in other_cases):
            without_other_sizes.add(name)
        for trial, other in zip(symbolic, other_cases, strict=True):
            store = ConstantStore()
            function = trial.named("main").function(store, generator_of(0))
            if other is not None:
                operands = draw_operands(trial.op, other, trial.dtype, "normal", generator_of(0))
                inputs = [
                    array for index_of_operand, array in enumerate(operands) if index_of_operand not in trial.constants
                ]
                assert [array.shape for array in inputs] != [
                    operand.shape
                    for index_of_operand, operand in enumerate(trial.case.operands)
                    if index_of_operand not in trial.constants
                ]
                evaluate_function(IRModule({"main": function}, store), "main", inputs)
    assert without_other_sizes == {
        "arange",
        "as_size",
        "full",
        "ngram_counts",
        "nn.deformable_im2col",  # the sizes of the offsets follow from the others
        "random.seed",
        "range",
        "shape_to_tensor",
        *("strings.change_case", "strings.key_index", "strings.ngram_counts", "strings.token_spans"),
    }  # their operands have no sizes


@pytest.mark.parametrize(
    ("name", "is_drawn"),
    [
        ("nn.softmax", lambda case: case.attrs["axis"] == 1 - len(case.operands[0].shape) < -1),
        ("sum", lambda case: case.attrs["axis"] is not None and min(case.attrs["axis"]) == -2),
        ("nn.layer_norm", lambda case: len(case.operands[0].shape) == 4 and len(case.attrs["axes"]) > 1),
        ("nn.avg_pool2d", lambda case: case.attrs["count_include_pad"] and _hangs_over(case)),
        ("strided_slice", lambda case: case.attrs["strides"][0] == -1 and case.attrs["end"][0] < -9),
    ],
)
def test_corners_that_once_were_not_drawn(name: str, is_drawn: Callable[[Any], bool]) -> None:
    trials = drawn_trials(default_ops()[name], 0, 0, is_dynamic=False)
    assert any(trial.dtype == "float32" and is_drawn(trial.case) for trial in trials)


def _hangs_over(case: OpCase) -> bool:
    """Return whether the last window along an axis reaches beyond the padding behind the image."""
    attrs: Any = default_ops()[case.op].normalise_attrs(case.attrs)
    if not attrs["ceil_mode"]:
        return False
    image = case.operands[0].shape[2:] if attrs["layout"] == "NCHW" else case.operands[0].shape[1:-1]
    steps = attrs["strides"] or attrs["pool_size"]
    return any(
        (size + attrs["padding"][axis] + attrs["padding"][axis + 2] - attrs["dilation"][axis] * (width - 1) - 1)
        % steps[axis]
        for axis, (size, width) in enumerate(zip(image, attrs["pool_size"], strict=True))
    )


@pytest.mark.parametrize("dtype", computing_dtypes())
@pytest.mark.parametrize("regime", REGIMES)
def test_arrays_are_of_their_dtype(dtype: str, regime: str) -> None:
    array = draw_array(dtype, (5, 7), regime, generator_of(0), None)
    assert (dtype_name(array.dtype), array.shape) == (dtype, (5, 7))
    assert draw_array(dtype, (), regime, generator_of(0)).shape == ()
    if is_float(dtype):
        values = array.astype(np.float64)
        assert np.isnan(values).any() == (regime in {"special", "nonfinite"})
        if regime == "tiny":
            assert np.abs(values).max() < 64 * float_limits(dtype).smallest_normal


def test_special_values_are_all_there() -> None:
    array = draw_array("float32", (100,), "special", generator_of(0))
    assert all(is_kind(array).any() for is_kind in (np.isnan, np.isposinf, np.isneginf))
    assert (np.signbit(array) & (array == 0)).any()
    assert np.isnan(draw_array("float32", (1,), "special", generator_of(0))).all()


def test_integers_are_small_or_any() -> None:
    assert np.abs(draw_array("int32", (100,), "normal", generator_of(0))).max() <= 4
    assert np.abs(draw_array("int64", (100,), "normal", generator_of(0), None).astype(float)).max() > 2.0**60
    assert draw_array("uint64", (100,), "normal", generator_of(0), None).max() > 2**63


def test_what_must_be_positive_is() -> None:
    op = default_ops()["nn.batch_norm"]
    case = canonical_cases(default_ops())["nn.batch_norm"][0]
    for regime in ("normal", "zeros", "large"):
        assert draw_operands(op, case, "float32", regime, generator_of(0))[4].min() > 0


def test_graphs_have_what_they_are_for() -> None:
    ops = default_ops()
    graphs = [
        draw_graph("main", ops, op, generator_of(0, number), is_dynamic=number % 2 == 1)
        for number, op in enumerate(graph_ops())
    ]
    sizes = [len(graph.function.bindings) for graph in graphs]
    assert min(sizes) >= 4
    assert max(sizes) > 25
    assert {binding.op.name for graph in graphs for binding in graph.function.bindings} == set(graph_ops())
    assert any(len(graph.function.results) > 1 for graph in graphs)
    assert any(len(graph.constants) > 1 for graph in graphs)
    num_joining = 0
    for number, graph in enumerate(graphs):
        module = IRModule({"main": graph.function}, graph.constants)
        verify(module)
        for inputs in graph.calls:
            results = evaluate_function(module, "main", inputs)
            assert all(np.isfinite(result).all() for result in results)
        first, second = ([array.shape for array in inputs] for inputs in graph.calls)
        assert (first != second) is (number % 2 == 1)
        readers = [id(operand) for binding in graph.function.bindings for operand in binding.operands]
        num_joining += len(set(readers)) < len(readers)  # something is read twice
    assert num_joining > 0.9 * len(graphs)
    symbolic = [
        any(isinstance(p.type, TensorType) and p.type.symbols for p in graph.function.params) for graph in graphs
    ]
    assert symbolic == [number % 2 == 1 for number in range(len(graphs))]


def test_favoured_ops_are_drawn_more_often() -> None:
    def count(favoured: str) -> int:
        graphs = (draw_graph("g", default_ops(), favoured, generator_of(1, n), is_dynamic=False) for n in range(20))
        return sum(binding.op.name == "tanh" for graph in graphs for binding in graph.function.bindings)

    assert count("tanh") > 2 * count("erf")


def test_a_backend_that_takes_little_is_tried_near_what_it_takes() -> None:
    op = default_ops()["nn.max_pool2d"]
    drawn = list(drawn_trials(op, 0, 0, is_dynamic=True))
    claimed = [trial for trial in drawn if trial.case.attrs["dilation"] == (1, 1) and trial.symbols == "none"]
    declined = [trial for trial in drawn if trial not in claimed]
    near = list(near_trials(op, claimed, declined))
    assert 5 < len(near) <= 16
    levels = [dict(trial.levels) for trial in claimed]
    for trial in near:
        assert min(sum(other[name] != trial.levels[name] for name in other) for other in levels) <= 2
    dilated = [trial for trial in near if trial.case.attrs["dilation"] != (1, 1)]
    assert any(trial.symbols == "none" for trial in dilated)  # which no drawn trial that is declined need show
    assert list(near_trials(op, [], declined)) == []
    assert list(near_trials(op, drawn, [])) == []


@pytest.mark.parametrize("root", BLOCK_ROOTS)
def test_blocks_are_valid_and_differ(root: str) -> None:
    blocks = list(draw_blocks(default_ops(), root, 0, is_dynamic=True))
    assert len(blocks) >= 7
    repeated = [print_function(block.function) for block in draw_blocks(default_ops(), root, 0, is_dynamic=True)]
    assert [print_function(block.function) for block in blocks] == repeated
    assert len(set(repeated)) == len(repeated)
    for block in blocks:
        module = IRModule({"main": replace(block.function, name="main")}, block.constants)
        verify(module)
        results = [evaluate_function(module, "main", inputs) for inputs in block.calls]
        assert all(np.isfinite(array.astype(np.float64)).all() for arrays in results[:2] for array in arrays)
        assert any(np.isnan(array.astype(np.float64)).any() for array in results[2]) or root == "pool"


def test_blocks_show_every_pair_of_choices() -> None:
    texts = [
        print_function(block.function)
        for root in BLOCK_ROOTS
        for block in draw_blocks(default_ops(), root, 0, is_dynamic=True)
    ]
    for needed in ("R.maximum", "R.gelu", "bfloat16", "float16", "R.permute_dims", '"n"', "R.subtract", "R.clip"):
        assert any(needed.replace("R.gelu", "R.nn.gelu") in text for text in texts), needed
    static = [block for root in BLOCK_ROOTS for block in draw_blocks(default_ops(), root, 0, is_dynamic=False)]
    assert not any(isinstance(p.type, TensorType) and p.type.symbols for b in static for p in b.function.params)


@pytest.mark.parametrize("root", BYTE_ROOTS)
def test_blocks_of_bytes_have_one_right_result(root: str) -> None:
    blocks = list(draw_byte_blocks(default_ops(), root, 0))
    assert len(blocks) >= 2
    for block in blocks:
        module = IRModule({"main": replace(block.function, name="main")}, block.constants)
        verify(module)
        for inputs in block.calls:
            assert all(array.dtype.kind in "iu" for array in inputs)
            host = evaluate_function(module, "main", inputs)
            exact = evaluate_function(module, "main", inputs, exact=True)
            for found, expected in zip(host, exact, strict=True):
                np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-5, atol=1e-4)


def test_graphs_hang_on_no_claim(fakenpu: str) -> None:
    """The case of an id stays the same after a backend claims another op."""
    first, second = Subject(SubjectSpec(fakenpu)), Subject(SubjectSpec("host"))
    static = [op for op in graph_ops() if generator_of(0, "graph", op, 0).random() >= 0.5]
    for op in static[:5]:
        graphs = [random_graphs._draw(subject, op) for subject in (first, second)]
        texts = [[print_function(graph.function) for graph in found] for found in graphs]
        assert texts[0] == texts[1]
        assert texts[0]


def test_node_cases_come_in_groups() -> None:
    groups = node_groups()
    assert {"add", "conv", "softmax"} <= set(groups)
    assert list(groups) == sorted(groups)
    state = str(np.random.get_state(legacy=False)["state"])  # noqa: NPY002 - what onnx seeds
    cases = node_cases("add")
    assert str(np.random.get_state(legacy=False)["state"]) == state  # noqa: NPY002
    assert cases[0].name == "test_add"
    assert [case.model.graph.node[0].op_type for case in cases] == ["Add"] * len(cases)
    np.testing.assert_array_equal(cases[0].outputs[0], cases[0].inputs[0] + cases[0].inputs[1])
    assert node_cases("add") is cases
    softmax = [case.name for case in node_cases("softmax")]
    assert softmax[-1].endswith(("_expanded", "_expanded_ver18"))
    assert "_expanded" not in softmax[0]


def test_elementwise_ops_are_broadcast() -> None:
    for name in ("add", "where", "less"):
        op = default_ops()[name]
        assert Trait.ELEMENTWISE in op.traits
        trials = drawn_trials(op, 60, 0, is_dynamic=False)
        shapes = [[operand.shape for operand in trial.case.operands] for trial in trials]
        assert sum(len(set(found)) > 1 for found in shapes) > 10


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 99))
def test_a_line_has_but_one_nan_at_its_end(shape: list[int], seed: int) -> None:
    array = draw_array("float32", tuple(shape), "nonfinite", np.random.default_rng(seed))
    lines = array.reshape(-1, shape[-1])
    assert (np.isnan(lines[:, -1]) & np.isfinite(lines[:, :-1]).all(axis=1)).any()


def test_attributes_have_the_names_of_no_other_factor() -> None:
    """An attribute called `case` or `sizes` is drawn beside the canonical case and its sizes."""
    op = default_ops().find("strings.change_case")
    assert {"case"} <= {spec.name for spec in op.attrs}
    assert {trial.case.attrs["case"] for trial in drawn_trials(op, 2, 0, is_dynamic=False)} >= {"lower", "upper"}
