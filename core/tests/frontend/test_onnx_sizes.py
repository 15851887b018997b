"""Sizes computed by nodes: each op on shapes stays symbolic, and as data equals the result of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule, TensorType, tensor
from byoc_core.ir.verifier import verify
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Array

pytestmark = pytest.mark.lowest

Nodes = Sequence[onnx.NodeProto]
_node = helper.make_node

_CONSTANTS: Mapping[str, Any] = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array(2),
    "minus_one": np.array(-1),
    "three": np.array(3),
    "v0": np.array([0]),
    "v1": np.array([1]),
    "v2": np.array([2]),
    "v3": np.array([3]),
    "v_1": np.array([-1]),
    "v_2": np.array([-2]),
    "v_9": np.array([-9]),
    "v20": np.array([2, 0]),
    "v_1_2": np.array([-1, 2]),
    "v111": np.array([1, 1, 1]),
    "v_1_1_1": np.array([-1, -1, -1]),
    "v21": np.array([2, 1]),
    "f2": np.array(2.0, np.float32),
    "f3": np.array(3.0, np.float32),
    "fhalf": np.array(0.5, np.float32),
    "true": np.array([True]),
    "pads": np.array([0, 1, 0, 2]),
}
_INT64, _INT32, _FLOAT, _BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL


def _model(
    nodes: Nodes,
    outputs: Sequence[str] = ("y",),
    inputs: Mapping[str, Any] | None = None,
    opset: int = 17,
    weights: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    used = {name for node in nodes for name in node.input}
    arrays = {**_CONSTANTS, **(weights or {})}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, dtype, dims)
            for name, (dtype, dims) in (inputs or {"x": (_FLOAT, ["n", "m", 4])}).items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _scalars() -> list[onnx.NodeProto]:
    return [_node("Shape", ["x"], ["s"]), _node("Gather", ["s", "zero"], ["n"]), _node("Gather", ["s", "one"], ["m"])]


_SCALAR_OPS: dict[str, Nodes] = {
    "Abs": [_node("Neg", ["n"], ["a"]), _node("Abs", ["a"], ["y"])],
    "Abs of a difference": [_node("Sub", ["n", "m"], ["a"]), _node("Abs", ["a"], ["y"])],
    "Add": [_node("Add", ["n", "m"], ["y"])],
    "Cast": [_node("Cast", ["n"], ["y"], to=_INT32)],
    "Cast to bool": [_node("Add", ["n", "one"], ["a"]), _node("Cast", ["a"], ["y"], to=_BOOL)],
    "Concat": [
        _node("Unsqueeze", ["n", "v0"], ["a"]),
        _node("Concat", ["a", "v_1", "s"], ["y"], axis=0),
    ],
    "Div": [_node("Add", ["n", "m"], ["a"]), _node("Div", ["a", "two"], ["y"])],
    "Equal": [_node("Equal", ["s", "v_1_1_1"], ["y"])],
    "Expand": [_node("Expand", ["n", "v21"], ["y"])],
    "Gather from the end": [_node("Gather", ["s", "minus_one"], ["y"])],
    "Gather of rank 2": [_node("Gather", ["s", "rank2"], ["y"])],
    "Greater": [_node("Add", ["n", "one"], ["a"]), _node("Greater", ["a", "n"], ["y"])],
    "GreaterOrEqual": [_node("Add", ["n", "m"], ["a"]), _node("GreaterOrEqual", ["a", "m"], ["y"])],
    "Identity": [_node("Identity", ["s"], ["y"])],
    "Less": [_node("Add", ["n", "one"], ["a"]), _node("Less", ["a", "n"], ["y"])],
    "LessOrEqual": [_node("LessOrEqual", ["n", "minus_one"], ["y"])],
    "Max": [_node("Max", ["n", "m", "two"], ["y"])],
    "Min": [_node("Min", ["n", "m"], ["y"])],
    "Mod": [_node("Mod", ["n", "three"], ["y"])],
    "Mod, truncating": [_node("Mod", ["n", "three"], ["y"], fmod=1)],
    "Mul": [_node("Mul", ["s", "n"], ["y"])],
    "Neg": [_node("Neg", ["s"], ["y"])],
    "Not": [
        _node("Equal", ["s", "v_1_1_1"], ["a"]),
        _node("Not", ["a"], ["b"]),
        _node("And", ["a", "b"], ["c"]),
        _node("Or", ["c", "b"], ["y"]),
    ],
    "Pads of PyTorch": [
        _node("Concat", ["v3", "v1", "v2", "s"], ["a"], axis=0),
        _node("Reshape", ["a", "v_1_2"], ["b"]),
        _node("Slice", ["b", "v_1", "v_9", "v0", "v_1"], ["c"]),
        _node("Transpose", ["c"], ["d"], perm=[1, 0]),
        _node("Reshape", ["d", "v_1"], ["y"]),
    ],
    "Range": [_node("Range", ["n", "m", "one"], ["y"])],
    "Range of sizes": [_node("Add", ["n", "three"], ["a"]), _node("Range", ["n", "a", "one"], ["y"])],
    "Range downwards": [_node("Range", ["n", "minus_one", "minus_one"], ["y"])],
    "ReduceMax": [_node("ReduceMax", ["s"], ["y"], axes=[0])],
    "ReduceMin": [_node("ReduceMin", ["s"], ["y"], keepdims=0)],
    "ReduceProd": [_node("ReduceProd", ["s"], ["y"], keepdims=0)],
    "ReduceSum": [_node("ReduceSum", ["s", "v0"], ["y"])],
    "Reshape": [_node("Reshape", ["s", "v_1"], ["y"])],
    "Size": [_node("Size", ["x"], ["y"])],
    "Slice": [_node("Slice", ["s", "v1", "v3"], ["y"])],
    "Slice backwards": [_node("Slice", ["s", "v_1", "v_9", "v0", "v_2"], ["y"])],
    "Split": [_node("Split", ["s", "v21"], ["a", "b"]), _node("Concat", ["b", "a"], ["y"], axis=0)],
    "Squeeze": [_node("Slice", ["s", "v0", "v1"], ["a"]), _node("Squeeze", ["a", "v0"], ["y"])],
    "Sub": [_node("Sub", ["n", "m"], ["y"])],
    "Where": [_node("Equal", ["s", "v_1_1_1"], ["a"]), _node("Where", ["a", "v111", "s"], ["y"])],
    "half, floored": [
        _node("Cast", ["n"], ["a"], to=_FLOAT),
        _node("Mul", ["a", "fhalf"], ["b"]),
        _node("Floor", ["b"], ["c"]),
        _node("Cast", ["c"], ["y"], to=_INT64),
    ],
    "third, ceiled": [
        _node("Cast", ["s"], ["a"], to=_FLOAT),
        _node("Div", ["a", "f3"], ["b"]),
        _node("Ceil", ["b"], ["c"]),
        _node("Cast", ["c"], ["y"], to=_INT32),
    ],
    "twice and one and a half, truncated": [
        _node("Cast", ["n"], ["a"], to=_FLOAT),
        _node("Mul", ["a", "f2"], ["b"]),
        _node("Add", ["b", "fhalf"], ["c"]),
        _node("Cast", ["c"], ["y"], to=_INT64),
    ],
}
_RANK_2 = {"rank2": np.array([[0, 1], [2, -1]])}


@pytest.mark.parametrize("name", sorted(_SCALAR_OPS))
def test_what_is_computed_with_sizes_is_known_and_equals_onnx_runtime(
    name: str, check_model: Callable[..., IRModule]
) -> None:
    model = _model([*_scalars(), *_SCALAR_OPS[name]], weights=_RANK_2)
    for n, m in ((1, 1), (3, 2), (8, 13), (5, 5)):
        module = verify(check_model(model, {"x": np.zeros((n, m, 4), np.float32)}))
    made = {binding.op.name for binding in module["main"].bindings}
    assert made <= {"shape_to_tensor", "reshape", "cast", "arange"}


_AS_DATA: dict[str, Nodes] = {
    "a float": [_node("Cast", ["n"], ["a"], to=_FLOAT), _node("Sqrt", ["a"], ["y"])],
    "a quotient": [
        _node("Cast", ["s"], ["a"], to=_FLOAT),
        _node("Div", ["a", "f3"], ["b"]),
        _node("Mul", ["b", "b"], ["y"]),
    ],
    "an undecided comparison": [_node("Equal", ["n", "m"], ["y"])],
    "an undecided choice": [_node("Less", ["n", "m"], ["a"]), _node("Where", ["a", "n", "m"], ["y"])],
    "a mean": [_node("Cast", ["s"], ["a"], to=_FLOAT), _node("ReduceMean", ["a"], ["y"], keepdims=0)],
}


@pytest.mark.parametrize("name", sorted(_AS_DATA))
def test_what_is_not_known_is_computed_when_the_model_runs(name: str, check_model: Callable[..., IRModule]) -> None:
    model = _model([*_scalars(), *_AS_DATA[name]])
    for n, m in ((1, 1), (3, 2), (8, 13)):
        module = check_model(model, {"x": np.zeros((n, m, 4), np.float32)}, exact=False)
    assert "shape_to_tensor" in {binding.op.name for binding in module["main"].bindings}


def _result_type(module: IRModule, index: int = 0) -> TensorType:
    type_ = module["main"].result_types[index]
    assert isinstance(type_, TensorType)
    return type_


def test_static_floats_are_computed_while_importing(check_model: Callable[..., IRModule]) -> None:
    nodes = [
        *_scalars(),
        _node("Gather", ["s", "minus_one"], ["d"]),
        _node("Cast", ["d"], ["df"], to=_FLOAT),
        _node("Sqrt", ["df"], ["root"]),
        _node("Cast", ["root"], ["two_again"], to=_INT64),
        _node("Unsqueeze", ["two_again", "v0"], ["r"]),
        _node("Unsqueeze", ["n", "v0"], ["n1"]),
        _node("Concat", ["n1", "r", "v_1"], ["target"], axis=0),
        _node("Reshape", ["x", "target"], ["y"]),
    ]
    module = check_model(_model(nodes), {"x": np.zeros((3, 2, 4), np.float32)})
    assert _result_type(module) == tensor(("n", 2, "2*m"))


def _slice_model(size: int | str, **weights: Any) -> onnx.ModelProto:
    nodes = [*_scalars(), _node("Unsqueeze", ["n", "v0"], ["n1"]), _node("Slice", ["t", "v0", "n1", "v0"], ["y"])]
    inputs = {"x": (_FLOAT, ["n", "m"]), "t": (_FLOAT, [size])}
    return _model(nodes, inputs=inputs)


def test_a_slice_of_a_table_has_the_size_that_was_asked_for(
    check_model: Callable[..., IRModule], run: Callable[..., Sequence[Array]]
) -> None:
    table = np.arange(8, dtype=np.float32)
    for n in (0, 1, 8):
        module = check_model(_slice_model(8), {"x": np.zeros((n, 2), np.float32), "t": table})
    assert _result_type(module) == tensor(("n",))
    with pytest.raises(ExecutionError) as caught:
        run(module, {"x": np.zeros((9, 2), np.float32), "t": table})
    assert str(caught.value) == "op `strided_slice`: a bound lies outside axis 0 of size 8; got 9"


def test_a_slice_of_a_dynamic_axis_is_cut(check_model: Callable[..., IRModule]) -> None:
    for n, k in ((2, 5), (5, 5), (7, 5), (0, 3)):
        feeds = {"x": np.zeros((n, 2), np.float32), "t": np.arange(k, dtype=np.float32)}
        module = check_model(_slice_model("k"), feeds)
    assert _result_type(module) == tensor(("min(k, n)",))


@pytest.mark.parametrize(("opset", "first"), [(13, "n//2"), (18, "n - n//2")])
def test_a_dynamic_axis_splits_into_equal_parts(
    opset: int, first: str, check_model: Callable[..., IRModule], run: Callable[..., Sequence[Array]]
) -> None:
    attrs: dict[str, Any] = {"num_outputs": 2} if opset >= 18 else {}
    nodes = [_node("Split", ["x"], ["y", "z"], axis=0, **attrs)]
    model = _model(nodes, ("y", "z"), {"x": (_FLOAT, ["n", 2])}, opset)
    for n in (2, 6) if opset < 18 else (2, 5, 6):
        module = check_model(model, {"x": np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)})
    assert [_result_type(module, index) for index in (0, 1)] == [tensor((first, 2)), tensor(("n//2", 2))]
    if opset < 18:
        with pytest.raises(ExecutionError) as caught:
            run(module, {"x": np.zeros((5, 2), np.float32)})
        assert str(caught.value) == (
            "op `split`: the sizes of the parts do not add up to the size of the axis; got (2, 2), expected 5"
        )


def test_a_split_at_sizes(check_model: Callable[..., IRModule]) -> None:
    nodes = [
        *_scalars(),
        _node("Sub", ["m", "two"], ["rest"]),
        _node("Unsqueeze", ["rest", "v0"], ["rest1"]),
        _node("Concat", ["v2", "rest1"], ["sections"], axis=0),
        _node("Split", ["x", "sections"], ["y", "z"], axis=1),
    ]
    for m in (2, 5):
        module = check_model(_model(nodes, ("y", "z")), {"x": np.ones((3, m, 4), np.float32)})
    assert _result_type(module, 1) == tensor(("n", "m - 2", 4))


def test_sums_in_the_names_of_sizes_are_sums(run: Callable[..., Sequence[Array]]) -> None:
    inputs = {
        "mask": (_FLOAT, ["batch", "past_length + length"]),
        "x": (_FLOAT, ["batch", "length"]),
        "past": (_FLOAT, ["batch", "past_length"]),
        "other": (_FLOAT, ["batch", "a + length"]),
    }
    nodes = [_node("Concat", ["past", "x"], ["all"], axis=1), _node("Add", ["all", "mask"], ["y"])]
    module = from_onnx(_model(nodes, inputs=inputs))
    assert [param.type for param in module["main"].params] == [
        tensor(("batch", "past_length + length")),
        tensor(("batch", "length")),
        tensor(("batch", "past_length")),
        tensor(("batch", "a_length")),
    ]
    assert _result_type(module) == tensor(("batch", "length + past_length"))


def test_a_part_of_a_small_table_between_sizes_is_taken_when_the_model_runs(
    check_model: Callable[..., IRModule],
) -> None:
    nodes = [
        *_scalars(),
        _node("Unsqueeze", ["n", "v0"], ["first"]),
        _node("Add", ["first", "v2"], ["last"]),
        _node("Slice", ["table", "first", "last", "v0"], ["y"]),
    ]
    model = _model(nodes, weights={"table": np.arange(6)})
    for n in (0, 2, 4):
        module = check_model(model, {"x": np.zeros((n, 1, 4), np.float32)})
    assert _result_type(module) == tensor((2,), "int64")


@pytest.mark.parametrize("count", [40, 100])
def test_a_range_of_known_length_that_begins_at_a_size(count: int, check_model: Callable[..., IRModule]) -> None:
    nodes = [*_scalars(), _node("Add", ["n", "count"], ["last"]), _node("Range", ["n", "last", "one"], ["y"])]
    module = check_model(_model(nodes, weights={"count": np.array(count)}), {"x": np.zeros((3, 1, 4), np.float32)})
    assert _result_type(module) == tensor((count,), "int64")


def test_long_ranges_of_constants() -> None:
    nodes = [_node("Range", ["zero", "limit", "one"], ["y"])]
    for limit, ops in ((1000, []), (10**6, ["arange"])):
        module = from_onnx(_model(nodes, weights={"limit": np.array(limit)}))
        assert [binding.op.name for binding in module["main"].bindings] == ops
        assert _result_type(module) == tensor((limit,), "int64")


def test_an_expansion_between_two_sizes_is_checked_when_it_runs(
    check_model: Callable[..., IRModule], run: Callable[..., Sequence[Array]]
) -> None:
    nodes = [*_scalars(), _node("Unsqueeze", ["n", "v0"], ["n1"]), _node("Expand", ["t", "n1"], ["y"])]
    model = _model(nodes, inputs={"x": (_FLOAT, ["n", 2]), "t": (_FLOAT, ["k"])})
    for n, k in ((3, 3), (3, 1), (1, 3)):
        module = check_model(model, {"x": np.zeros((n, 2), np.float32), "t": np.ones(k, np.float32)})
    assert _result_type(module) == tensor(("broadcast(k, n)",))
    with pytest.raises(IRTypeError) as caught:
        run(module, {"x": np.zeros((3, 2), np.float32), "t": np.ones(2, np.float32)})
    assert str(caught.value) == "broadcast: sizes 2 and 3 do not fit; expected equal sizes, or a size of 1"
