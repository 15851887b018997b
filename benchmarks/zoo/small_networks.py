"""Small networks with seeded weights: a perceptron, LeNet-5 (LeCun et al. 1998) on images of 28 by 28, LSTM and GRU.

Inputs: ``x`` ``(rows, 784)``, or ``image`` ``(1, 1, 28, 28)``; output ``logits`` of 10 classes. Of recurrent layers:
input ``x`` ``(sequence, 1, inputs)``, output ``y`` ``(sequence, 1, hidden)``, the hidden states of the last one.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import linear

__all__ = ["build_lenet", "build_mlp", "build_recurrent"]

MLP_SIZES = (784, 1024, 1024, 10)


def build_mlp(num_rows: int) -> onnx.ModelProto:
    """Gives three layers with ReLU between them."""
    graph = GraphBuilder("mlp", STYLES["exported17"])
    x = graph.input("x", np.float32, num_rows, MLP_SIZES[0])
    x = _layers(graph, x, MLP_SIZES)
    graph.output("logits", x, np.float32, num_rows, MLP_SIZES[-1])
    return graph.finish()


def build_lenet() -> onnx.ModelProto:
    """Gives LeNet-5 with ReLU and largest elements, as it is written today, in place of tanh and means."""
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


def build_recurrent(op_type: str, num_layers: int, sequence: int, inputs: int, hidden: int) -> onnx.ModelProto:
    """Gives layers of LSTM, or of GRU as PyTorch has it, over one sequence."""
    graph = GraphBuilder(op_type.lower(), STYLES["exported17"])
    x = graph.input("x", np.float32, sequence, 1, inputs)
    rows = {"LSTM": 4, "GRU": 3}[op_type] * hidden
    attributes = {"linear_before_reset": 1} if op_type == "GRU" else {}
    for index in range(num_layers):
        with graph.scope(f"layer.{index}"):
            shapes = {"W": (1, rows, hidden if index else inputs), "R": (1, rows, hidden), "B": (1, 2 * rows)}
            weights = [graph.weight(name, shape, hidden**-0.5) for name, shape in shapes.items()]
            every = graph.op(op_type, x, *weights, hidden_size=hidden, **attributes)
            x = graph.op("Squeeze", every, graph.constant([1]))
    graph.output("y", x, np.float32, sequence, 1, hidden)
    return graph.finish()


def _layers(graph: GraphBuilder, x: str, sizes: tuple[int, ...]) -> str:
    """Gives layers with ReLU between them."""
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        with graph.scope(f"layer.{index}"):
            x = linear(graph, graph.op("Relu", x) if index else x, inputs, outputs, bias=True)
    return x
