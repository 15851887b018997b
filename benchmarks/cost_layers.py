"""Single layers over a grid of shapes, for tables of costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import byoc_core
import numpy as np
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray

from benchmarks.random_ops import list_random_ops
from benchmarks.single_ops import list_single_ops

__all__ = ["Layer", "list_drawn", "list_layers", "list_ops"]

Layer = tuple[str, IRModule, dict[str, NDArray]]
"""Name, module and inputs."""

_CONVOLUTIONS = (
    # size, channels, results, window, stride, groups
    *((224, 3, 64, 7, 2, 1), (224, 3, 32, 3, 2, 1), (224, 3, 768, 16, 16, 1), (112, 16, 96, 1, 1, 1)),
    *itertools.product((56, 14), (32, 128), (32, 128, 512), (1, 3), (1,), (1,)),
    *itertools.product((28,), (64, 256), (64, 256), (1, 3), (1, 2), (1,)),
    *itertools.product((7,), (256, 1024), (256, 1024), (1, 3), (1,), (1,)),
    *(
        (size, width, width, window, stride, width)
        for size, width in ((112, 32), (56, 96), (28, 192), (14, 576), (7, 960))
        for window, stride in ((3, 1), (3, 2), (5, 1))
    ),
    *((size, width, width, 3, 1, 4) for size, width in ((56, 64), (28, 128), (14, 256))),
    *((size, width, 2 * width, 1, 1, 4) for size, width in ((56, 64), (28, 128), (14, 256))),
    *((size, width, width, 5, 1, 1) for size, width in ((28, 16), (14, 64), (28, 64))),
    *((1, width, 4 * width, 1, 1, 1) for width in (16, 64, 256)),
    *((32, width, width, 3, 1, 1) for width in (8, 16, 64)),
)
_PRODUCTS = (
    *itertools.product((1, 8, 64, 256), (64, 256, 1024), (64, 256, 1024)),
    *(
        (128, 768, 768),
        (128, 768, 3072),
        (128, 3072, 768),
        (196, 192, 576),
        (1, 768, 50257),
        (1, 2048, 1000),
        (512, 16, 16),
    ),
)
_BATCHES = (
    (12, 128, 64, 128),
    (12, 128, 128, 64),
    (3, 196, 64, 196),
    (64, 49, 32, 49),
    (12, 1, 64, 64),
    (4, 16, 16, 16),
)
_SHAPES = ((64,), (1, 1024), (128, 768), (1, 64, 56, 56), (12, 128, 128), (1, 256, 14, 14), (8, 64))
_RECURRENT = ("GRU", "LSTM")
_UNARY = ("nn.relu", "sigmoid", "tanh", "exp", "nn.gelu", "sqrt", "erf", "nn.hard_swish", "nn.swish", "negative")
_BINARY = ("add", "multiply", "subtract", "divide", "maximum")


class _Builder:
    """A layer in construction."""

    def __init__(self) -> None:
        self.builder: Any = FunctionBuilder("main", ops=default_ops())
        self.inputs: dict[str, NDArray] = {}
        self._rng = np.random.default_rng(0)

    def draw(self, *shape: int) -> NDArray:
        return self._rng.uniform(0.5, 1.5, shape).astype(np.float32)

    def param(self, *shape: int) -> Any:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.draw(*shape)
        return self.builder.param(name, tensor(shape))

    def const(self, *shape: int) -> Any:
        return self.builder.const(self.draw(*shape))

    def layer(self, op: str, *operands: Any, **attrs: Any) -> Layer:
        result = self.builder.bind(op, operands, attrs).results[0]
        module = IRModule({"main": self.builder.finish(result)}, self.builder.constants)
        shapes = " ".join("x".join(map(str, array.shape)) for array in self.inputs.values())
        return f"{op} {shapes}", module, self.inputs


def list_layers() -> Iterator[Layer]:
    """Yield layers of one op each: over a grid of shapes, then the ops of networks in many forms."""
    yield from _grid()
    yield from list_ops()


def list_ops() -> Iterator[Layer]:
    """Yield the ops of networks in many forms, a layer each; recurrent layers are measured in the models."""
    for case in list_single_ops():
        if case.op in _RECURRENT:
            continue
        yield case.name, byoc_core.from_onnx(case.to_onnx()), case.draw()


def list_drawn(count: int, seed: int) -> Iterator[Layer]:
    """Yield seeded random ops, a layer each."""
    for case in list_random_ops(count, seed):
        yield case.name, byoc_core.from_onnx(case.to_onnx()), case.draw()


def _grid() -> Iterator[Layer]:
    for size, channels, results, window, stride, groups in _CONVOLUTIONS:
        builder = _Builder()
        pad = 0 if window == stride else window // 2
        attrs = {"strides": (stride,) * 2, "padding": (pad,) * 2, "groups": groups}
        x, weight = builder.param(1, channels, size, size), builder.const(results, channels // groups, window, window)
        yield builder.layer("nn.conv2d", x, weight, **attrs)
    for rows, inner, columns in _PRODUCTS:
        builder = _Builder()
        yield builder.layer("matmul", builder.param(rows, inner), builder.const(inner, columns))
    for batch, rows, inner, columns in _BATCHES:
        builder = _Builder()
        yield builder.layer("matmul", builder.param(batch, rows, inner), builder.param(batch, inner, columns))
    for shape in _SHAPES:
        for op in _UNARY:
            builder = _Builder()
            yield builder.layer(op, builder.param(*shape))
        for op in _BINARY:
            builder = _Builder()
            yield builder.layer(op, builder.param(*shape), builder.param(*shape))
        last = len(shape) - 1
        builder = _Builder()
        yield builder.layer("nn.softmax", builder.param(*shape), axis=last)
        for op in ("sum", "mean", "max"):
            builder = _Builder()
            yield builder.layer(op, builder.param(*shape), axis=(last,), keepdims=True)
        builder = _Builder()
        yield builder.layer("nn.layer_norm", builder.param(*shape), builder.const(shape[-1]), builder.const(shape[-1]))
        if len(shape) > 1:
            builder = _Builder()
            yield builder.layer("permute_dims", builder.param(*shape), axes=(*range(last - 1), last, last - 1))
            builder = _Builder()
            yield builder.layer("concat", builder.param(*shape), builder.param(*shape), axis=1)
    for channels, size in ((64, 112), (64, 56), (256, 14), (16, 28), (512, 7)):
        for op in ("nn.max_pool2d", "nn.avg_pool2d"):
            for window in (2, 3):
                builder = _Builder()
                yield builder.layer(op, builder.param(1, channels, size, size), pool_size=(window,) * 2, strides=(2, 2))
        builder = _Builder()
        yield builder.layer("mean", builder.param(1, channels, size, size), axis=(2, 3), keepdims=True)
