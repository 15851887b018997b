"""Layers shared by the networks of the zoo, spelled in the style of the graph."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.zoo.graph_builder import Dim, GraphBuilder

__all__ = [
    "LOWEST",
    "attend",
    "classify_image",
    "convolution",
    "convolution_weights",
    "gelu_erf",
    "gelu_tanh",
    "join_heads",
    "layer_norm",
    "linear",
    "rms_norm",
    "split_heads",
    "swish",
]

LOWEST = float(np.finfo(np.float32).min)
"""The number added by exporters to the scores of masked places."""


def linear(graph: GraphBuilder, x: str, num_inputs: int, num_outputs: int, *, bias: bool, gain: float = 1.0) -> str:
    """Return ``x @ weight + bias`` with Xavier-scaled weights."""
    deviation = gain * math.sqrt(2.0 / (num_inputs + num_outputs))
    product = graph.op("MatMul", x, graph.weight("weight", (num_inputs, num_outputs), deviation))
    return graph.op("Add", graph.weight("bias", (num_outputs,), 0.05), product) if bias else product


def convolution(
    graph: GraphBuilder,
    x: str,
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    num_axes: int = 2,
    gain: float = 1.0,
) -> str:
    """Return a convolution of odd kernel size with bias and He-scaled weights, padded by half of the kernel."""
    weights = convolution_weights(graph, inputs // groups, outputs, kernel, num_axes=num_axes, gain=gain)
    sizes = {"kernel_shape": [kernel] * num_axes, "strides": [stride] * num_axes, "pads": [kernel // 2] * 2 * num_axes}
    return graph.op("Conv", x, *weights, group=groups, **sizes)


def convolution_weights(
    graph: GraphBuilder, inputs: int, outputs: int, kernel: int, *, num_axes: int = 2, gain: float = 1.0
) -> tuple[str, str]:
    """Return the He-scaled weight of a convolution, times a gain, and the bias."""
    deviation = gain * math.sqrt(2.0 / (inputs * kernel**num_axes))
    weight = graph.weight("weight", (outputs, inputs, *[kernel] * num_axes), deviation)
    return weight, graph.weight("bias", (outputs,), 0.05)


def classify_image(graph: GraphBuilder, x: str, channels: int, classes: int) -> str:
    """Return the logits of an image's features: the mean of each channel, and a dense layer."""
    pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    return linear(graph, pooled, channels, classes, bias=True)


def layer_norm(graph: GraphBuilder, x: str, size: int, epsilon: float) -> str:
    """Return a layer normalisation over the last axis: nine nodes before operator set 17."""
    scale, bias = graph.weight("weight", (size,), 0.1, 1.0), graph.weight("bias", (size,), 0.05)
    if graph.style.opset >= 17:
        return graph.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
    centred = graph.op("Sub", x, graph.op("ReduceMean", x, axes=[-1]))
    square = graph.op("Pow", centred, graph.constant(2.0, np.float32))
    raised = graph.op("Add", graph.op("ReduceMean", square, axes=[-1]), graph.constant(epsilon, np.float32))
    normal = graph.op("Div", centred, graph.op("Sqrt", raised))
    return graph.op("Add", graph.op("Mul", normal, scale), bias)


def rms_norm(graph: GraphBuilder, x: str, size: int, epsilon: float) -> str:
    """Return a normalisation by the root of the mean square over the last axis: seven nodes before operator set 23."""
    scale = graph.weight("weight", (size,), 0.1, 1.0)
    if graph.style.is_modern:
        return graph.op("RMSNormalization", x, scale, axis=-1, epsilon=epsilon)
    square = graph.op("Pow", x, graph.constant(2.0, np.float32))
    raised = graph.op("Add", graph.op("ReduceMean", square, axes=[-1]), graph.constant(epsilon, np.float32))
    inverse = graph.op("Div", graph.constant(1.0, np.float32), graph.op("Sqrt", raised))
    return graph.op("Mul", scale, graph.op("Mul", x, inverse))


def gelu_erf(graph: GraphBuilder, x: str) -> str:
    """Return ``x * Phi(x)`` by the error function."""
    if graph.style.is_modern:
        return graph.op("Gelu", x)
    error = graph.op("Erf", graph.op("Div", x, graph.constant(math.sqrt(2.0), np.float32)))
    product = graph.op("Mul", x, graph.op("Add", error, graph.constant(1.0, np.float32)))
    return graph.op("Mul", product, graph.constant(0.5, np.float32))


def gelu_tanh(graph: GraphBuilder, x: str) -> str:
    """Return ``x * Phi(x)`` by the hyperbolic tangent of GPT-2."""
    if graph.style.is_modern:
        return graph.op("Gelu", x, approximate="tanh")
    cube = graph.op("Pow", x, graph.constant(3.0, np.float32))
    inner = graph.op("Add", x, graph.op("Mul", cube, graph.constant(0.044715, np.float32)))
    tanh = graph.op("Tanh", graph.op("Mul", inner, graph.constant(math.sqrt(2.0 / math.pi), np.float32)))
    half = graph.op("Mul", x, graph.constant(0.5, np.float32))
    return graph.op("Mul", half, graph.op("Add", tanh, graph.constant(1.0, np.float32)))


def swish(graph: GraphBuilder, x: str) -> str:
    """Return ``x * sigmoid(x)``."""
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def split_heads(graph: GraphBuilder, x: str, num_heads: int, size: int, *, turned: bool = False) -> str:
    """Return ``(batch, sequence, heads * size)`` as ``(batch, heads, sequence, size)``; last two swapped if turned."""
    shape: tuple[Dim, ...] = (graph.size(x, 0), graph.size(x, 1), num_heads, size)
    return graph.op("Transpose", graph.reshape(x, *shape), perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def join_heads(graph: GraphBuilder, x: str, width: int) -> str:
    """Return ``(batch, heads, sequence, size)`` as ``(batch, sequence, width)``."""
    turned = graph.op("Transpose", x, perm=[0, 2, 1, 3])
    return graph.reshape(turned, graph.size(turned, 0), graph.size(turned, 1), width)


def attend(graph: GraphBuilder, scores: str, mask: str, value: str) -> str:
    """Return the values weighted by the softmax of the sum of scores and mask."""
    weights = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
    return graph.op("MatMul", weights, value)
