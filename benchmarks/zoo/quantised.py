"""Quantised networks in the form of quantisation tools: each tensor between QuantizeLinear and DequantizeLinear.

Activations are uint8 with a single scale, weights int8 with a scale for each output channel, biases int32. Weights are
seeded, and scaled to keep the size of activations; nothing is trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["build_quantised_convnet", "build_quantised_mlp"]

OPSET = 17
SEED = 0
_STEP = np.float32(1 / 32)
"""The scale of activations, for magnitudes of about 1."""


class _Builder:
    """A collection of nodes and weights; values are names of tensors."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._rng = np.random.default_rng(SEED)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._shape = shape

    def _node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def _constant(self, array: NDArray | np.generic) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantise(self, value: str, zero: int) -> str:
        """Return a tensor of floats quantised; the zero point is 0 for a tensor without negative elements."""
        return self._node("QuantizeLinear", value, self._constant(_STEP), self._constant(np.uint8(zero)))

    def restore(self, value: str, zero: int) -> str:
        """Return a quantised tensor as floats."""
        return self._node("DequantizeLinear", value, self._constant(_STEP), self._constant(np.uint8(zero)))

    def product(self, op: str, value: str, shape: tuple[int, ...], **attrs: Any) -> str:
        """Return a convolution, or a product with a transposed matrix, of restored tensors."""
        channels, depth = shape[0], int(np.prod(shape[1:]))
        integers = self._rng.integers(-127, 128, shape).astype(np.int8)
        # These integers have a standard deviation of 73.
        scale = (self._rng.uniform(1.0, 1.6, channels) / 73 / np.sqrt(depth)).astype(np.float32)
        bias = self._rng.integers(-2000, 2000, channels, np.int32)
        parameters = ((integers, scale, np.int8), (bias, scale * _STEP, np.int32))
        restored = [
            self._node(
                "DequantizeLinear",
                *map(self._constant, (array, scales, np.zeros(channels, dtype))),
                axis=0,
            )
            for array, scales, dtype in parameters
        ]
        return self._node(op, value, *restored, **attrs)

    def node(self, op: str, *values: str, **attrs: Any) -> str:
        """Return the result of any other op, on floats."""
        return self._node(op, *values, **attrs)

    def finish(self, value: str, num_outputs: int) -> onnx.ModelProto:
        """Return the model, with a tensor of floats as the output."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self._shape)]
        outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, (self._shape[0], num_outputs))]
        graph = helper.make_graph(self._nodes, "quantised", inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model)
        return model


def build_quantised_convnet() -> onnx.ModelProto:
    """Return a residual network: a stem of 7x7, then blocks of two 3x3 convolutions at 56x56, 28x28 and 14x14."""
    b = _Builder((1, 3, 224, 224))

    def layer(value: str, into: int, out: int, side: int, stride: int = 1) -> str:
        pads = [side // 2] * 4
        found = b.product("Conv", value, (out, into, side, side), pads=pads, strides=[stride, stride])
        return b.restore(b.quantise(b.node("Relu", found), 0), 0)

    value = b.restore(b.quantise("x", 128), 128)
    value = layer(value, 3, 64, 7, 2)
    value = b.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    value = b.restore(b.quantise(value, 0), 0)
    into = 64
    for out, stride in ((64, 1), (128, 2), (256, 2)):
        beside = value
        if stride > 1:
            short = b.product("Conv", value, (out, into, 1, 1), strides=[stride, stride])
            beside = b.restore(b.quantise(short, 128), 128)
        inner = layer(value, into, out, 3, stride)
        last = b.product("Conv", inner, (out, out, 3, 3), pads=[1, 1, 1, 1])
        total = b.node("Add", b.restore(b.quantise(last, 128), 128), beside)
        value = b.restore(b.quantise(b.node("Relu", total), 0), 0)
        into = out
    pooled = b.restore(b.quantise(b.node("GlobalAveragePool", value), 0), 0)
    flat = b.restore(b.quantise(b.node("Flatten", pooled), 0), 0)
    return b.finish(b.product("Gemm", flat, (1000, into), transB=1), 1000)


def build_quantised_mlp(num_rows: int) -> onnx.ModelProto:
    """Return three layers of 1024, 1024 and 64 outputs on rows of 784 inputs."""
    b = _Builder((num_rows, 784))
    value = b.restore(b.quantise("x", 128), 128)
    for into, out in ((784, 1024), (1024, 1024)):
        found = b.product("Gemm", value, (out, into), transB=1)
        value = b.restore(b.quantise(b.node("Relu", found), 0), 0)
    return b.finish(b.product("Gemm", value, (64, 1024), transB=1), 64)
