"""The head of a detector without anchors (FCOS, Tian et al. 2019, arXiv:1904.01355) on a feature pyramid, seeded.

Inputs ``c3``, ``c4``, ``c5``: the features of a backbone at an eighth, a sixteenth and a thirty-second of the image's
side; outputs ``scores`` ``(1, places, classes)``, the probabilities of classes times the nearness to the centre, and
``boxes`` ``(1, places, 4)``, distances to the sides in units of the stride. Places are of all levels, from large to
small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import convolution, convolution_weights

__all__ = ["SIZES", "DetectorConfig", "build_detector"]


@dataclass(frozen=True)
class DetectorConfig:
    """The sizes of the network.

    Attributes:
        side: the height and width of the largest features.
        channels: the channels of the features, from large to small.
        width: the channels of the pyramid and the towers.
        depth: the number of convolutions of a tower.
        classes: the number of classes.
    """

    side: int
    channels: tuple[int, ...]
    width: int
    depth: int
    classes: int


SIZES = {
    "tiny": DetectorConfig(side=8, channels=(8, 12, 16), width=8, depth=1, classes=5),
    "real": DetectorConfig(side=40, channels=(128, 256, 512), width=96, depth=3, classes=80),
}


def build_detector(config: DetectorConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("detector", style)
    sides = [config.side >> level for level in range(len(config.channels))]
    features = [
        graph.input(f"c{3 + level}", np.float32, 1, channels, side, side)
        for level, (channels, side) in enumerate(zip(config.channels, sides, strict=True))
    ]
    levels = _pyramid(graph, config, features, sides)
    sides = [*sides, (sides[-1] + 1) // 2]
    towers = {name: _Tower(graph, config, name) for name in ("classes", "boxes")}
    heads = {
        "score": _Convolution(graph, "score", config.width, config.classes, 0.3),
        "centre": _Convolution(graph, "centre", config.width, 1, 0.3),
        "box": _Convolution(graph, "box", config.width, 4, 0.3),
    }
    scores, boxes = [], []
    for level, (x, side) in enumerate(zip(levels, sides, strict=True)):
        with graph.scope(f"level{level}"):
            of_classes, of_boxes = towers["classes"].apply(x), towers["boxes"].apply(x)
            probability = graph.op("Sigmoid", heads["score"].apply(of_classes))
            centre = graph.op("Sigmoid", heads["centre"].apply(of_boxes))
            scale = graph.weight("scale", (1,), 0.1, 1.0)
            distance = graph.op("Relu", graph.op("Mul", heads["box"].apply(of_boxes), scale))
            scores.append(_to_places(graph, graph.op("Mul", probability, centre), config.classes, side))
            boxes.append(_to_places(graph, distance, 4, side))
    num_places = sum(side * side for side in sides)
    outputs = (("scores", scores, config.classes), ("boxes", boxes, 4))
    for name, parts, size in outputs:
        graph.output(name, graph.op("Concat", *parts, axis=1), np.float32, 1, num_places, size)
    return graph.finish()


def _pyramid(graph: GraphBuilder, config: DetectorConfig, features: list[str], sides: list[int]) -> list[str]:
    """Return the levels from large to small: features and the enlarged next level added, and a further small level."""
    above = ""
    levels: list[str] = []
    for level, (x, channels, side) in reversed(list(enumerate(zip(features, config.channels, sides, strict=True)))):
        with graph.scope(f"pyramid{level}"):
            with graph.scope("lateral"):
                x = convolution(graph, x, channels, config.width, 1, gain=0.7)
            if above:
                sizes = graph.constant([1, config.width, side, side])
                coordinates = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                x = graph.op("Add", x, graph.op("Resize", above, "", "", sizes, mode="nearest", **coordinates))
            above = x
            with graph.scope("smooth"):
                levels.insert(0, convolution(graph, x, config.width, config.width, 3, gain=0.7))
    with graph.scope("further"):
        return [*levels, convolution(graph, levels[-1], config.width, config.width, 3, stride=2)]


class _Convolution:
    """A 3x3 convolution with weights shared by all levels."""

    def __init__(self, graph: GraphBuilder, name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
        self._graph = graph
        with graph.scope(name):
            self._weights = convolution_weights(graph, inputs, outputs, 3, gain=gain)

    def apply(self, x: str) -> str:
        """Return the convolution of a level."""
        return self._graph.op("Conv", x, *self._weights, kernel_shape=[3, 3], pads=[1] * 4)


class _Tower:
    """Convolutions with ReLU, shared by all levels."""

    def __init__(self, graph: GraphBuilder, config: DetectorConfig, name: str) -> None:
        self._graph = graph
        names = [f"{name}.{index}" for index in range(config.depth)]
        self._layers = [_Convolution(graph, layer, config.width, config.width) for layer in names]

    def apply(self, x: str) -> str:
        """Return the tower's features of a level."""
        for layer in self._layers:
            x = self._graph.op("Relu", layer.apply(x))
        return x


def _to_places(graph: GraphBuilder, x: str, channels: int, side: int) -> str:
    """Return ``(1, channels, side, side)`` as ``(1, places, channels)``."""
    return graph.op("Transpose", graph.reshape(x, 1, channels, side * side), perm=[0, 2, 1])
