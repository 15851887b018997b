"""Blocks of quantised networks: an op between ``dequantize`` and ``quantize``, drawn pairwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from byoc_core.ir import OpRegistry, Value

from byoc_conformance.drawing.blocks import BlockDraft
from byoc_conformance.drawing.graphs import DrawnGraph
from byoc_conformance.drawing.pairwise import Levels, cover_pairs
from byoc_conformance.drawing.seeds import generator_of

__all__ = ["BYTE_ROOTS", "draw_byte_blocks"]

_CHANNELS_LAST_IMAGE = (1, 8, 8, 16)
_CHANNELS_FIRST_IMAGE = (1, 16, 8, 8)


class _ByteBlockDraft(BlockDraft):
    """A block with values dequantised from bytes."""

    def dequantised(self, value: Value, dtype: str, zero: int, scales: np.ndarray[Any, Any], axis: int) -> Value:
        """Return a value as floats: a single scale, or a scale for each index of an axis; zero points likewise."""
        zeros = np.full(scales.shape, zero, dtype)
        return self.op("dequantize", value, self.const(scales), self.const(zeros), axis=axis)

    def byte_param(self, levels: Levels, shape: tuple[int, ...], zero: int, scale: float = 0.5) -> Value:
        """Return a new parameter of bytes, as floats."""
        dtype = levels["dtype"]
        value = self.param(*shape, dtype=dtype)
        return self.dequantised(value, dtype, zero, np.asarray(scale, np.float32), 0)

    def byte_weights(self, levels: Levels, shape: tuple[int, ...], outputs: int, sums: int) -> Value:
        """Return weights of bytes, as floats; the scales lie along the outputs, along the sums, or are a scalar."""
        value = self.const(self.array(shape, "int8"))
        axis = {"outputs": outputs, "sums": sums, "one": 0}[levels["scales"]]
        count = () if levels["scales"] == "one" else (shape[axis],)
        scales = np.asarray(2.0 ** -self._generator.integers(5, 9, count), np.float32)
        return self.dequantised(value, "int8", levels["weight zero"], scales, axis)


_Build = Callable[[_ByteBlockDraft, Levels], Value]


def _product(name: str, shape: tuple[int, ...], weight: tuple[int, ...], outputs: int, sums: int) -> _Build:
    def build(draft: _ByteBlockDraft, levels: Levels) -> Value:
        x = draft.byte_param(levels, shape, levels["zero"])
        return draft.op(name, x, draft.byte_weights(levels, weight, outputs, sums))

    return build


def _convolution(layout: str, padding: tuple[int, ...]) -> _Build:
    def build(draft: _ByteBlockDraft, levels: Levels) -> Value:
        x = draft.byte_param(
            levels, _CHANNELS_LAST_IMAGE if layout == "NHWC" else _CHANNELS_FIRST_IMAGE, levels["zero"]
        )
        weight = draft.byte_weights(levels, (32, 16, 3, 3), 0, 1)
        return draft.op("nn.conv2d", x, weight, padding=padding, data_layout=layout)

    return build


def _pair(name: str, **attrs: Any) -> _Build:
    def build(draft: _ByteBlockDraft, levels: Levels) -> Value:
        first = draft.byte_param(levels, _CHANNELS_FIRST_IMAGE, levels["zero"])
        return draft.op(
            name,
            first,
            draft.byte_param(levels, _CHANNELS_FIRST_IMAGE, levels["other zero"], levels["other scale"]),
            **attrs,
        )

    return build


def _single(name: str, **attrs: Any) -> _Build:
    return lambda draft, levels: draft.op(
        name, draft.byte_param(levels, _CHANNELS_FIRST_IMAGE, levels["zero"]), **attrs
    )


_FACTORS: Mapping[str, tuple[Any, ...]] = {
    "dtype": ("uint8", "int8"),
    "zero": (0, 37),
    "relu": (False, True),
    "result": ("bytes", "other bytes", "floats"),
}
_SECOND_OPERAND_FACTORS: Mapping[str, tuple[Any, ...]] = {"other zero": (0, 90, 37), "other scale": (0.5, 0.25)}
_WEIGHT_FACTORS: Mapping[str, tuple[Any, ...]] = {"weight zero": (0, 5), "scales": ("one", "outputs", "sums")}

_BLOCKS: Mapping[str, tuple[Mapping[str, tuple[Any, ...]], _Build]] = {
    "matmul of bytes": (_WEIGHT_FACTORS, _product("matmul", (4, 16), (16, 16), 1, 0)),
    "dense of bytes": (_WEIGHT_FACTORS, _product("nn.dense", (4, 16), (16, 16), 0, 1)),
    "convolution of bytes": (_WEIGHT_FACTORS, _convolution("NCHW", (1, 0, 1, 2))),
    "convolution of bytes, channels last": (_WEIGHT_FACTORS, _convolution("NHWC", (1, 1, 1, 1))),
    "sum of bytes": (_SECOND_OPERAND_FACTORS, _pair("add")),
    "product of bytes": (_SECOND_OPERAND_FACTORS, _pair("multiply")),
    "concat of bytes": (_SECOND_OPERAND_FACTORS, _pair("concat", axis=1)),
    "maximum pool of bytes": ({}, _single("nn.max_pool2d", pool_size=(3, 3), padding=(1, 1, 1, 1))),
    "mean pool of bytes": ({}, _single("nn.avg_pool2d", pool_size=(2, 2))),
}
BYTE_ROOTS = tuple(_BLOCKS)
"""The names of the roots."""


def draw_byte_blocks(ops: OpRegistry, root: str, seed: int) -> Iterator[DrawnGraph]:
    """Yield the quantised blocks of a root, covering every pair of choices.

    Scales are powers of two, so quotients are exact and only a single byte is right.

    Args:
        ops: the registry.
        root: a name in :data:`BYTE_ROOTS`.
        seed: of all random numbers.
    """
    kind, build = _BLOCKS[root]
    for number, levels in enumerate(cover_pairs({**_FACTORS, **kind}, dict, generator_of(seed, root))):
        yield _draw(_ByteBlockDraft(f"bytes_{number}", ops, generator_of(seed, root, number)), build, levels)


def _draw(draft: _ByteBlockDraft, build: _Build, levels: Levels) -> DrawnGraph:
    value = build(draft, levels)
    if levels["relu"]:
        value = draft.op("nn.relu", value)
    if levels["result"] != "floats":
        dtype = levels["dtype"] if levels["result"] == "bytes" else "uint8" if levels["dtype"] == "int8" else "int8"
        scale, zero = draft.const(np.float32(1)), draft.const(np.asarray(levels["zero"] + 7, dtype))
        value = draft.op("quantize", value, scale, zero)
    return draft.finish(value)
