"""Layers covering the families of ops: modules with a function for each layer, for calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from byoc_core.ir import ConstantStore, FunctionBuilder, IRModule, Value, tensor
from byoc_core.runtime.module import NDArray

__all__ = ["LAYER_GROUPS", "Layer", "LayerGroup", "build_layers"]


class _Sketch:
    """A layer in construction."""

    def __init__(self, name: str, constants: ConstantStore) -> None:
        self.builder = FunctionBuilder(name, constants=constants)
        self.inputs: dict[str, NDArray] = {}
        self.results: list[Value] = []
        self._random = np.random.default_rng(0)

    def draw(self, *shape: int) -> NDArray:
        return self._random.uniform(0.5, 1.5, shape).astype(np.float32)

    def draw_integers(self, *shape: int) -> NDArray:
        return self._random.integers(-100, 100, shape, np.int8)

    def param(self, array: NDArray) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return self.builder.param(name, tensor(array.shape, str(array.dtype)))

    def emit(self, op: str, *operands: Value | NDArray, **attrs: Any) -> Value:
        result = self.builder.emit(op, *operands, **attrs)
        return result if not isinstance(result, tuple) else result[0]

    def add(self, op: str, *operands: Value | NDArray, **attrs: Any) -> None:
        self.results.append(self.emit(op, *operands, **attrs))


Layer = Callable[[_Sketch], None]
"""Adds ops, inputs and results."""


@dataclass(frozen=True)
class LayerGroup:
    """Layers of a kind, at several sizes.

    Attributes:
        name: for messages.
        layers: the layers.
    """

    name: str
    layers: Sequence[Layer]


def build_layers(layers: Sequence[Layer]) -> tuple[IRModule, dict[str, dict[str, NDArray]]]:
    """Return a module with a function for each layer, and the inputs of each function."""
    constants = ConstantStore()
    sketches = {f"layer{number}": _Sketch(f"layer{number}", constants) for number in range(len(layers))}
    for sketch, layer in zip(sketches.values(), layers, strict=True):
        layer(sketch)
    functions = {name: sketch.builder.finish(*sketch.results) for name, sketch in sketches.items()}
    return IRModule(functions, constants), {name: sketch.inputs for name, sketch in sketches.items()}


def _convolution(
    size: int, channels: int, results: int, window: int, stride: int, groups: int, sketch: _Sketch
) -> None:
    attrs = {"strides": (stride, stride), "padding": (window // 2,) * 4, "groups": groups}
    weight = sketch.draw(results, channels // groups, window, window)
    sketch.add("nn.conv2d", sketch.param(sketch.draw(1, channels, size, size)), weight, **attrs)


def _product(rows: int, inner: int, columns: int, sketch: _Sketch) -> None:
    sketch.add("matmul", sketch.param(sketch.draw(rows, inner)), sketch.draw(inner, columns))


def _batched_product(batch: int, rows: int, inner: int, columns: int, sketch: _Sketch) -> None:
    left, right = sketch.draw(batch, rows, inner), sketch.draw(batch, inner, columns)
    sketch.add("matmul", sketch.param(left), sketch.param(right))


def _attention(heads: int, steps: int, keys: int, width: int, sketch: _Sketch) -> None:
    shapes = (1, heads, steps, width), (1, heads, keys, width), (1, heads, keys, width)
    sketch.add("nn.attention", *(sketch.param(sketch.draw(*shape)) for shape in shapes))


def _unary(op: str, shape: Sequence[int], sketch: _Sketch, **attrs: Any) -> None:
    sketch.add(op, sketch.param(sketch.draw(*shape)), **attrs)


def _binary(op: str, shape: Sequence[int], sketch: _Sketch, **attrs: Any) -> None:
    sketch.add(op, *(sketch.param(sketch.draw(*shape)) for _ in range(2)), **attrs)


def _layer_norm(shape: Sequence[int], sketch: _Sketch) -> None:
    sketch.add("nn.layer_norm", sketch.param(sketch.draw(*shape)), sketch.draw(shape[-1]), sketch.draw(shape[-1]))


def _recurrence(op: str, gates: int, states: int, sizes: tuple[int, int, int, int], sketch: _Sketch) -> None:
    steps, batch, width, hidden = sizes
    weights = sketch.draw(1, gates * hidden, width), sketch.draw(1, gates * hidden, hidden)
    zeros = [np.zeros((1, batch, hidden), np.float32)] * states
    bias = sketch.draw(1, 2 * gates * hidden)
    scaled = [array / np.float32(hidden) for array in (*weights, bias)]
    sketch.add(op, sketch.param(sketch.draw(steps, batch, width)), *scaled, *zeros)


def _quantised_product(rows: int, inner: int, columns: int, sketch: _Sketch) -> None:
    scale, zero = np.float32(0.02), np.int8(0)
    factors = sketch.param(sketch.draw_integers(rows, inner)), sketch.draw_integers(inner, columns)
    left, right = (sketch.emit("dequantize", factor, np.asarray(scale), np.asarray(zero)) for factor in factors)
    product = sketch.emit("matmul", left, right)
    sketch.add("quantize", product, np.asarray(scale * inner), np.asarray(zero))


def _quantised_convolution(size: int, channels: int, results: int, window: int, sketch: _Sketch) -> None:
    scale, zero = np.float32(0.02), np.int8(0)
    image = sketch.param(sketch.draw_integers(1, channels, size, size))
    filters = sketch.draw_integers(results, channels, window, window)
    left, right = (
        sketch.emit("dequantize", factor, np.asarray(scale), np.asarray(zero)) for factor in (image, filters)
    )
    product = sketch.emit("nn.conv2d", left, right, padding=(window // 2,) * 4)
    sketch.add("quantize", product, np.asarray(scale * channels), np.asarray(zero))


_SHAPES = ((64,), (1, 1024), (128, 768), (1, 64, 56, 56), (12, 128, 128))


def _elementwise() -> Iterator[Layer]:
    for shape in _SHAPES:
        for op in ("tanh", "exp"):
            yield partial(_unary, op, shape)
        for op in ("add", "multiply"):
            yield partial(_binary, op, shape)


def _activations() -> Iterator[Layer]:
    for shape in _SHAPES:
        for op in ("nn.relu", "nn.gelu", "nn.hard_swish"):
            yield partial(_unary, op, shape)


def _normalisations() -> Iterator[Layer]:
    for shape in ((1, 64), (128, 768), (12, 128, 128), (8, 1000)):
        yield partial(_unary, "nn.softmax", shape, axis=len(shape) - 1)
        yield partial(_layer_norm, shape)


def _reductions() -> Iterator[Layer]:
    for shape in ((1, 64), (128, 768), (12, 128, 128)):
        for op in ("sum", "mean", "max"):
            yield partial(_unary, op, shape, axis=(len(shape) - 1,), keepdims=True)
    for channels, size in ((64, 56), (512, 7)):
        yield partial(_unary, "mean", (1, channels, size, size), axis=(2, 3), keepdims=True)


def _poolings() -> Iterator[Layer]:
    for channels, size in ((64, 112), (256, 14), (16, 28)):
        for op in ("nn.max_pool2d", "nn.avg_pool2d"):
            yield partial(_unary, op, (1, channels, size, size), pool_size=(2, 2), strides=(2, 2))
            yield partial(_unary, op, (1, channels, size, size), pool_size=(3, 3), strides=(2, 2))


def _moves() -> Iterator[Layer]:
    for shape in ((8, 64), (128, 768), (12, 128, 128), (64, 56, 56)):
        last = len(shape) - 1
        yield partial(_unary, "permute_dims", shape, axes=(*range(last - 1), last, last - 1))
        yield partial(_binary, "concat", shape, axis=0)


def _each(build: Callable[..., None], rows: Sequence[Sequence[object]]) -> list[Layer]:
    return [partial(build, *row) for row in rows]


LAYER_GROUPS = (
    LayerGroup(
        "convolutions",
        _each(
            _convolution,
            [
                *((112, 3, 32, 3, 2, 1), (56, 32, 32, 3, 1, 1), (28, 64, 128, 3, 1, 1), (28, 64, 128, 3, 2, 1)),
                *((14, 128, 128, 3, 1, 1), (7, 256, 256, 3, 1, 1), (28, 16, 16, 5, 1, 1), (32, 8, 16, 3, 1, 1)),
            ],
        ),
    ),
    LayerGroup(
        "products",
        _each(
            _product,
            [
                *((1, 64, 64), (1, 256, 1024), (1, 1024, 1024), (8, 256, 256), (64, 64, 256), (64, 256, 64)),
                *((128, 768, 768), (256, 1024, 256), (512, 16, 16)),
            ],
        ),
    ),
    LayerGroup("elementwise ops", [*_elementwise()]),
    LayerGroup(
        "pointwise convolutions",
        _each(
            _convolution,
            [
                *((56, 32, 64, 1, 1, 1), (28, 64, 256, 1, 1, 1), (28, 256, 64, 1, 1, 1), (14, 256, 256, 1, 1, 1)),
                *((7, 960, 160, 1, 1, 1), (1, 64, 256, 1, 1, 1), (56, 64, 128, 1, 2, 1)),
            ],
        ),
    ),
    LayerGroup(
        "recurrent layers",
        [
            partial(_recurrence, op, gates, states, sizes)
            for op, gates, states in (("nn.lstm", 4, 2), ("nn.gru", 3, 1))
            for sizes in ((16, 1, 64, 64), (8, 1, 256, 256), (8, 8, 64, 128))
        ],
    ),
    LayerGroup("activations", [*_activations()]),
    LayerGroup("normalisations", [*_normalisations()]),
    LayerGroup(
        "depthwise and grouped convolutions",
        _each(
            _convolution,
            [
                *(
                    (112, 32, 32, 3, 1, 32),
                    (56, 96, 96, 3, 2, 96),
                    (28, 192, 192, 3, 1, 192),
                    (14, 576, 576, 3, 1, 576),
                ),
                *((7, 960, 960, 5, 1, 960), (56, 64, 64, 3, 1, 4), (14, 256, 256, 3, 1, 4), (28, 128, 256, 1, 1, 4)),
            ],
        ),
    ),
    LayerGroup(
        "batched products and attention",
        [
            *_each(_batched_product, [(12, 128, 64, 128), (12, 128, 128, 64), (64, 49, 32, 49), (12, 1, 64, 64)]),
            *_each(_attention, [(12, 128, 128, 64), (3, 196, 196, 64), (12, 1, 64, 64)]),
        ],
    ),
    LayerGroup("reductions", [*_reductions()]),
    LayerGroup("poolings", [*_poolings()]),
    LayerGroup(
        "products of integers",
        [
            *_each(_quantised_product, [(1, 256, 256), (64, 256, 256), (128, 768, 768)]),
            *_each(_quantised_convolution, [(28, 64, 64, 3), (14, 128, 128, 3), (28, 64, 128, 1)]),
        ],
    ),
    LayerGroup("moves of data", [*_moves()]),
)
"""The layers of a calibration, the most important first: a calibration cut short lacks the last."""
