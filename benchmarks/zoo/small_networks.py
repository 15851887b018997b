"""Small networks with seeded weights: a perceptron, LeNet-5 (LeCun et al. 1998) on images of 28 by 28, LSTM and GRU.

Inputs: ``x`` ``(rows, 784)``, or ``image`` ``(1, 1, 28, 28)``; output ``logits`` of 10 classes. Of recurrent layers:
input ``x`` ``(sequence, batch, inputs)``, output ``y`` ``(sequence, batch, directions * hidden)``, the hidden states of
the last layer.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import linear

__all__ = ["build_lenet", "build_mlp", "build_recurrent"]

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
    graph.output("y", x, np.float32, sequence, batch, hidden * directions)
    return graph.finish()


def _layers(graph: GraphBuilder, x: str, sizes: tuple[int, ...]) -> str:
    """Return layers with ReLU between layers."""
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        with graph.scope(f"layer.{index}"):
            x = linear(graph, graph.op("Relu", x) if index else x, inputs, outputs, bias=True)
    return x
