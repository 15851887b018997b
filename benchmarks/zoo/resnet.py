"""ResNet-18 (He et al. 2016, arXiv:1512.03385) for any batch and image size, with seeded weights.

Input ``image`` ``(batch, 3, height, width)``; output ``logits`` ``(batch, classes)``. Batch norms are ops of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import linear

__all__ = ["SIZES", "ResNetConfig", "build_resnet", "draw_resnet_inputs"]

EPSILON = 1e-5


@dataclass(frozen=True)
class ResNetConfig:
    """The sizes of the network; widths and numbers of blocks are per stage."""

    widths: tuple[int, ...]
    counts: tuple[int, ...]
    classes: int


SIZES = {
    "tiny": ResNetConfig(widths=(8, 16), counts=(1, 2), classes=10),
    "real": ResNetConfig(widths=(64, 128, 256, 512), counts=(2, 2, 2, 2), classes=1000),
}


def build_resnet(config: ResNetConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("resnet", style)
    x = graph.input("image", np.float32, "batch", 3, "height", "width")
    channels = config.widths[0]
    with graph.scope("stem"):
        x = graph.op("Relu", _normed_convolution(graph, x, 3, channels, 7, 2))
        x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, (width, count) in enumerate(zip(config.widths, config.counts, strict=True)):
        for index in range(count):
            with graph.scope(f"stage{stage}.block{index}"):
                x = _block(graph, x, channels, width, 2 if stage and not index else 1)
            channels = width
    with graph.scope("head"):
        flat = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
        logits = linear(graph, flat, channels, config.classes, bias=True)
    graph.output("logits", logits, np.float32, "batch", config.classes)
    return graph.finish()


def draw_resnet_inputs(_config: ResNetConfig, sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return seeded images for the sizes ``batch``, ``height`` and ``width``."""
    shape = (sizes["batch"], 3, sizes["height"], sizes["width"])
    return {"image": np.random.default_rng(seed).standard_normal(shape, np.float32)}


def _block(graph: GraphBuilder, x: str, inputs: int, outputs: int, stride: int) -> str:
    """Return a residual block of two convolutions; another size of the result is made by a convolution beside them."""
    with graph.scope("first"):
        y = graph.op("Relu", _normed_convolution(graph, x, inputs, outputs, 3, stride))
    with graph.scope("second"):
        y = _normed_convolution(graph, y, outputs, outputs, 3, 1)
    if stride != 1 or inputs != outputs:
        with graph.scope("shortcut"):
            x = _normed_convolution(graph, x, inputs, outputs, 1, stride)
    return graph.op("Relu", graph.op("Add", y, x))


def _normed_convolution(graph: GraphBuilder, x: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
    deviation = math.sqrt(1 / (inputs * kernel**2))
    weight = graph.weight("weight", (outputs, inputs, kernel, kernel), deviation)
    x = graph.op("Conv", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
    mean, shift = graph.weight("mean", (outputs,), 0.1), graph.weight("shift", (outputs,), 0.1)
    scale = graph.weight("scale", (outputs,), 0.1, 1.0)
    variance = graph.initializer("variance", np.full(outputs, 1.0, np.float32))
    return graph.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=EPSILON)
