"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381) and V3 (Howard et al. 2019, arXiv:1905.02244).

Weights are seeded; batch normalisation is folded in.

Input ``image`` ``(1, 3, 224, 224)``; output ``logits`` ``(1, 1000)``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import convolution, linear

__all__ = ["build_mobilenet_v2", "build_mobilenet_v3", "draw_image"]

# Per stage: expansion, output channels, blocks, stride of the first block (the paper's table 2).
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

# Per block of V3 (large): filter, inner and output channels, squeeze or not, hard swish or not, stride
# (the paper's table 1).
_BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    *[(5, 120, 40, True, False, 1)] * 2,
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    *[(3, 184, 80, False, True, 1)] * 2,
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    *[(5, 960, 160, True, True, 1)] * 2,
)


def _relu6(graph: GraphBuilder, x: str) -> str:
    return graph.op("Clip", x, graph.constant(0.0, np.float32), graph.constant(6.0, np.float32))


def _block(graph: GraphBuilder, x: str, inputs: int, outputs: int, expansion: int, stride: int) -> str:
    """Return an inverted residual with a linear bottleneck."""
    inner = inputs * expansion
    y = x
    if expansion != 1:
        with graph.scope("expand"):
            y = _relu6(graph, convolution(graph, y, inputs, inner, 1))
    with graph.scope("depthwise"):
        y = _relu6(graph, convolution(graph, y, inner, inner, 3, stride=stride, groups=inner))
    with graph.scope("project"):
        y = convolution(graph, y, inner, outputs, 1)
    return graph.op("Add", x, y) if stride == 1 and inputs == outputs else y


def _hard_swish(graph: GraphBuilder, x: str) -> str:
    return graph.op("HardSwish", x)


def _relu(graph: GraphBuilder, x: str) -> str:
    return graph.op("Relu", x)


def _squeeze(graph: GraphBuilder, x: str, channels: int) -> str:
    """Return channels, each times a factor computed from the means of all channels."""
    inner = (channels // 4 + 7) // 8 * 8
    with graph.scope("squeeze"):
        y = _relu(graph, convolution(graph, graph.op("GlobalAveragePool", x), channels, inner, 1))
        y = graph.op("HardSigmoid", convolution(graph, y, inner, channels, 1), alpha=1 / 6)
    return graph.op("Mul", x, y)


def build_mobilenet_v3() -> onnx.ModelProto:
    """Return the large V3 as a model."""
    graph = GraphBuilder("mobilenet_v3", STYLES["exported17"])
    x = graph.input("image", np.float32, 1, 3, 224, 224)
    with graph.scope("stem"):
        x = _hard_swish(graph, convolution(graph, x, 3, 16, 3, stride=2))
    channels = 16
    for number, (kernel, inner, outputs, squeezes, is_swish, stride) in enumerate(_BLOCKS):
        activate = _hard_swish if is_swish else _relu
        with graph.scope(f"block{number}"):
            y = x
            if inner != channels:
                with graph.scope("expand"):
                    y = activate(graph, convolution(graph, y, channels, inner, 1))
            with graph.scope("depthwise"):
                y = activate(graph, convolution(graph, y, inner, inner, kernel, stride=stride, groups=inner))
            y = _squeeze(graph, y, inner) if squeezes else y
            with graph.scope("project"):
                y = convolution(graph, y, inner, outputs, 1)
            x = graph.op("Add", x, y) if stride == 1 and channels == outputs else y
        channels = outputs
    with graph.scope("head"):
        x = _hard_swish(graph, convolution(graph, x, channels, 960, 1))
        pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
        with graph.scope("inner"):
            pooled = _hard_swish(graph, linear(graph, pooled, 960, 1280, bias=True))
        with graph.scope("outer"):
            logits = linear(graph, pooled, 1280, 1000, bias=True)
    graph.output("logits", logits, np.float32, 1, 1000)
    return graph.finish()


def build_mobilenet_v2() -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("mobilenet_v2", STYLES["exported13"])
    x = graph.input("image", np.float32, 1, 3, 224, 224)
    with graph.scope("stem"):
        x = _relu6(graph, convolution(graph, x, 3, 32, 3, stride=2))
    channels = 32
    for stage, (expansion, outputs, count, first_stride) in enumerate(_STAGES):
        for index in range(count):
            with graph.scope(f"stage{stage}.{index}"):
                x = _block(graph, x, channels, outputs, expansion, first_stride if index == 0 else 1)
            channels = outputs
    with graph.scope("head"):
        x = _relu6(graph, convolution(graph, x, channels, 1280, 1))
        pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
        weight = graph.weight("classifier", (1280, 1000), math.sqrt(2.0 / 2280))
        logits = graph.op("Add", graph.op("MatMul", pooled, weight), graph.weight("bias", (1000,), 0.05))
    graph.output("logits", logits, np.float32, 1, 1000)
    return graph.finish()


def draw_image(seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return a seeded image."""
    return {"image": np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)}
