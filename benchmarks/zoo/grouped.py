"""Networks of grouped convolutions with seeded weights; batch normalisation is folded in.

RegNetX-400MF (Radosavovic et al. 2020, arXiv:2003.13678) has a fixed width of a group, ResNeXt-50 (Xie et al. 2017,
arXiv:1611.05431) a fixed number of groups.

Input ``image`` ``(1, 3, side, side)``; output ``logits`` ``(1, classes)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import classify_image, convolution

__all__ = ["REGNET_SIZES", "RESNEXT_SIZES", "GroupedConfig", "Stage", "build_grouped"]


@dataclass(frozen=True)
class Stage:
    """The sizes of a stage.

    Attributes:
        count: the number of blocks.
        inner: the channels of the grouped convolutions.
        outputs: the channels of the results.
        groups: the number of groups.
        stride: the stride of the first block.
    """

    count: int
    inner: int
    outputs: int
    groups: int
    stride: int


@dataclass(frozen=True)
class GroupedConfig:
    """The sizes of the network: a stem of a convolution with stride 2, perhaps with pooling, and stages."""

    side: int
    stem: int
    stem_kernel: int
    has_pooling: bool
    stages: tuple[Stage, ...]
    classes: int


REGNET_SIZES = {
    "tiny": GroupedConfig(32, 8, 3, False, (Stage(1, 16, 16, 2, 2), Stage(2, 32, 32, 4, 2)), 10),
    "real": GroupedConfig(
        224,
        32,
        3,
        False,
        (Stage(1, 32, 32, 2, 2), Stage(2, 64, 64, 4, 2), Stage(7, 160, 160, 10, 2), Stage(12, 400, 400, 25, 2)),
        1000,
    ),
}
RESNEXT_SIZES = {
    "tiny": GroupedConfig(32, 8, 7, True, (Stage(1, 16, 24, 4, 1), Stage(2, 32, 48, 4, 2)), 10),
    "real": GroupedConfig(
        224,
        64,
        7,
        True,
        (Stage(3, 128, 256, 32, 1), Stage(4, 256, 512, 32, 2), Stage(6, 512, 1024, 32, 2), Stage(3, 1024, 2048, 32, 2)),
        1000,
    ),
}


def build_grouped(config: GroupedConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("grouped", style)
    x = graph.input("image", np.float32, 1, 3, config.side, config.side)
    with graph.scope("stem"):
        x = graph.op("Relu", convolution(graph, x, 3, config.stem, config.stem_kernel, stride=2))
        if config.has_pooling:
            x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = config.stem
    for number, stage in enumerate(config.stages):
        for index in range(stage.count):
            with graph.scope(f"stage{number}.{index}"):
                x = _block(graph, x, channels, stage, 1 if index else stage.stride)
            channels = stage.outputs
    with graph.scope("head"):
        logits = classify_image(graph, x, channels, config.classes)
    graph.output("logits", logits, np.float32, 1, config.classes)
    return graph.finish()


def _block(graph: GraphBuilder, x: str, inputs: int, stage: Stage, stride: int) -> str:
    """Return a bottleneck with a grouped convolution in the middle, and a residual connection."""
    y = x
    with graph.scope("reduce"):
        y = graph.op("Relu", convolution(graph, y, inputs, stage.inner, 1))
    with graph.scope("grouped"):
        y = graph.op("Relu", convolution(graph, y, stage.inner, stage.inner, 3, stride=stride, groups=stage.groups))
    with graph.scope("expand"):
        y = convolution(graph, y, stage.inner, stage.outputs, 1, gain=0.5)
    if stride != 1 or inputs != stage.outputs:
        with graph.scope("shortcut"):
            x = convolution(graph, x, inputs, stage.outputs, 1, stride=stride)
    return graph.op("Relu", graph.op("Add", y, x))
