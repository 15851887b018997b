"""Random networks of repeated layers: most layers equal another, some in all but one respect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from byoc_core.ir import Value, tensor

from plugins.dnnl.tests.dnnl_region import Region, emit

__all__ = ["drawn_layers"]

_WIDTH, _SIDE = 32, 6

_FUNCTIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("nn.relu", {}),
    ("tanh", {}),
    ("abs", {}),
    ("nn.hard_swish", {}),
    ("clip", {"min": -1.0, "max": 1.0}),
    ("clip", {"min": -1.0, "max": 0.5}),
    ("clip", {"min": -0.5, "max": 1.0}),
    ("nn.leaky_relu", {"alpha": 0.1}),
    ("nn.leaky_relu", {"alpha": 0.2}),
)
_BINARIES = ("add", "add", "add", "multiply", "subtract", "maximum")
_OPERANDS = (
    "channels",
    "scalar",
    "whole",
    "itself",
    "input",
    "turned input",
    "before",
    "early",
    "copy",
    "copy",
    "plain",
)
"""Second operands: constants of several shapes, and values computed before.

A turned operand has swapped axes. Nothing else reads a copy, or a plain operand, so that a sum may overwrite either.
The copy has the layout of the layers' results, and the plain operand is row-major.
"""


class _Follower(NamedTuple):
    """An op on the result of a product or convolution.

    Attributes:
        op: the op.
        attrs: the attributes.
        operand: the second operand, one of ``_OPERANDS``; nothing for a function of one operand.
        is_second: whether the operand comes second.
    """

    op: str
    attrs: Mapping[str, Any]
    operand: str = ""
    is_second: bool = True


class _Layer(NamedTuple):
    """A product or convolution with followers; ``is_read_late``: the result is read at the end of the network too."""

    followers: tuple[_Follower, ...]
    is_read_late: bool = False


class _Drawing:
    """A network being drawn.

    Args:
        generator: of all random numbers.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._is_image = self._happens(0.5)
        self._shape = (2, _WIDTH, _SIDE, _SIDE) if self._is_image else (_WIDTH, _WIDTH)
        self.region = Region(seed=int(generator.integers(1 << 16)))
        self._input: Value = self.region.builder.param("x", tensor(self._shape))

    def draw(self) -> Region:
        layers = [self._layer() for _ in range(self._choose((1, 1, 2)))]
        early, late = self._product(self._input), list[Value]()
        value: Value = emit(self.region, "tanh", early)
        for _ in range(int(self._generator.integers(4, 8))):
            layer = self._choose(layers)
            if self._happens(0.35):
                layer = self._changed(layer)
            operands = [self._operand(follower.operand, value, early) for follower in layer.followers]
            value = self._product(value)
            for follower, operand in zip(layer.followers, operands, strict=True):
                value = self._followed(value, follower, operand)
            if layer.is_read_late:
                late.append(value if self._happens(0.5) else emit(self.region, "abs", value))
        return self.region.finish(value, *late)

    def _choose(self, options: Any) -> Any:
        return options[int(self._generator.integers(len(options)))]

    def _happens(self, probability: float) -> bool:
        return bool(self._generator.random() < probability)

    def _layer(self) -> _Layer:
        return _Layer(tuple(self._follower() for _ in range(self._choose((1, 2, 2, 3)))), self._happens(0.15))

    def _follower(self) -> _Follower:
        if self._happens(0.4):
            return _Follower(*self._choose(_FUNCTIONS))
        return _Follower(self._choose(_BINARIES), {}, self._choose(_OPERANDS), self._happens(0.7))

    def _changed(self, layer: _Layer) -> _Layer:
        """Return a layer that differs in the attributes or the operand of a follower, or in a reader of the result."""
        if self._happens(0.25):
            return layer._replace(is_read_late=not layer.is_read_late)
        at = int(self._generator.integers(len(layer.followers)))
        follower = layer.followers[at]
        if follower.operand:
            alike = {"copy": "plain", "plain": "copy"}.get(follower.operand)
            follower = follower._replace(operand=alike or self._choose(_OPERANDS))
        else:
            follower = _Follower(*self._choose([item for item in _FUNCTIONS if item[0] == follower.op]))
        return layer._replace(followers=(*layer.followers[:at], follower, *layer.followers[at + 1 :]))

    def _const(self, *shape: int) -> Value:
        return self.region.builder.const(self.region.draw(*shape) / np.float32(_WIDTH))

    def _product(self, value: Value) -> Value:
        if self._is_image:
            return emit(self.region, "nn.conv2d", value, self._const(_WIDTH, _WIDTH, 3, 3), padding=(1, 1, 1, 1))
        return emit(self.region, "matmul", value, self._const(_WIDTH, _WIDTH))

    def _operand(self, name: str, before: Value, early: Value) -> Value | None:
        """Return the second operand of a follower; ``None`` if there is none, or the first operand is the second."""
        if name in ("", "itself"):
            return None
        if name in ("channels", "scalar", "whole"):
            shapes = {"channels": (_WIDTH, 1, 1) if self._is_image else (_WIDTH,), "scalar": (), "whole": self._shape}
            return self._const(*shapes[name])
        if name == "copy":
            return emit(self.region, "abs", before)
        if name == "plain":
            return emit(self.region, "matmul", before, self._const(self._shape[-1], self._shape[-1]))
        if name == "turned input":
            return emit(self.region, "permute_dims", self._input, axes=(0, 1, 3, 2) if self._is_image else (1, 0))
        return {"input": self._input, "before": before, "early": early}[name]

    def _followed(self, value: Value, follower: _Follower, operand: Value | None) -> Value:
        if not follower.operand:
            return emit(self.region, follower.op, value, **follower.attrs)
        other = value if operand is None else operand
        return emit(self.region, follower.op, *((value, other) if follower.is_second else (other, value)))


def drawn_layers(seed: int) -> Region:
    """Return the network of a seed, of static sizes."""
    return _Drawing(np.random.default_rng(seed)).draw()
