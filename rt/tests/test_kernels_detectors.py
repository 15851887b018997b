"""Detectors and other models with data-dependent ops, compiled by ccompiler: the C runtime agrees with Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import VirtualMachine
from byoc_core.dtypes import is_float
from byoc_core.native.toolchain import Toolchain
from onnx import TensorProto, helper, numpy_helper

from rt.tests.runner import NativeLibrary
from rt.tests.saved import load_saved, results_of

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Nodes = list[onnx.NodeProto]


def model_of(
    nodes: Nodes,
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, tuple[int, Sequence[Any]]],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    """Return a model of opset 17."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, *type_) for name, type_ in inputs.items()],
        [helper.make_tensor_value_info(name, *type_) for name, type_ in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """Return a node; names are separated by spaces."""
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attrs)


def build_two_stage_detector() -> onnx.ModelProto:
    """Return a detector in two stages: proposals above a threshold, their best, suppression, and pooled regions."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3), np.float32) * 0.3,
        "w_score": rng.standard_normal((1, 8, 1, 1), np.float32),
        "w_box": rng.standard_normal((4, 8, 1, 1), np.float32),
        "flat_scores": np.array([-1], np.int64),
        "flat_boxes": np.array([-1, 4], np.int64),
        "threshold": np.array(0.4, np.float32),
        "most": np.array([30], np.int64),
        "scale": np.array([12], np.float32),
        "one": np.array([1], np.int64),
        "zero": np.array([0], np.int64),
        "unit": np.array([0], np.int64),
        "limit": np.array([10], np.int64),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
        "column": np.array(2, np.int64),
    }
    nodes = [
        node("Conv", "image w", "features_raw", pads=[1, 1, 1, 1]),
        node("Relu", "features_raw", "features"),
        node("Conv", "features w_score", "scores_raw"),
        node("Sigmoid", "scores_raw", "scores_map"),
        node("Reshape", "scores_map flat_scores", "scores"),
        node("Conv", "features w_box", "boxes_raw"),
        node("Transpose", "boxes_raw", "boxes_last", perm=[0, 2, 3, 1]),
        node("Reshape", "boxes_last flat_boxes", "boxes_flat"),
        node("Abs", "boxes_flat", "boxes_positive"),
        node("Mul", "boxes_positive scale", "boxes"),
        node("Greater", "scores threshold", "is_proposed"),
        node("NonZero", "is_proposed", "proposed_row"),
        node("Squeeze", "proposed_row unit", "proposed"),
        node("Gather", "scores proposed", "proposal_scores"),
        node("Gather", "boxes proposed", "proposal_boxes"),
        node("Shape", "proposal_scores", "number"),
        node("Min", "number most", "k"),
        node("TopK", "proposal_scores k", "top_scores top"),
        node("Gather", "proposal_boxes top", "top_boxes"),
        node("Unsqueeze", "top_boxes zero", "nms_boxes"),
        node("Unsqueeze", "top_scores zero", "nms_scores_2d"),
        node("Unsqueeze", "nms_scores_2d zero", "nms_scores"),
        node("NonMaxSuppression", "nms_boxes nms_scores limit overlap least", "selected"),
        node("Gather", "selected column", "kept", axis=1),
        node("Gather", "top_boxes kept", "final_boxes"),
        node("Gather", "top_scores kept", "final_scores"),
        node("Mul", "kept kept_zero", "batches"),
        node("RoiAlign", "features final_boxes batches", "regions", output_height=3, output_width=2, sampling_ratio=2),
        node("ReduceMean", "regions", "pooled", axes=[2, 3], keepdims=0),
    ]
    constants["kept_zero"] = np.array(0, np.int64)
    outputs: dict[str, tuple[int, list[Any]]] = {
        "final_boxes": (FLOAT, ["k", 4]),
        "final_scores": (FLOAT, ["k"]),
        "pooled": (FLOAT, ["k", 8]),
    }
    return model_of(nodes, {"image": (FLOAT, [1, 3, 12, 16])}, outputs, constants)


def build_text_filter() -> onnx.ModelProto:
    """Return a model of distinct tokens: unique ids, their counts, and a projection of the frequent ones."""
    rng = np.random.default_rng(4)
    constants = {
        "table": rng.standard_normal((20, 6), np.float32),
        "two": np.array(2, np.int64),
        "w": rng.standard_normal((6, 3), np.float32),
    }
    nodes = [
        node("Unique", "ids", "tokens first inverse counts", sorted=1),
        node("Gather", "table tokens", "embedded"),
        node("GreaterOrEqual", "counts two", "is_frequent"),
        node("Compress", "embedded is_frequent", "frequent", axis=0),
        node("MatMul", "frequent w", "projected"),
        node("Softmax", "projected", "shares", axis=1),
        node("ReduceSum", "shares", "total", keepdims=0),
        node("Gather", "counts inverse", "count_of_each"),
    ]
    outputs: dict[str, tuple[int, list[Any]]] = {
        "shares": (FLOAT, ["f", 3]),
        "total": (FLOAT, []),
        "count_of_each": (INT64, ["n"]),
    }
    return model_of(nodes, {"ids": (INT64, ["n"])}, outputs, constants)


def build_positions() -> onnx.ModelProto:
    """Return a model of the first numbers of a vector: as many as the second input says, moved, scattered, summed."""
    nodes = [
        node("Range", "start number step", "indices"),
        node("Gather", "x indices", "first"),
        node("Cast", "indices", "positions", to=FLOAT),
        node("Add", "first positions", "moved"),
        node("ScatterElements", "moved indices first", "written", axis=0, reduction="add"),
        node("CumSum", "written start", "sums"),
        node("ArgMax", "sums", "best", axis=0, keepdims=0),
        node("Greater", "written half", "is_large"),
        node("Where", "is_large written moved", "chosen"),
    ]
    constants = {"start": np.array(0, np.int64), "step": np.array(1, np.int64), "half": np.array(0.5, np.float32)}
    outputs: dict[str, tuple[int, list[Any]]] = {"sums": (FLOAT, ["k"]), "best": (INT64, []), "chosen": (FLOAT, ["k"])}
    return model_of(nodes, {"x": (FLOAT, ["n"]), "number": (INT64, [])}, outputs, constants)


def images() -> list[list[npt.NDArray[Any]]]:
    rng = np.random.default_rng(5)
    quiet = np.zeros((1, 3, 12, 16), np.float32)
    return [[rng.standard_normal((1, 3, 12, 16), np.float32) * scale] for scale in (1, 0.1, 3)] + [[quiet]]


def texts() -> list[list[npt.NDArray[Any]]]:
    rng = np.random.default_rng(6)
    return [[rng.integers(0, 20, n)] for n in (1, 7, 40, 2)]


def lines() -> list[list[npt.NDArray[Any]]]:
    rng = np.random.default_rng(7)
    numbers = ((3, 3), (3, 1), (50, 20), (4, 4))
    return [[rng.integers(-4, 5, n).astype(np.float32), np.array(k, np.int64)] for n, k in numbers]


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[], list[list[npt.NDArray[Any]]]]]] = {
    "two-stage detector": (build_two_stage_detector, images),
    "text filter": (build_text_filter, texts),
    "positions": (build_positions, lines),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_with_sizes_of_the_data(native: NativeLibrary, tmp_path: Path, name: str) -> None:
    build, calls = MODELS[name]
    executable = byoc_core.build(byoc_core.from_onnx(build()), backends=["ccompiler"])
    assert {module.type_key for module in executable.modules} == {"csource", "graph"}
    machine, function = VirtualMachine(executable), load_saved(executable, native, tmp_path)["main"]
    for inputs in calls():
        expected, found = results_of(machine, "main", inputs), function(*inputs)
        assert len(found) == len(expected)
        for have, want in zip(found, expected, strict=True):
            assert (have.dtype, have.shape) == (want.dtype, want.shape)
            error = np.abs(have.astype(np.float64) - want.astype(np.float64))
            assert np.all(error <= (allowed_error(inputs) if is_float(want.dtype.name) else 0))


def allowed_error(inputs: list[npt.NDArray[Any]]) -> float:
    """Return the bound for sums of up to 64 terms, each at most the largest input times 27 weights below 2.

    Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: both machines are off by at most this much.
    """
    terms, unit = 64, 2.0**-24
    largest = max((float(np.abs(array).max(initial=0)) for array in inputs), default=0.0) * 27 * 2
    return 2 * terms * unit / (1 - terms * unit) * terms * max(largest, 1.0)
