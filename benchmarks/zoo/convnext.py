"""ConvNeXt-T (Liu et al. 2022, arXiv:2201.03545): 7x7 depthwise convolutions and perceptrons, with seeded weights.

Input ``image`` ``(1, 3, side, side)``; output ``logits`` ``(1, classes)``. Norms over the channels stand between
transposes, as in PyTorch's implementation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import convolution, gelu_erf, layer_norm, linear

__all__ = ["SIZES", "ConvNextConfig", "build_convnext"]

EPSILON = 1e-6
_LAST, _FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""The orders of axes with the channels last, and with the channels first again."""


@dataclass(frozen=True)
class ConvNextConfig:
    """The sizes of the network; widths and numbers of blocks are per stage."""

    side: int
    widths: tuple[int, ...]
    counts: tuple[int, ...]
    classes: int


SIZES = {
    "tiny": ConvNextConfig(side=32, widths=(8, 16), counts=(1, 2), classes=10),
    "real": ConvNextConfig(side=224, widths=(96, 192, 384, 768), counts=(3, 3, 9, 3), classes=1000),
}


def build_convnext(config: ConvNextConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("convnext", style)
    x = graph.input("image", np.float32, 1, 3, config.side, config.side)
    channels = 3
    for stage, (width, count) in enumerate(zip(config.widths, config.counts, strict=True)):
        with graph.scope(f"stage{stage}"):
            x = _shrink(graph, x, channels, width, 2 if stage else 4)
            for index in range(count):
                with graph.scope(f"block{index}"):
                    x = graph.op("Add", x, _branch(graph, x, width))
        channels = width
    with graph.scope("head"):
        pooled = graph.op("Transpose", graph.op("GlobalAveragePool", x), perm=_LAST)
        flat = graph.op("Flatten", layer_norm(graph, pooled, channels, EPSILON), axis=1)
        logits = linear(graph, flat, channels, config.classes, bias=True)
    graph.output("logits", logits, np.float32, 1, config.classes)
    return graph.finish()


def _shrink(graph: GraphBuilder, x: str, inputs: int, outputs: int, stride: int) -> str:
    """Return patches as places of more channels: a norm behind the patches of the image, before the others."""
    with graph.scope("shrink"):
        if inputs != 3:
            x = _norm(graph, x, inputs)
        weight = graph.weight("weight", (outputs, inputs, stride, stride), math.sqrt(1 / (inputs * stride**2)))
        bias = graph.weight("bias", (outputs,), 0.05)
        x = graph.op("Conv", x, weight, bias, kernel_shape=[stride] * 2, strides=[stride] * 2)
        return _norm(graph, x, outputs) if inputs == 3 else x


def _norm(graph: GraphBuilder, x: str, channels: int) -> str:
    normal = layer_norm(graph, graph.op("Transpose", x, perm=_LAST), channels, EPSILON)
    return graph.op("Transpose", normal, perm=_FIRST)


def _branch(graph: GraphBuilder, x: str, width: int) -> str:
    """Return a depthwise convolution, a norm, and a perceptron of each place, scaled by channel."""
    with graph.scope("depthwise"):
        x = graph.op("Transpose", convolution(graph, x, width, width, 7, groups=width), perm=_LAST)
    with graph.scope("norm"):
        x = layer_norm(graph, x, width, EPSILON)
    with graph.scope("inner"):
        x = gelu_erf(graph, linear(graph, x, width, 4 * width, bias=True))
    with graph.scope("outer"):
        x = linear(graph, x, 4 * width, width, bias=True)
    scaled = graph.op("Mul", x, graph.weight("layer_scale", (width,), 0.05, 0.3))
    return graph.op("Transpose", scaled, perm=_FIRST)
