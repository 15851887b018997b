"""ViT-B/16 (Dosovitskiy et al. 2021, arXiv:2010.11929), a transformer over patches of an image, with seeded weights.

Input ``image`` ``(1, 3, 224, 224)``; output ``logits`` ``(1, 1000)``. 197 tokens: the class token, 196 patches.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from benchmarks.zoo.graph_builder import STYLES, GraphBuilder
from benchmarks.zoo.layers import gelu_erf, layer_norm, linear

__all__ = ["build_vit"]

_WIDTH, _HEADS, _DEPTH, _CLASSES, _EPSILON = 768, 12, 12, 1000, 1e-6
_SIDE, _PATCH = 224, 16


def build_vit() -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("vit", STYLES["exported17"])
    x = _embedded(graph, graph.input("image", np.float32, 1, 3, _SIDE, _SIDE))
    for index in range(_DEPTH):
        with graph.scope(f"block{index}"):
            x = graph.op("Add", x, _attention(graph, _norm(graph, "norm1", x)))
            x = graph.op("Add", x, _perceptron(graph, _norm(graph, "norm2", x)))
    first = graph.op("Gather", _norm(graph, "norm", x), graph.constant(0), axis=1)
    with graph.scope("head"):
        logits = linear(graph, first, _WIDTH, _CLASSES, bias=True)
    graph.output("logits", logits, np.float32, 1, _CLASSES)
    return graph.finish()


def _embedded(graph: GraphBuilder, image: str) -> str:
    """Return the tokens ``(1, 197, width)``: projected patches behind the token of the class, positions added."""
    tokens = 1 + (_SIDE // _PATCH) ** 2
    with graph.scope("patches"):
        weight = graph.weight("weight", (_WIDTH, 3, _PATCH, _PATCH), 1 / math.sqrt(3 * _PATCH**2))
        bias = graph.weight("bias", (_WIDTH,), 0.05)
        x = graph.op("Conv", image, weight, bias, kernel_shape=[_PATCH] * 2, strides=[_PATCH] * 2)
        x = graph.op("Transpose", graph.reshape(x, 1, _WIDTH, -1), perm=[0, 2, 1])
        x = graph.op("Concat", graph.weight("class", (1, 1, _WIDTH), 0.02), x, axis=1)
        return graph.op("Add", x, graph.weight("positions", (1, tokens, _WIDTH), 0.02))


def _norm(graph: GraphBuilder, name: str, x: str) -> str:
    with graph.scope(name):
        return layer_norm(graph, x, _WIDTH, _EPSILON)


def _attention(graph: GraphBuilder, x: str) -> str:
    with graph.scope("attention"):
        parts = []
        for name, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            with graph.scope(name):
                part = graph.reshape(linear(graph, x, _WIDTH, _WIDTH, bias=True), 1, -1, _HEADS, _WIDTH // _HEADS)
                parts.append(graph.op("Transpose", part, perm=perm))
        query, key, value = parts
        scale = graph.constant(math.sqrt(_WIDTH // _HEADS), np.float32)
        scores = graph.op("Div", graph.op("MatMul", query, key), scale)
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        joined = graph.reshape(graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), 1, -1, _WIDTH)
        with graph.scope("output"):
            return linear(graph, joined, _WIDTH, _WIDTH, bias=True)


def _perceptron(graph: GraphBuilder, x: str) -> str:
    with graph.scope("mlp"):
        with graph.scope("up"):
            x = gelu_erf(graph, linear(graph, x, _WIDTH, 4 * _WIDTH, bias=True))
        with graph.scope("down"):
            return linear(graph, x, 4 * _WIDTH, _WIDTH, bias=True)
