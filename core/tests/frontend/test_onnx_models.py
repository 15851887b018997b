"""Whole models: names, symbols, shapes computed by nodes, weights, and the light models of the onnx package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.dims import symbol
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from byoc_core.ir.verifier import verify
from byoc_core.opset.types import TensorType, tensor
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo import light
from benchmarks.zoo.accuracy import judge
from core.tests.frontend.conftest import Array

pytestmark = pytest.mark.lowest

Dims = Sequence[int | str | None]


def _input(name: str, dims: Dims | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def _weight(name: str, array: npt.ArrayLike) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str] = ("y",),
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _types(module: IRModule) -> list[Any]:
    return [param.type for param in module["main"].params]


def _floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_names_of_the_model_are_kept_and_parameters_are_identifiers() -> None:
    nodes = [helper.make_node("Add", ["data:0", "class"], ["out/1"]), helper.make_node("Relu", ["w"], ["2"])]
    inputs = [_input("data:0", [2]), _input("class", [2]), _input("w", [2]), _input("data_0", [2])]
    module = from_onnx(_model(nodes, inputs, ["out/1", "2"], [_weight("w", np.ones(2, np.float32))]))
    main = module["main"]
    assert main.input_names == ("data:0", "class", "data_0")
    assert main.output_names == ("out/1", "2")
    assert [param.name for param in main.params] == ["data_0", "class_", "data_0_1"]
    verify(module)


def test_dynamic_sizes_become_symbols() -> None:
    nodes = [helper.make_node("Identity", ["a"], ["y"])]
    inputs = [
        _input("a", ["batch", None, 3]),
        _input("b", ["batch", "sequence length", "max", "2n"]),
        _input("c", ["sequence_length", None, -1, 0]),
        _input("d", None),
    ]
    module = from_onnx(_model(nodes, inputs))
    assert _types(module) == [
        tensor(("batch", "a_dim1", 3)),
        tensor(("batch", "sequence_length", "max_dim", "dim_2n")),
        tensor(("sequence_length_1", "c_dim1", "c_dim2", 0)),
        TensorType(None, "float32"),
    ]


def test_bindings_know_their_nodes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="first"), helper.make_node("Exp", ["h"], ["y"])]
    path.write_bytes(_model(nodes, [_input("x", [2])]).SerializeToString())
    for model in (path, str(path)):
        main = from_onnx(model)["main"]
        assert [str(binding.location) for binding in main.bindings] == ["net.onnx:first", "net.onnx:y"]


def test_path_bytes_and_proto_give_the_same_text(tmp_path: Path) -> None:
    model = _model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        [_input("x", ["n", 4])],
        weights=[_weight("w", _floats(3, 4)), _weight("b", _floats(3))],
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    before = model.SerializeToString()
    texts = {str(from_onnx(given)) for given in (path, path.read_bytes(), model)}
    assert len(texts) == 1
    assert model.SerializeToString() == before


def test_equal_weights_are_stored_once() -> None:
    weights = [_weight("a", np.ones(3, np.float32)), _weight("b", np.ones(3, np.float32))]
    nodes = [helper.make_node("Add", ["x", "a"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    assert len(from_onnx(_model(nodes, [_input("x", [3])], weights=weights)).constants) == 1


def test_nodes_out_of_order_are_sorted(check_model: Callable[..., IRModule]) -> None:
    nodes = [helper.make_node("Exp", ["h"], ["y"], name="late"), helper.make_node("Neg", ["x"], ["h"], name="early")]
    module = from_onnx(_model(nodes, [_input("x", [3])]))
    assert [binding.op.name for binding in module["main"].bindings] == ["negative", "exp"]


def test_an_output_may_be_an_input_or_a_constant(check_model: Callable[..., IRModule]) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["s"])]
    model = _model(nodes, [_input("x", [2, 3])], ["y", "s", "w"], [_weight("w", _floats(2))])
    check_model(model, {"x": _floats(2, 3)})


def test_local_functions_are_inlined(check_model: Callable[..., IRModule]) -> None:
    opset = helper.make_opsetid("", 17)
    body = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Add", ["t", "a"], ["r"])]
    function = helper.make_function("local", "Zero", ["a"], ["r"], body, [opset])
    graph = helper.make_graph(
        [helper.make_node("Zero", ["x"], ["h"], domain="local"), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [_input("x", [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(
        graph, opset_imports=[opset, helper.make_opsetid("local", 1)], functions=[function], ir_version=9
    )
    module = check_model(model, {"x": _floats(3)})
    assert [binding.op.name for binding in module["main"].bindings] == ["negative", "add", "nn.relu"]


def _reshape_by_shape() -> list[onnx.NodeProto]:
    """``x.reshape(x.shape[0], -1)`` as exporters write it."""
    return [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus_one"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]


def _reshape_by_arithmetic() -> list[onnx.NodeProto]:
    """``x.reshape(n * c, h * w // 2, 2)``."""
    return [
        helper.make_node("Shape", ["x"], ["s0"]),
        helper.make_node("Cast", ["s0"], ["s"], to=TensorProto.INT64),
        helper.make_node("Slice", ["s", "axes", "two"], ["front"]),
        helper.make_node("Slice", ["s", "two", "four"], ["back"]),
        helper.make_node("Gather", ["front", "axes"], ["n"]),
        helper.make_node("Gather", ["front", "one"], ["c"]),
        helper.make_node("Mul", ["n", "c"], ["nc"]),
        helper.make_node("Gather", ["back", "zero"], ["h"]),
        helper.make_node("Gather", ["back", "minus_one_scalar"], ["w"]),
        helper.make_node("Mul", ["h", "w"], ["hw"]),
        helper.make_node("Div", ["hw", "two_scalar"], ["half"]),
        helper.make_node("Reshape", ["half", "minus_one"], ["half1"]),
        helper.make_node("Concat", ["nc", "half1", "two"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]


def _expand_by_shape() -> list[onnx.NodeProto]:
    """``v.expand(n, -1)`` as exporters write it: -1 keeps the size."""
    return [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "axes"], ["n"]),
        helper.make_node("Concat", ["n", "minus_one"], ["wanted"], axis=0),
        helper.make_node("Equal", ["wanted", "minus_one_pair"], ["keeps"]),
        helper.make_node("Where", ["keeps", "ones", "wanted"], ["target"]),
        helper.make_node("Expand", ["v", "target"], ["wide"]),
        helper.make_node("Shape", ["wide"], ["ws"]),
        helper.make_node("ConstantOfShape", ["ws"], ["zeros"]),
        helper.make_node("Add", ["wide", "zeros"], ["y"]),
    ]


_SHAPE_WEIGHTS: Mapping[str, Any] = {
    "zero": np.array(0, np.int64),
    "minus_one_scalar": np.array(-1, np.int64),
    "two_scalar": np.array(2, np.int64),
    "axes": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "four": np.array([4], np.int64),
    "minus_one": np.array([-1], np.int64),
    "minus_one_pair": np.array([-1, -1], np.int64),
    "ones": np.array([1, 1], np.int64),
    "v": np.arange(3, dtype=np.float32),
}

_N = symbol("n")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_reshape_by_shape, (_N, 96)),
        (_reshape_by_arithmetic, (3 * _N, 16, 2)),
        (_expand_by_shape, (_N, 3)),
    ],
)
def test_shapes_computed_by_nodes_stay_symbolic(
    build: Callable[[], list[onnx.NodeProto]], expected: tuple[Any, ...], check_model: Callable[..., IRModule]
) -> None:
    weights = [_weight(name, array) for name, array in _SHAPE_WEIGHTS.items()]
    model = _model(build(), [_input("x", ["n", 3, 4, 8])], weights=weights)
    for batch in (1, 2, 5):
        module = check_model(model, {"x": _floats(batch, 3, 4, 8)})
    (result,) = module["main"].result_types
    assert isinstance(result, TensorType)
    assert result.shape == expected
    assert not {"concat", "take", "equal", "where"} & {binding.op.name for binding in module["main"].bindings}


def test_constant_of_shape_is_a_weight() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5])),
        helper.make_node("Gemm", ["x", "w"], ["y"]),
    ]
    module = from_onnx(_model(nodes, [_input("x", ["n", 4])], weights=[_weight("s", np.array([4, 5], np.int64))]))
    (array,) = module.constants.values()
    np.testing.assert_array_equal(array, np.full((4, 5), 0.5, np.float32))
    assert [binding.op.name for binding in module["main"].bindings] == ["matmul"]


@pytest.mark.parametrize(
    ("data_type", "field", "values", "expected"),
    [
        (TensorProto.FLOAT16, "int32_data", [0x3C00, 0xC000], np.array([1, -2], np.float16)),
        (TensorProto.BOOL, "int32_data", [1, 0], np.array([True, False])),
        (TensorProto.UINT8, "int32_data", [255, 0], np.array([255, 0], np.uint8)),
        (TensorProto.INT8, "int32_data", [-1, 3], np.array([-1, 3], np.int8)),
        (TensorProto.UINT32, "uint64_data", [2**32 - 1, 0], np.array([2**32 - 1, 0], np.uint32)),
        (TensorProto.DOUBLE, "double_data", [0.1, 2.0], np.array([0.1, 2.0])),
        (TensorProto.FLOAT, "float_data", [0.5, 2.0], np.array([0.5, 2.0], np.float32)),
        (TensorProto.INT64, "int64_data", [2**40, -1], np.array([2**40, -1])),
    ],
)
def test_weights_in_typed_fields(data_type: int, field: str, values: list[Any], expected: Array) -> None:
    weight = TensorProto(name="w", data_type=data_type, dims=[2])
    getattr(weight, field).extend(values)
    model = _model([helper.make_node("Identity", ["w"], ["y"])], [], weights=[weight])
    (array,) = from_onnx(model).constants.values()
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == expected.dtype


def test_bfloat16_weights() -> None:
    weight = TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[2], raw_data=b"\x80\x3f\x00\xc0")
    module = from_onnx(_model([helper.make_node("Identity", ["w"], ["y"])], [], weights=[weight]))
    (array,) = module.constants.values()
    np.testing.assert_array_equal(array.astype(np.float32), [1, -2])
    assert module["main"].result_types == (tensor((2,), "bfloat16"),)


def test_ten_thousand_nodes_in_a_chain() -> None:
    count = 10_000
    nodes = [helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(count)]
    module = from_onnx(_model(nodes, [_input("v0", ["n", 4])], [f"v{count}"]))
    assert len(module["main"].bindings) == count
    assert module["main"].result_types == (tensor(("n", 4)),)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_light_model_equals_onnx_runtime(name: str, run: Callable[..., Sequence[Array]]) -> None:
    """A model without normalisation, a model with batch normalisation and grouped convolution, a model with LRN."""
    model = light.load_light_model(f"light_{name}")
    first, second = (light.draw_inputs(model, seed) for seed in (1, 2))
    module = from_onnx(model)
    expected, other = (run(model, feeds)[:1] for feeds in (first, second))
    accuracy = judge(run(module, first)[:1], expected, other, run(module, first, exact=True)[:1])
    assert accuracy.is_right, str(accuracy)


@pytest.mark.parametrize(
    "name",
    [
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    ],
)
def test_light_models_import_and_verify(name: str) -> None:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    module = from_onnx(path)
    verify(module)
    assert len(module["main"].params) == 1
