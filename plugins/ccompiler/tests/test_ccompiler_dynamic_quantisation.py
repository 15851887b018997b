"""Models with activations quantised at run time: integer products with scales and zero points from data.

The pattern of ONNX Runtime's ``quantize_dynamic``: DynamicQuantizeLinear, MatMulInteger or ConvInteger, Cast, Mul by
both scales, Add. Products of integers are exact: results differ by the roundings of the ops around.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo import bert
from benchmarks.zoo.graph_builder import STYLES

NDArray = npt.NDArray[Any]


def _model(op: str, shape: list[Any], result: list[Any], weight: NDArray, scale: NDArray, **attrs: Any) -> Any:
    """Return a layer in the tool's form: a product with ``weight``, dequantised, and a bias."""
    rng = np.random.default_rng(1)
    channels = weight.shape[0] if op == "ConvInteger" else weight.shape[1]
    across = (1, channels, 1, 1) if op == "ConvInteger" else (channels,)
    arrays = {
        "w": weight,
        "ws": scale.astype(np.float32).reshape(across if scale.size > 1 else (1,)),
        "b": rng.standard_normal(across).astype(np.float32),
    }
    if weight.dtype == np.uint8:
        arrays["wz"] = np.array(120, np.uint8)
    elif op == "MatMulInteger":
        arrays["wz"] = np.array(0, np.int8)
    operands = ["q", "w", "z", *(["wz"] if "wz" in arrays else [])]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node(op, operands, ["i"], **attrs),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["both"]),
        helper.make_node("Mul", ["f", "both"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _weight(shape: tuple[int, ...], dtype: str) -> NDArray:
    limits = np.iinfo(dtype)
    # uint8 weights less their zero point are bytes with a sign: what the tool's reduced range gives.
    low, high = (limits.min, limits.max) if dtype == "int8" else (0, 240)
    return np.random.default_rng(2).integers(low, high, shape, endpoint=True).astype(dtype)


LAYERS = {
    "matmul": _model("MatMulInteger", ["n", 7, 24], ["n", 7, 20], _weight((24, 20), "int8"), np.full(1, 0.02)),
    "matmul, a scale for each column": _model(
        "MatMulInteger", ["n", 7, 24], ["n", 7, 20], _weight((24, 20), "int8"), np.linspace(0.01, 0.03, 20)
    ),
    "matmul, uint8": _model("MatMulInteger", ["n", 7, 24], ["n", 7, 20], _weight((24, 20), "uint8"), np.full(1, 0.02)),
    "convolution": _model(
        "ConvInteger", ["n", 3, 7, 8], ["n", 6, 7, 8], _weight((6, 3, 3, 3), "int8"), np.full(1, 0.02), pads=[1] * 4
    ),
    "convolution, uint8": _model(
        "ConvInteger",
        ["n", 3, 7, 8],
        ["n", 6, 4, 4],
        _weight((6, 3, 3, 3), "uint8"),
        np.full(1, 0.02),
        pads=[1] * 4,
        strides=[2, 2],
    ),
}


class Layer:
    """A layer, built for ccompiler and for the host."""

    def __init__(self, name: str) -> None:
        module = from_onnx(LAYERS[name])
        self.executable = byoc_core.build(module, ["ccompiler"])
        assert {row["outcome"] for row in self.executable.report_data["ops"]} <= {"ccompiler", "(view)"}
        self.run = byoc_core.VirtualMachine(self.executable)["main"]
        self.reference = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"]
        self.shape = [int(str(dim)) for dim in self.executable.functions["main"].inputs[0].shape[1:]]


@pytest.fixture(scope="module")
def layers() -> dict[str, Layer]:
    return {name: Layer(name) for name in LAYERS}


@pytest.mark.parametrize("name", LAYERS)
def test_products_are_computed_on_bytes(layers: dict[str, Layer], name: str) -> None:
    source = layers[name].executable.get_source()
    assert re.search(r"^static .*byte_(product|conv2d)", source, re.MULTILINE)


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_layer_equals_the_reference(layers: dict[str, Layer], name: str, data: st.DataObject) -> None:
    """Multiplying, adding and the product of both scales round: four roundings of terms as large as the largest sum."""
    layer = layers[name]
    count = data.draw(st.integers(1, 3))
    low, span = data.draw(st.floats(-50, 50, width=32)), data.draw(st.floats(0, 50, width=32))
    seed = data.draw(st.integers(0, 2**32))
    x = np.random.default_rng(seed).uniform(low, low + span, (count, *layer.shape)).astype(np.float32)
    actual, right = np.asarray(layer.run(x)), np.asarray(layer.reference(x))
    assert actual.shape == right.shape
    scale = float(np.abs(right).max()) + 3.0
    np.testing.assert_allclose(actual, right, rtol=0, atol=4 * 2.0**-23 * scale)


@pytest.mark.parametrize("style", ["exported17"])
@pytest.mark.parametrize(("per_channel", "bits"), [(False, 8), (False, 7), (True, 8), (True, 7)])
def test_a_transformer_of_the_usual_recipe_is_taken_whole(
    style: str, per_channel: bool, bits: int, tmp_path: Path
) -> None:
    """ONNX Runtime judges weights of seven bits: without VNNI it adds pairs of products in 16 bits, with saturation."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    onnxruntime = pytest.importorskip("onnxruntime")
    config = bert.SIZES["tiny"]
    onnx.save(bert.build_bert(config, STYLES[style]), tmp_path / "bert.onnx")
    quantised = tmp_path / "quantised.onnx"
    quantization.quantize_dynamic(
        tmp_path / "bert.onnx",
        quantised,
        weight_type=quantization.QuantType.QInt8,
        per_channel=per_channel,
        reduce_range=bits == 7,
    )
    num_products = sum(node.op_type == "MatMulInteger" for node in onnx.load(quantised).graph.node)
    assert num_products >= 12
    module = from_onnx(quantised)
    executable = byoc_core.build(module, ["ccompiler"])
    report = executable.report_data
    assert report["offloaded_share"] == 1.0
    assert [row["name"] for row in report["ops"] if row["outcome"] == "host"] == []
    calls = re.findall(r"^  \w+byte_product\w*\(.*;$", executable.get_source(), re.MULTILINE)
    assert len(calls) >= num_products
    inputs = bert.draw_bert_inputs(config, {"batch": 2, "sequence": 9}, 3)
    arrays = [inputs[spec.name] for spec in executable.functions["main"].inputs]
    actual = byoc_core.VirtualMachine(executable)["main"](*arrays)
    right = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](*arrays)
    peers = [right] + ([onnxruntime.InferenceSession(str(quantised)).run(None, inputs)] if bits == 7 else [])
    for peer in peers:
        for ours, other in zip(actual, peer, strict=True):
            # A rounding apart before a quantiser, a tie may go to the next level, 1/255 of the range, and pass through
            # a layer; away from ties all three agree to float32.
            error = np.abs(ours - other)
            assert np.median(error) <= 64 * 2.0**-24 * np.abs(other).max()
            assert error.max() <= np.abs(other).max() / 255
