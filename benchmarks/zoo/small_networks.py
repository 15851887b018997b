"""Small networks with seeded weights: perceptron, LeNet-5 (LeCun et al. 1998) on images of 28 by 28, LSTM, GRU, tagger.

Inputs: ``x`` ``(rows, 784)``, or ``image`` ``(1, 1, 28, 28)``; output ``logits`` of 10 classes. Of recurrent layers:
input ``x`` ``(sequence, batch, inputs)``, output ``y`` ``(sequence, batch, directions * hidden)``, the hidden states of
the last layer. Of the tagger: input ``input_ids`` ``(sequence, 1)``, output ``logits`` ``(sequence, 1, labels)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder, Style
from benchmarks.zoo.layers import linear

__all__ = [
    "TAGGER_SIZES",
    "TaggerConfig",
    "build_lenet",
    "build_mlp",
    "build_recurrent",
    "build_tagger",
    "draw_tagger_inputs",
]

MLP_SIZES = (784, 1024, 1024, 10)


def build_mlp(num_rows: int) -> onnx.ModelProto:
    """Return three layers with ReLU between layers."""
    graph = GraphBuilder("mlp", STYLES["exported17"])
    x = graph.input("x", np.float32, num_rows, MLP_SIZES[0])
    x = _layers(graph, x, MLP_SIZES)
    graph.output("logits", x, np.float32, num_rows, MLP_SIZES[-1])
    return graph.finish()


def build_lenet() -> onnx.ModelProto:
    """Return LeNet-5 in today's form: ReLU and max pooling instead of tanh and mean pooling."""
    graph = GraphBuilder("lenet", STYLES["exported17"])
    x = graph.input("image", np.float32, 1, 1, 28, 28)
    for index, (inputs, outputs, pad) in enumerate(((1, 6, 2), (6, 16, 0))):
        with graph.scope(f"features.{index}"):
            weight = graph.weight("weight", (outputs, inputs, 5, 5), math.sqrt(2.0 / (25 * inputs)))
            bias = graph.weight("bias", (outputs,), 0.05)
            x = graph.op("Conv", x, weight, bias, kernel_shape=[5, 5], pads=[pad] * 4)
            x = graph.op("MaxPool", graph.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = _layers(graph, graph.op("Flatten", x, axis=1), (400, 120, 84, 10))
    graph.output("logits", x, np.float32, 1, 10)
    return graph.finish()


def build_recurrent(
    op_type: str, num_layers: int, sequence: int, inputs: int, hidden: int, *, batch: int = 1, directions: int = 1
) -> onnx.ModelProto:
    """Return layers of LSTM, or of GRU in PyTorch's variant, over some sequences, in a single direction or both."""
    graph = GraphBuilder(op_type.lower(), STYLES["exported17"])
    x = graph.input("x", np.float32, sequence, batch, inputs)
    x = _recurrent_layers(graph, op_type, x, num_layers, inputs, hidden, directions)
    graph.output("y", x, np.float32, sequence, batch, hidden * directions)
    return graph.finish()


@dataclass(frozen=True)
class TaggerConfig:
    """The sizes of a tagger of a single text."""

    sequence: int
    vocabulary: int
    inputs: int
    hidden: int
    labels: int


TAGGER_SIZES = {
    "tiny": TaggerConfig(sequence=7, vocabulary=71, inputs=12, hidden=16, labels=9),
    "real": TaggerConfig(sequence=64, vocabulary=20000, inputs=128, hidden=256, labels=45),
}


def build_tagger(config: TaggerConfig, style: Style) -> onnx.ModelProto:
    """Return an LSTM reading embedded words in both directions, and a dense layer on each word."""
    graph = GraphBuilder("text_tagger", style)
    ids = graph.input("input_ids", np.int64, config.sequence, 1)
    words = graph.weight("embedding", (config.vocabulary, config.inputs), 1.0)
    x = _recurrent_layers(graph, "LSTM", graph.op("Gather", words, ids), 1, config.inputs, config.hidden, 2)
    logits = linear(graph, x, 2 * config.hidden, config.labels, bias=True)
    graph.output("logits", logits, np.float32, config.sequence, 1, config.labels)
    return graph.finish()


def draw_tagger_inputs(config: TaggerConfig, _sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return a seeded text."""
    return {"input_ids": np.random.default_rng(seed).integers(0, config.vocabulary, (config.sequence, 1))}


def _recurrent_layers(
    graph: GraphBuilder, op_type: str, x: str, num_layers: int, inputs: int, hidden: int, directions: int
) -> str:
    """Return the hidden states ``(sequence, batch, directions * hidden)`` of the last layer."""
    rows = {"LSTM": 4, "GRU": 3}[op_type] * hidden
    attributes: dict[str, Any] = {"linear_before_reset": 1} if op_type == "GRU" else {}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    for index in range(num_layers):
        with graph.scope(f"layer.{index}"):
            depth = hidden * directions if index else inputs
            shapes = {"W": (directions, rows, depth), "R": (directions, rows, hidden), "B": (directions, 2 * rows)}
            weights = [graph.weight(name, shape, hidden**-0.5) for name, shape in shapes.items()]
            every = graph.op(op_type, x, *weights, hidden_size=hidden, **attributes)
            if directions == 1:
                x = graph.op("Squeeze", every, graph.constant([1]))
            else:
                x = graph.reshape(graph.op("Transpose", every, perm=[0, 2, 1, 3]), 0, 0, -1)
    return x


def _layers(graph: GraphBuilder, x: str, sizes: tuple[int, ...]) -> str:
    """Return layers with ReLU between layers."""
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        with graph.scope(f"layer.{index}"):
            x = linear(graph, graph.op("Relu", x) if index else x, inputs, outputs, bias=True)
    return x
