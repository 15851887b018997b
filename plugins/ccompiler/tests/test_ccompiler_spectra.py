"""Models of speech with a spectrum at the front: the transforms of frames are convolutions, and run in C."""

from __future__ import annotations

import warnings

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_FRAME, _STEP, _BANDS = 64, 16, 12


def _log_mel_model(length: int | str) -> onnx.ModelProto:
    """Return a model of log-mel energies: STFT, power, mel bands and logarithm."""
    arrays = {
        "step": np.array(_STEP),
        "window": np.hanning(_FRAME).astype(np.float32),
        "bands": np.array(_BANDS),
        "frame": np.array(_FRAME),
        "rate": np.array(8000),
        "low": np.array(60, np.float32),
        "high": np.array(3800, np.float32),
        "axis": np.array([3]),
        "least": np.array(1e-6, np.float32),
    }
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["spectrum"], name="spectrum"),
        helper.make_node("Mul", ["spectrum", "spectrum"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axis"], ["power"], keepdims=0),
        helper.make_node("MelWeightMatrix", ["bands", "frame", "rate", "low", "high"], ["weights"]),
        helper.make_node("MatMul", ["power", "weights"], ["energies"]),
        helper.make_node("Add", ["energies", "least"], ["positive"]),
        helper.make_node("Log", ["positive"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "log_mel",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch" if length == "length" else 2, length, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None, _BANDS])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("length", [800, "length"])
def test_a_front_end_of_spectra_runs_in_c(length: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable = byoc_core.build(from_onnx(_log_mel_model(length)), ["ccompiler"])
    places = {row["op"]: row["outcome"] for row in executable.report_data["ops"]}
    assert places["nn.conv1d"] == places["matmul"] == "ccompiler"
    assert "dft" not in places
    run = byoc_core.VirtualMachine(executable)["main"]
    generator = np.random.default_rng(3)
    for shape in ((2, 800, 1), *(((1, 64, 1), (3, 1000, 1)) if length == "length" else ())):
        x = generator.standard_normal(shape).astype(np.float32)
        (wanted,) = ReferenceEvaluator(_log_mel_model(length)).run(None, {"x": x})
        np.testing.assert_allclose(np.asarray(run(x)), np.asarray(wanted), rtol=0, atol=1e-3)
