"""An audio encoder in the form of Whisper (Radford et al. 2022, arXiv:2212.04356) with seeded weights.

Input ``features`` ``(1, bands, 2 * tokens)``, a spectrogram; output ``states`` ``(1, tokens, width)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import convolution, gelu_erf, join_heads, layer_norm, linear, split_heads

__all__ = ["SIZES", "AudioConfig", "build_audio_encoder"]

EPSILON = 1e-5
_LONGEST_WAVE = 10000.0


@dataclass(frozen=True)
class AudioConfig:
    """The sizes of the network."""

    bands: int
    tokens: int
    num_layers: int
    width: int
    num_heads: int


SIZES = {
    "tiny": AudioConfig(bands=16, tokens=24, num_layers=2, width=32, num_heads=4),
    "real": AudioConfig(bands=80, tokens=1500, num_layers=4, width=384, num_heads=6),
}


def build_audio_encoder(config: AudioConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("audio_encoder", style)
    width = config.width
    x = graph.input("features", np.float32, 1, config.bands, 2 * config.tokens)
    for index, (inputs, stride) in enumerate(((config.bands, 1), (width, 2))):
        with graph.scope(f"conv{index + 1}"):
            x = gelu_erf(graph, convolution(graph, x, inputs, width, 3, stride=stride, num_axes=1))
    x = graph.op("Transpose", x, perm=[0, 2, 1])
    x = graph.op("Add", x, graph.initializer("positions", _positions(config)))
    for index in range(config.num_layers):
        with graph.scope(f"layers.{index}"):
            with graph.scope("self_attn"):
                x = graph.op("Add", x, _attention(graph, config, _norm(graph, config, x)))
            with graph.scope("mlp"):
                y = _norm(graph, config, x)
                with graph.scope("fc1"):
                    y = gelu_erf(graph, linear(graph, y, width, 4 * width, bias=True))
                with graph.scope("fc2"):
                    x = graph.op("Add", x, linear(graph, y, 4 * width, width, bias=True))
    graph.output("states", _norm(graph, config, x), np.float32, 1, config.tokens, width)
    return graph.finish()


def _positions(config: AudioConfig) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return ``(tokens, width)``: sines and cosines of the position, a column for each wave length."""
    half = config.width // 2
    steps = np.exp(-math.log(_LONGEST_WAVE) / (half - 1) * np.arange(half))
    angles = np.outer(np.arange(config.tokens), steps)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _norm(graph: GraphBuilder, config: AudioConfig, x: str) -> str:
    with graph.scope("layer_norm"):
        return layer_norm(graph, x, config.width, EPSILON)


def _attention(graph: GraphBuilder, config: AudioConfig, x: str) -> str:
    """Return attention of all tokens to all tokens; the keys have no bias, the queries are scaled."""
    width, heads = config.width, config.num_heads
    size = width // heads
    with graph.scope("q_proj"):
        query = linear(graph, x, width, width, bias=True)
        query = split_heads(graph, graph.op("Mul", query, graph.constant(size**-0.5, np.float32)), heads, size)
    with graph.scope("k_proj"):
        key = split_heads(graph, linear(graph, x, width, width, bias=False), heads, size, turned=True)
    with graph.scope("v_proj"):
        value = split_heads(graph, linear(graph, x, width, width, bias=True), heads, size)
    weights = graph.op("Softmax", graph.op("MatMul", query, key), axis=-1)
    with graph.scope("out_proj"):
        mixed = join_heads(graph, graph.op("MatMul", weights, value), width)
        return linear(graph, mixed, width, width, bias=True)
