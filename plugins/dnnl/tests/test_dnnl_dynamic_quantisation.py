"""Networks quantised at run time: products of integers with dynamic scales and zero points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_dnnl.engine import DnnlModule, open_engine
from byoc_dnnl.precision import multiplies_bytes
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.networks import NETWORKS
from plugins.dnnl.tests.dnnl_region import UNIT, NDArray
from plugins.dnnl.tests.narrow_oracle import gamma

DEPTH, COLUMNS = 64, 24
"""Sums of this few products of bytes are below 2**24, so exact in float32."""


def _layer(weights: NDArray, zero: NDArray | None, scale: NDArray, shape: list[Any]) -> bytes:
    """Return a dense layer in the form of onnxruntime's quantize_dynamic."""
    bias = np.linspace(-1, 1, COLUMNS, dtype=np.float32)
    constants = {"w": weights, "s": scale, "b": bias, **({} if zero is None else {"z": zero})}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "w", "qz", *([] if zero is None else ["z"])], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["qs", "s"], ["t"]),
        helper.make_node("Mul", ["f", "t"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    return _model(nodes, shape, constants)


def _model(
    nodes: list[Any],
    shape: Sequence[int | str],
    constants: dict[str, Any],
    given: int = TensorProto.FLOAT,
    made: int = TensorProto.FLOAT,
) -> bytes:
    """Return the model of ``y`` from ``x``, of these element types."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", given, shape)],
        [helper.make_tensor_value_info("y", made, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _run(model: bytes, backends: list[str], x: NDArray) -> tuple[NDArray, str]:
    module = byoc_core.from_onnx(model)
    executable = byoc_core.build(module, backends=backends, fallback="error" if backends else "allow")
    (found,) = [byoc_core.VirtualMachine(executable).run("main", {"x": x})]
    sources = [module.get_source() for module in executable.modules if isinstance(module, DnnlModule)]
    return np.asarray(found), "\n".join(sources)


_INPUTS = {
    "normal": 1.0,
    "large": 1e30,
    "small": 1e-30,
    "subnormal": 1e-41,
    "zeros": 0.0,
}


@pytest.mark.parametrize("size", _INPUTS)
@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("int8", None), ("int8", 0), ("int8", 7), ("uint8", 128), ("uint8", 3), ("int8", "column"), ("uint8", "column")],
)
def test_products_of_integers_are_those_of_the_reference(
    dtype: str, zero: int | str | None, rows: int | str, size: str
) -> None:
    """Integers are the same; their sums are exact, multiplied and added to with a rounding each."""
    generator = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    weights = generator.integers(limits.min + (dtype == "int8"), limits.max + 1, (DEPTH, COLUMNS)).astype(dtype)
    middle = 0 if dtype == "int8" else 128
    point = generator.integers(middle - 9, middle + 9, COLUMNS).astype(dtype) if zero == "column" else zero
    scale = generator.uniform(0.01, 0.02, COLUMNS if zero == "column" else ()).astype(np.float32)
    model = _layer(weights, None if point is None else np.asarray(point, dtype), np.asarray(scale), [rows, DEPTH])
    x = (generator.standard_normal((3, DEPTH)) * _INPUTS[size]).astype(np.float32)
    (found, source), (expected, _) = _run(model, ["dnnl"], x), _run(model, [], x)
    bias = np.linspace(-1, 1, COLUMNS, dtype=np.float32)
    allowed = 4 * UNIT * (abs(expected.astype(np.float64) - bias) + abs(bias))
    assert (abs(found.astype(np.float64) - expected) <= allowed).all()
    if rows == 3 and zero in (None, 0) and dtype == "int8" and multiplies_bytes(open_engine().isa):
        assert any("matmul" in line and ":uint8" in line and ":int8" in line for line in source.splitlines())


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
def test_a_quantised_transformer_is_taken(weights: str, per_channel: bool, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    path = tmp_path / "quantised.onnx"
    onnx.save(NETWORKS["bert"].build("tiny", "exported17"), tmp_path / "float.onnx")
    kind = getattr(quantization.QuantType, weights)
    quantization.quantize_dynamic(tmp_path / "float.onnx", path, weight_type=kind, per_channel=per_channel)
    report = byoc_core.build(byoc_core.from_onnx(path.read_bytes()), backends=["dnnl"]).report_data
    assert report["offloaded_share"] > 0.99, report["summary"]


SIDE = 600
"""Byte weights with this many rows and columns exceed the limit of constant folding as int32."""


@pytest.mark.parametrize(
    ("shape", "is_taken"),
    [
        ((), True),
        ((1,), True),
        ((1, 1), True),
        ((SIDE,), True),
        ((1, SIDE), True),
        ((SIDE, 1), False),
        ((1, 1, 1), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_zero_points_of_weights_that_are_not_folded(dtype: str, shape: tuple[int, ...], is_taken: bool) -> None:
    """Sums are below 2**24, so each result is exact, including a zero point for each row of a square matrix."""
    generator = np.random.default_rng(0)
    middle = 0 if dtype == "int8" else 128
    weights = generator.integers(middle - 15, middle + 15, (SIDE, SIDE)).astype(dtype)
    zero = generator.integers(middle - 9, middle + 9, shape).astype(dtype)
    x = generator.integers(0, 200, (3, SIDE)).astype(np.uint8)
    nodes = [helper.make_node("Cast", [name], [name + "32"], to=TensorProto.INT32) for name in ("x", "zx", "w", "zw")]
    nodes += [
        helper.make_node("Sub", ["x32", "zx32"], ["left"]),
        helper.make_node("Sub", ["w32", "zw32"], ["right"]),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"w": weights, "zw": zero, "zx": np.asarray([100], np.uint8)}
    model = _model(nodes, [3, SIDE], constants, TensorProto.UINT8)
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=["dnnl"])
    assert (executable.report_data["offloaded_share"] > 0.99) == is_taken
    found = byoc_core.VirtualMachine(executable).run("main", {"x": x})
    expected = (x.astype(np.int64) - 100) @ (weights.astype(np.int64) - zero.astype(np.int64))
    assert abs(expected).max() < 1 << 24
    np.testing.assert_array_equal(np.asarray(found), expected.astype(np.float32))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_large_layers_as_onnxruntime_quantises_them_are_taken(kind: str, per_channel: bool, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    weights = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    (tmp_path / "f.onnx").write_bytes(
        _model([helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", SIDE], {"w": weights})
    )
    weight_type = getattr(quantization.QuantType, kind)
    quantization.quantize_dynamic(
        tmp_path / "f.onnx", tmp_path / "q.onnx", weight_type=weight_type, per_channel=per_channel
    )
    report = byoc_core.build(byoc_core.from_onnx((tmp_path / "q.onnx").read_bytes()), backends=["dnnl"]).report_data
    assert report["offloaded_share"] > 0.99, report["summary"]


FILTERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((24, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "uneven": ((7, 8, 3, 2), {"pads": [0, 2, 1, 0], "strides": [1, 2], "dilations": [2, 3]}),
    "groups": ((24, 2, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "depthwise": ((8, 1, 3, 3), {"group": 8}),
    "one axis": ((24, 8, 3), {"pads": [1, 1]}),
    "three axes": ((5, 8, 2, 1, 2), {"strides": [1, 2, 1]}),
}


@pytest.mark.parametrize("zero", [None, 128, "filter"])
@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("kind", FILTERS)
def test_convolutions_of_integers_are_those_of_the_reference(
    kind: str, batch: int | str, zero: int | str | None
) -> None:
    """Sums are below 2**24, so exact; scale and bias round once each."""
    shape, attrs = FILTERS[kind]
    generator = np.random.default_rng(0)
    dtype = "int8" if zero is None else "uint8"
    filters = generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    point = generator.integers(120, 136, shape[0]).astype(dtype) if zero == "filter" else zero
    size = (8, *(9 - axis for axis in range(len(shape) - 2)))
    constants = {"w": filters, "s": np.float32(0.01)} | ({} if point is None else {"z": np.asarray(point, dtype)})
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        helper.make_node("ConvInteger", ["q", "w", "qz"] + ["z"] * (point is not None), ["p"], **attrs),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["qs", "s"], ["t"]),
        helper.make_node("Mul", ["f", "t"], ["y"]),
    ]
    x = generator.standard_normal((2, *size)).astype(np.float32)
    model = _model(nodes, [batch, *size], constants)
    (found, _), (expected, _) = _run(model, ["dnnl"], x), _run(model, [], x)
    assert (abs(found.astype(np.float64) - expected) <= 4 * UNIT * abs(expected)).all()


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
def test_quantised_operators_are_taken(op: str) -> None:
    """The operators of a static quantisation: a bias of int32 is added to the sums, then quantised again."""
    generator = np.random.default_rng(0)
    filters = generator.integers(0, 256, (6, 8, 3, 3) if op == "QLinearConv" else (64, 24)).astype(np.uint8)
    arrays = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "w": filters,
        "ws": np.float32(0.01),
        "wz": np.uint8(131),
        "ys": np.float32(0.3),
        "yz": np.uint8(118),
        "b": generator.integers(-3000, 3000, 6, np.int32),
    }
    names = [*arrays][: 8 if op == "QLinearConv" else 7]
    node = helper.make_node(op, ["x", *names], ["y"])
    shape = (2, 8, 9, 9) if op == "QLinearConv" else (5, 64)
    constants = {name: arrays[name] for name in names}
    model = _model([node], shape, constants, TensorProto.UINT8, TensorProto.UINT8)
    x = generator.integers(0, 256, shape).astype(np.uint8)
    (found, _), (expected, _) = _run(model, ["dnnl"], x), _run(model, [], x)
    assert len(np.unique(expected)) > 50
    assert abs(found.astype(int) - expected).max() <= 1  # a quotient near a tie
    assert np.mean(found == expected) > 0.99


@pytest.mark.parametrize("zero", [None, 128, [127, 128, 129], [0, 255, 128]], ids=str)
@pytest.mark.parametrize("depth", [64, 1024, 4096])
def test_sums_that_cancel_are_as_exact_as_those_of_float32(depth: int, zero: int | list[int] | None) -> None:
    """Below 2**24 all partial sums are exact, so the result is; else the error is relative to the magnitudes."""
    weights = np.full((depth, 3), 1, np.uint8)
    weights[: depth // 2], weights[-1] = 255, 7
    if zero is None:
        weights = (weights.astype(np.int16) - 128).astype(np.int8)
    constants: dict[str, Any] = {"w": weights, "zx": np.uint8(0)}
    constants |= {} if zero is None else {"zw": np.asarray(zero, np.uint8)}
    inputs = ["x", "w", "zx", *(["zw"] if zero is not None else [])]
    nodes = [
        helper.make_node("MatMulInteger", inputs, ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    executable = byoc_core.build(
        byoc_core.from_onnx(_model(nodes, [2, depth], constants, TensorProto.UINT8)), backends=["dnnl"]
    )
    executable.require_offload(0.99)
    x = np.full((2, depth), 255, np.uint8)
    found = np.asarray(byoc_core.VirtualMachine(executable)["main"](x)).astype(np.float64)
    left, right = x.astype(np.int64), weights.astype(np.int64) - (0 if zero is None else np.asarray(zero))
    magnitude = left @ abs(right)
    is_small = magnitude <= 1 << 24
    assert is_small.all() == (depth == 64)
    assert (abs(found - left @ right) <= np.where(is_small, 0, gamma(depth) * magnitude)).all()


@pytest.mark.parametrize("offset", [10, 50, 100, 200])
@pytest.mark.parametrize("depth", [256, 8192])
def test_a_bias_that_cancels_a_sum_is_rounded_with_it(depth: int, offset: int) -> None:
    filters = np.full((1, depth, 1, 1), 127, np.int8)
    total = 255 * 127 * depth
    constants = {
        "xs": np.float32(1),
        "xz": np.uint8(0),
        "w": filters,
        "ws": np.float32(1),
        "wz": np.int8(0),
        "ys": np.float32(1),
        "yz": np.uint8(0),
        "b": np.array([offset - total], np.int32),
    }
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"])
    model = _model([node], (1, depth, 1, 1), constants, TensorProto.UINT8, TensorProto.UINT8)
    x = np.full((1, depth, 1, 1), 255, np.uint8)
    (found, _), (expected, _) = _run(model, ["dnnl"], x), _run(model, [], x)
    assert expected.item() == offset
    # The sum, the bias and their sum are rounded.
    assert abs(int(found.item()) - offset) <= (0 if 2 * total <= 1 << 24 else 3 * UNIT * total)
