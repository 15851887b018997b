"""A windowed-attention network (Swin, Liu et al. 2021, arXiv:2103.14030) with seeded weights: the first two stages.

Input ``image`` ``(1, 3, side, side)``; output ``logits`` ``(1, classes)``. Nodes are spelled as by PyTorch's exporters:
a roll is two slices and a join, a window a reshape and a transpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import gelu_erf, layer_norm, linear

__all__ = ["SIZES", "SwinConfig", "build_swin"]

EPSILON = 1e-5
PATCH = 4
MASKED = -100.0
"""The number added to the scores of positions brought together by the roll."""


@dataclass(frozen=True)
class SwinConfig:
    """The sizes of the network; each stage has a block of unshifted windows, and a block of shifted windows."""

    side: int
    window: int
    channels: int
    num_heads: tuple[int, ...]
    classes: int


SIZES = {
    "tiny": SwinConfig(side=32, window=2, channels=8, num_heads=(2, 4), classes=10),
    "real": SwinConfig(side=224, window=7, channels=96, num_heads=(3, 6), classes=1000),
}


def build_swin(config: SwinConfig) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("swin", STYLES["exported17"])
    image = graph.input("image", np.float32, 1, 3, config.side, config.side)
    side, channels = config.side // PATCH, config.channels
    with graph.scope("patches"):
        weight = graph.weight("weight", (channels, 3, PATCH, PATCH), math.sqrt(1 / (3 * PATCH * PATCH)))
        bias = graph.weight("bias", (channels,), 0.05)
        x = graph.op("Conv", image, weight, bias, kernel_shape=[PATCH] * 2, strides=[PATCH] * 2)
        x = graph.op("Transpose", graph.reshape(x, 1, channels, side * side), perm=[0, 2, 1])
        x = layer_norm(graph, x, channels, EPSILON)
    for stage, num_heads in enumerate(config.num_heads):
        with graph.scope(f"stage.{stage}"):
            if stage:
                x = _merge_patches(graph, x, side, channels)
                side, channels = side // 2, channels * 2
            for index, shift in enumerate((0, config.window // 2)):
                with graph.scope(f"block.{index}"):
                    x = _block(graph, x, _Block(side, config.window, channels, num_heads, shift))
    with graph.scope("head"):
        x = layer_norm(graph, x, channels, EPSILON)
        pooled = graph.op("ReduceMean", x, axes=[1], keepdims=0)
        logits = linear(graph, pooled, channels, config.classes, bias=True)
    graph.output("logits", logits, np.float32, 1, config.classes)
    return graph.finish()


@dataclass(frozen=True)
class _Block:
    """The sizes of a block; ``shift`` is the shift of the windows."""

    side: int
    window: int
    channels: int
    num_heads: int
    shift: int

    @property
    def num_positions(self) -> int:
        """The number of positions in a window."""
        return self.window * self.window

    @property
    def num_windows(self) -> int:
        """The number of windows in the image."""
        return (self.side // self.window) ** 2


def _merge_patches(graph: GraphBuilder, x: str, side: int, channels: int) -> str:
    """Return four neighbours as a single place of twice as many channels."""
    x = graph.reshape(x, 1, side, side, channels)
    parts = []
    for column in (0, 1):
        for row in (0, 1):
            starts, ends = graph.constant([row, column]), graph.constant([side, side])
            parts.append(graph.op("Slice", x, starts, ends, graph.constant([1, 2]), graph.constant([2, 2])))
    joined = graph.reshape(graph.op("Concat", *parts, axis=-1), 1, side * side // 4, 4 * channels)
    return linear(graph, layer_norm(graph, joined, 4 * channels, EPSILON), 4 * channels, 2 * channels, bias=False)


def _block(graph: GraphBuilder, x: str, block: _Block) -> str:
    """Return attention within windows, and a perceptron, each after a norm and with a residual connection."""
    side, channels = block.side, block.channels
    y = graph.reshape(layer_norm(graph, x, channels, EPSILON), 1, side, side, channels)
    y = _windows(graph, _roll(graph, y, -block.shift, side), block)
    with graph.scope("attention"):
        y = _attention(graph, y, block)
    y = graph.reshape(_roll(graph, _image(graph, y, block), block.shift, side), 1, side * side, channels)
    x = graph.op("Add", x, y)
    with graph.scope("inner"):
        y = linear(graph, layer_norm(graph, x, channels, EPSILON), channels, 4 * channels, bias=True)
    with graph.scope("outer"):
        return graph.op("Add", x, linear(graph, gelu_erf(graph, y), 4 * channels, channels, bias=True))


def _roll(graph: GraphBuilder, x: str, shift: int, side: int) -> str:
    """Return an image moved along both axes; rows and columns leaving on a side enter on the opposite side."""
    if not shift:
        return x
    for axis in (1, 2):
        first = graph.slice(x, axis, -shift % side, side)
        x = graph.op("Concat", first, graph.slice(x, axis, 0, -shift % side), axis=axis)
    return x


def _windows(graph: GraphBuilder, x: str, block: _Block) -> str:
    count, window = block.side // block.window, block.window
    apart = graph.reshape(x, 1, count, window, count, window, block.channels)
    turned = graph.op("Transpose", apart, perm=[0, 1, 3, 2, 4, 5])
    return graph.reshape(turned, block.num_windows, block.num_positions, block.channels)


def _image(graph: GraphBuilder, windows: str, block: _Block) -> str:
    count, window = block.side // block.window, block.window
    apart = graph.reshape(windows, 1, count, count, window, window, block.channels)
    turned = graph.op("Transpose", apart, perm=[0, 1, 3, 2, 4, 5])
    return graph.reshape(turned, 1, block.side, block.side, block.channels)


def _attention(graph: GraphBuilder, x: str, block: _Block) -> str:
    heads, size, num_positions = block.num_heads, block.channels // block.num_heads, block.num_positions
    with graph.scope("qkv"):
        joined = linear(graph, x, block.channels, 3 * block.channels, bias=True)
    apart = graph.reshape(joined, block.num_windows, num_positions, 3, heads, size)
    turned = graph.op("Transpose", apart, perm=[2, 0, 3, 1, 4])
    query, key, value = (graph.op("Gather", turned, graph.constant(part), axis=0) for part in range(3))
    query = graph.op("Mul", query, graph.constant(size**-0.5, np.float32))
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Add", scores, _position_bias(graph, block))
    if block.shift:
        mask = graph.initializer("mask", _mask(block)[np.newaxis, :, np.newaxis])
        scores = graph.reshape(scores, 1, block.num_windows, heads, num_positions, num_positions)
        scores = graph.reshape(graph.op("Add", scores, mask), block.num_windows, heads, num_positions, num_positions)
    attended = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    attended = graph.reshape(graph.op("Transpose", attended, perm=[0, 2, 1, 3]), block.num_windows, num_positions, -1)
    with graph.scope("output"):
        return linear(graph, attended, block.channels, block.channels, bias=True)


def _position_bias(graph: GraphBuilder, block: _Block) -> str:
    """Return ``(1, heads, positions, positions)``: a weight for each distance of two positions of a window."""
    window, num_positions = block.window, block.num_positions
    table = graph.weight("position_bias", ((2 * window - 1) ** 2, block.num_heads), 0.2)
    rows, columns = np.divmod(np.arange(num_positions), window)
    down, right = (axis[:, None] - axis[None, :] + window - 1 for axis in (rows, columns))
    number = graph.initializer("position_number", (down * (2 * window - 1) + right).reshape(-1))
    bias = graph.reshape(graph.op("Gather", table, number, axis=0), num_positions, num_positions, block.num_heads)
    return graph.unsqueeze(graph.op("Transpose", bias, perm=[2, 0, 1]), 0)


def _mask(block: _Block) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return ``(windows, positions, positions)``: 0 for positions of one image part, else a number hiding the score."""
    side, window, shift = block.side, block.window, block.shift
    part = np.searchsorted([side - window, side - shift], np.arange(side), side="right")
    count = side // window
    apart = (3 * part[:, None] + part[None, :]).reshape(count, window, count, window)
    parts = apart.transpose(0, 2, 1, 3).reshape(-1, block.num_positions)
    return np.where(parts[:, :, None] == parts[:, None, :], 0, MASKED).astype(np.float32)
