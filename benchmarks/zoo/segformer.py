"""SegFormer-B0 (Xie et al. 2021, arXiv:2105.15203), a transformer labelling pixels, with seeded weights.

Input ``image`` ``(1, 3, size, size)``, a size divisible by 32; output ``logits`` ``(1, 150, size / 4, size / 4)``.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import gelu_erf, layer_norm, linear

__all__ = ["build_segformer"]

_WIDTHS, _HEADS, _REDUCTIONS, _DEPTH = (32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1), 2
_HEAD_WIDTH, _CLASSES, _EPSILON = 256, 150, 1e-6
_SIZE = 128


class _Encoder:
    """The blocks of a stage, on tokens ``(1, height * width, channels)``."""

    def __init__(self, graph: GraphBuilder, stage: int, side: int) -> None:
        self.graph, self.side = graph, side
        self.width, self.heads, self.reduction = _WIDTHS[stage], _HEADS[stage], _REDUCTIONS[stage]

    def block(self, x: str) -> str:
        """Return attention with shortened keys, and a perceptron with a depthwise convolution inside."""
        graph = self.graph
        with graph.scope("attention"):
            x = graph.op("Add", x, self._attention(self._norm(x)))
        with graph.scope("mlp"):
            return graph.op("Add", x, self._perceptron(self._norm(x)))

    def _norm(self, x: str) -> str:
        with self.graph.scope("norm"):
            return layer_norm(self.graph, x, self.width, _EPSILON)

    def _attention(self, x: str) -> str:
        graph, width = self.graph, self.width
        size = width // self.heads
        short = x
        if self.reduction > 1:
            with graph.scope("reduction"):
                image = _to_image(graph, x, width, self.side)
                short = _to_tokens(
                    graph, _convolution(graph, image, width, width, self.reduction, self.reduction), width
                )
                short = self._norm(short)
        parts = []
        turned = [0, 2, 1, 3]
        for name, source, perm in (("query", x, turned), ("key", short, [0, 2, 3, 1]), ("value", short, turned)):
            with graph.scope(name):
                part = graph.reshape(linear(graph, source, width, width, bias=True), 1, -1, self.heads, size)
                parts.append(graph.op("Transpose", part, perm=perm))
        query, key, value = parts
        scores = graph.op("Div", graph.op("MatMul", query, key), graph.constant(math.sqrt(size), np.float32))
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        joined = graph.reshape(graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), 1, -1, width)
        with graph.scope("output"):
            return linear(graph, joined, width, width, bias=True)

    def _perceptron(self, x: str) -> str:
        graph, inner = self.graph, 4 * self.width
        with graph.scope("up"):
            x = linear(graph, x, self.width, inner, bias=True)
        with graph.scope("depthwise"):
            image = _to_image(graph, x, inner, self.side)
            x = _to_tokens(graph, _convolution(graph, image, inner, inner, 3, 1, groups=inner), inner)
        with graph.scope("down"):
            return linear(graph, gelu_erf(graph, x), inner, self.width, bias=True)


def _convolution(
    graph: GraphBuilder, x: str, inputs: int, outputs: int, kernel: int, stride: int, *, groups: int = 1
) -> str:
    """Return a convolution, with overlapping windows if the kernel is larger than the stride."""
    deviation = 1 / math.sqrt(inputs // groups * kernel**2)
    weight = graph.weight("weight", (outputs, inputs // groups, kernel, kernel), deviation)
    pads = [kernel // 2 if kernel != stride else 0] * 4
    bias = graph.weight("bias", (outputs,), 0.05)
    return graph.op("Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups)


def _to_image(graph: GraphBuilder, x: str, channels: int, side: int) -> str:
    return graph.reshape(graph.op("Transpose", x, perm=[0, 2, 1]), 1, channels, side, side)


def _to_tokens(graph: GraphBuilder, x: str, channels: int) -> str:
    return graph.op("Transpose", graph.reshape(x, 1, channels, -1), perm=[0, 2, 1])


def _resized(graph: GraphBuilder, x: str, channels: int, side: int) -> str:
    sizes = graph.constant([1, channels, side, side])
    return graph.op("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")


def build_segformer(size: int = _SIZE) -> onnx.ModelProto:
    """Return the network as a model.

    Args:
        size: the height and width of the image, a multiple of 32.
    """
    graph = GraphBuilder("segformer", STYLES["exported13"])
    x = graph.input("image", np.float32, 1, 3, size, size)
    side, channels, features = size, 3, []
    for stage, width in enumerate(_WIDTHS):
        with graph.scope(f"stage{stage}"):
            stride = 2 if stage else 4
            side //= stride
            with graph.scope("patches"):
                x = _to_tokens(graph, _convolution(graph, x, channels, width, 3 if stage else 7, stride), width)
                x = layer_norm(graph, x, width, _EPSILON)
            encoder = _Encoder(graph, stage, side)
            for index in range(_DEPTH):
                with graph.scope(f"block{index}"):
                    x = encoder.block(x)
            with graph.scope("norm"):
                x = _to_image(graph, layer_norm(graph, x, width, _EPSILON), width, side)
            features.append(x)
            channels = width
    graph.output("logits", _decode(graph, features, size // 4), np.float32, 1, _CLASSES, size // 4, size // 4)
    return graph.finish()


def _decode(graph: GraphBuilder, features: list[str], side: int) -> str:
    """Return the labels' scores: all stages projected, enlarged and joined."""
    parts = []
    for stage, feature in reversed(list(enumerate(features))):
        with graph.scope(f"decode{stage}"):
            width, own = _WIDTHS[stage], side >> stage
            tokens = linear(graph, _to_tokens(graph, feature, width), width, _HEAD_WIDTH, bias=True)
            image = _to_image(graph, tokens, _HEAD_WIDTH, own)
            parts.append(_resized(graph, image, _HEAD_WIDTH, side) if stage else image)
    with graph.scope("fuse"):
        joined = graph.op("Concat", *parts, axis=1)
        fused = graph.op("Relu", _convolution(graph, joined, len(parts) * _HEAD_WIDTH, _HEAD_WIDTH, 1, 1))
    with graph.scope("classify"):
        return _convolution(graph, fused, _HEAD_WIDTH, _CLASSES, 1, 1)
