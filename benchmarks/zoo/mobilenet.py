"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381) with seeded weights, batch normalisation folded in.

Input ``image`` ``(1, 3, 224, 224)``; output ``logits`` ``(1, 1000)``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder

__all__ = ["build_mobilenet_v2", "draw_image"]

# Per stage: expansion, output channels, blocks, stride of the first block (the paper's table 2).
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _convolution(
    graph: GraphBuilder, x: str, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> str:
    fan_in = inputs // groups * kernel * kernel
    weight = graph.weight("weight", (outputs, inputs // groups, kernel, kernel), math.sqrt(2.0 / fan_in))
    pads = [kernel // 2] * 4
    bias = graph.weight("bias", (outputs,), 0.05)
    return graph.op("Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups)


def _relu6(graph: GraphBuilder, x: str) -> str:
    return graph.op("Clip", x, graph.constant(0.0, np.float32), graph.constant(6.0, np.float32))


def _block(graph: GraphBuilder, x: str, inputs: int, outputs: int, expansion: int, stride: int) -> str:
    """Gives an inverted residual with a linear bottleneck."""
    inner = inputs * expansion
    y = x
    if expansion != 1:
        with graph.scope("expand"):
            y = _relu6(graph, _convolution(graph, y, inputs, inner, 1))
    with graph.scope("depthwise"):
        y = _relu6(graph, _convolution(graph, y, inner, inner, 3, stride=stride, groups=inner))
    with graph.scope("project"):
        y = _convolution(graph, y, inner, outputs, 1)
    return graph.op("Add", x, y) if stride == 1 and inputs == outputs else y


def build_mobilenet_v2() -> onnx.ModelProto:
    """Gives the network as a model."""
    graph = GraphBuilder("mobilenet_v2", STYLES["exported13"])
    x = graph.input("image", np.float32, 1, 3, 224, 224)
    with graph.scope("stem"):
        x = _relu6(graph, _convolution(graph, x, 3, 32, 3, stride=2))
    channels = 32
    for stage, (expansion, outputs, count, first_stride) in enumerate(_STAGES):
        for index in range(count):
            with graph.scope(f"stage{stage}.{index}"):
                x = _block(graph, x, channels, outputs, expansion, first_stride if index == 0 else 1)
            channels = outputs
    with graph.scope("head"):
        x = _relu6(graph, _convolution(graph, x, channels, 1280, 1))
        pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
        weight = graph.weight("classifier", (1280, 1000), math.sqrt(2.0 / 2280))
        logits = graph.op("Add", graph.op("MatMul", pooled, weight), graph.weight("bias", (1000,), 0.05))
    graph.output("logits", logits, np.float32, 1, 1000)
    return graph.finish()


def draw_image(seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Gives a seeded image."""
    return {"image": np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)}
