"""Small models with seeded weights: a classifier of texts, a detector with non-maximum suppression, a decoder."""

from __future__ import annotations

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
from byoc_core.artifact import Executable
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.bert import SIZES, build_bert
from benchmarks.zoo.gpt2 import SIZES as DECODERS
from benchmarks.zoo.gpt2 import build_gpt2
from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import convolution

__all__ = [
    "NUM_LABELS",
    "build_classifier",
    "build_decoder",
    "build_detector",
    "build_executable",
    "draw_image",
    "draw_texts",
]

NUM_LABELS = 5
_ENCODER = SIZES["tiny"]
_SIDE, _CELLS = 32, 8
_CLASSES, _CANDIDATES = 3, 24


def build_classifier() -> onnx.ModelProto:
    """Return an encoder of texts of symbolic number and length, with a dense layer for the scores of labels."""
    model = build_bert(_ENCODER, STYLES["exported17"])
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((_ENCODER.hidden, NUM_LABELS), np.float32)
    bias = rng.standard_normal(NUM_LABELS, np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in (("head.w", weight), ("head.b", bias)))
    model.graph.node.extend(
        [
            helper.make_node("MatMul", ["pooler_output", "head.w"], ["head.product"]),
            helper.make_node("Add", ["head.product", "head.b"], ["scores"]),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", NUM_LABELS]))
    onnx.checker.check_model(model)
    return model


def draw_texts(num_texts: int, length: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the ids of texts; all texts but the first end in padding (0), if the length allows padding."""
    ids = np.random.default_rng(seed).integers(1, _ENCODER.vocabulary, (num_texts, length))
    lengths = np.maximum(1, length - np.arange(num_texts))
    return np.where(np.arange(length) < lengths[:, None], ids, 0)


def build_detector() -> onnx.ModelProto:
    """Return a detector: a box in each cell of an image, the best boxes of all classes, suppression by overlap."""
    graph = GraphBuilder("detector", STYLES["exported17"])
    x = graph.input("image", np.float32, 1, 3, _SIDE, _SIDE)
    for index, (inputs, outputs) in enumerate(((3, 8), (8, 16))):
        with graph.scope(f"backbone.{index}"):
            x = graph.op("Relu", convolution(graph, x, inputs, outputs, 3, stride=2))
    count = _CELLS * _CELLS
    with graph.scope("scores"):
        scores = graph.op("Sigmoid", graph.reshape(convolution(graph, x, 16, _CLASSES, 1), 1, _CLASSES, count))
    with graph.scope("boxes"):
        sides = graph.op("Sigmoid", graph.reshape(convolution(graph, x, 16, 4, 1), 1, 4, count))
        sides = graph.op("Transpose", sides, perm=[0, 2, 1])
        reach = graph.op("Mul", sides, graph.initializer("reach", np.array([-8, -8, 8, 8], np.float32)))
        boxes = graph.op("Add", reach, graph.initializer("centres", _centres()))
    with graph.scope("selection"):
        highest = graph.op("ReduceMax", scores, axes=[1], keepdims=0)
        _, best = graph.ops("TopK", highest, graph.constant([_CANDIDATES]), num_outputs=2, axis=1)
        best = graph.reshape(best, _CANDIDATES)
        scores, boxes = graph.op("Gather", scores, best, axis=2), graph.op("Gather", boxes, best, axis=1)
        limits = graph.constant([9]), graph.constant([0.2], np.float32), graph.constant([0.75], np.float32)
        selected = graph.op("NonMaxSuppression", boxes, scores, *limits)
        labels, positions = (graph.op("Gather", selected, graph.constant(column), axis=1) for column in (1, 2))
        boxes = graph.op("Gather", graph.reshape(boxes, _CANDIDATES, 4), positions, axis=0)
    graph.output("boxes", boxes, np.float32, "objects", 4)
    graph.output("scores", graph.op("GatherND", scores, selected), np.float32, "objects")
    graph.output("labels", labels, np.int64, "objects")
    return graph.finish()


def _centres() -> npt.NDArray[np.float32]:
    """Return the centre of each cell as ``y, x, y, x``."""
    axis = (np.arange(_CELLS, dtype=np.float32) + 0.5) * (_SIDE / _CELLS)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([y, x, y, x], axis=-1).reshape(1, _CELLS * _CELLS, 4).astype(np.float32)


def draw_image(seed: int) -> npt.NDArray[np.float32]:
    """Return the image of a detector."""
    return np.random.default_rng(seed).standard_normal((1, 3, _SIDE, _SIDE), np.float32)


def build_decoder() -> Executable:
    """Compile a decoder that keeps its keys and values from call to call."""
    model = build_gpt2(DECODERS["tiny"], STYLES["exported17"])
    caches = [(name, name.replace("past", "present")) for name in (v.name for v in model.graph.input) if "past" in name]
    return byoc_core.build(byoc_core.from_onnx(model, states=caches), backends=["ccompiler"])


def build_executable(model: onnx.ModelProto) -> Executable:
    """Compile a model by ccompiler, and leave all other ops to the host."""
    return byoc_core.build(byoc_core.from_onnx(model), backends=["ccompiler"])
