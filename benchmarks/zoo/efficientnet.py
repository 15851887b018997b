"""EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946) with seeded weights; batch normalisation is folded in.

Input ``image`` ``(1, 3, side, side)``; output ``logits`` ``(1, classes)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import classify_image, convolution, swish

__all__ = ["SIZES", "EfficientNetConfig", "build_efficientnet"]

_GAIN = 1.5
"""The projections' weights are larger than He's: swish, and factors of about a half, shrink activations more."""


@dataclass(frozen=True)
class EfficientNetConfig:
    """The sizes of the network.

    Attributes:
        side: the height and width of the image.
        stem: the channels of the first convolution.
        stages: per stage the expansion, output channels, blocks, stride of the first block, and filter size.
        head: the channels of the last convolution.
        classes: the number of classes.
    """

    side: int
    stem: int
    stages: tuple[tuple[int, int, int, int, int], ...]
    head: int
    classes: int


SIZES = {
    "tiny": EfficientNetConfig(side=32, stem=8, stages=((1, 8, 1, 1, 3), (6, 16, 2, 2, 5)), head=32, classes=10),
    "real": EfficientNetConfig(
        side=224,
        stem=32,
        stages=(
            (1, 16, 1, 1, 3),
            (6, 24, 2, 2, 3),
            (6, 40, 2, 2, 5),
            (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5),
            (6, 192, 4, 2, 5),
            (6, 320, 1, 1, 3),
        ),
        head=1280,
        classes=1000,
    ),
}


def build_efficientnet(config: EfficientNetConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("efficientnet", style)
    x = graph.input("image", np.float32, 1, 3, config.side, config.side)
    with graph.scope("stem"):
        x = swish(graph, convolution(graph, x, 3, config.stem, 3, stride=2))
    channels = config.stem
    for stage, (expansion, outputs, count, first_stride, kernel) in enumerate(config.stages):
        for index in range(count):
            with graph.scope(f"stage{stage}.{index}"):
                stride = 1 if index else first_stride
                y = _branch(graph, x, channels, outputs, expansion, kernel, stride)
                x = graph.op("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    with graph.scope("head"):
        x = swish(graph, convolution(graph, x, channels, config.head, 1))
        logits = classify_image(graph, x, config.head, config.classes)
    graph.output("logits", logits, np.float32, 1, config.classes)
    return graph.finish()


def _branch(graph: GraphBuilder, x: str, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> str:
    """Return an expansion, a depthwise convolution, factors of the channels, and a linear projection."""
    inner = inputs * expansion
    if expansion != 1:
        with graph.scope("expand"):
            x = swish(graph, convolution(graph, x, inputs, inner, 1))
    with graph.scope("depthwise"):
        x = convolution(graph, x, inner, inner, kernel, stride=stride, groups=inner)
        x = swish(graph, x)
    squeezed = max(1, inputs // 4)
    with graph.scope("squeeze"):
        y = swish(graph, convolution(graph, graph.op("GlobalAveragePool", x), inner, squeezed, 1))
    with graph.scope("excite"):
        x = graph.op("Mul", x, graph.op("Sigmoid", convolution(graph, y, squeezed, inner, 1)))
    with graph.scope("project"):
        return convolution(graph, x, inner, outputs, 1, gain=_GAIN)
