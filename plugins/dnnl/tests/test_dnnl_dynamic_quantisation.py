"""Networks that are quantised while they run: products of integers with dynamic scales and zero points."""

from __future__ import annotations

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

DEPTH, COLUMNS = 64, 24
"""Sums of so few products of bytes are below 2**24: float32 holds them."""


def _layer(weights: NDArray, zero: NDArray | None, scale: NDArray, shape: list[Any]) -> bytes:
    """Return a dense layer as onnxruntime's quantize_dynamic writes it."""
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
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
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
def test_products_of_integers_are_those_of_the_reference(dtype: str, zero: Any, rows: Any, size: str) -> None:
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
