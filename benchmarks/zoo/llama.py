"""A Llama-style decoder (Touvron et al. 2023, arXiv:2302.13971) with grouped-query attention and seeded weights.

Inputs ``input_ids`` and ``position_ids`` ``(batch, sequence)``, ``attention_mask`` ``(batch, past + sequence)``, and
for each layer ``past_key_i``, ``past_value_i`` ``(batch, groups, past, size)``; outputs ``logits``
``(batch, sequence, vocabulary)`` and for each layer ``present_key_i``, ``present_value_i``
``(batch, groups, past + sequence, size)``. The past may be empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import Dim, GraphBuilder, Style
from benchmarks.zoo.layers import LOWEST, attend, join_heads, linear, rms_norm, split_heads, swish

__all__ = ["SIZES", "LlamaConfig", "build_llama", "draw_llama_inputs"]

EPSILON = 1e-6
ROTARY_BASE = 10000.0


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of the network."""

    num_layers: int
    hidden: int
    num_heads: int
    cache_heads: int
    inner: int
    vocabulary: int
    positions: int

    @property
    def head_size(self) -> int:
        """The width of a head."""
        return self.hidden // self.num_heads


SIZES = {
    "tiny": LlamaConfig(num_layers=2, hidden=48, num_heads=6, cache_heads=2, inner=80, vocabulary=97, positions=48),
    "real": LlamaConfig(
        num_layers=12, hidden=768, num_heads=12, cache_heads=4, inner=2048, vocabulary=16000, positions=2048
    ),
}


@dataclass(frozen=True)
class _Shared:
    """The values read by all layers.

    Attributes:
        config: the sizes.
        positions: the position of each token.
        mask: the summand of the scores, or the visible places in the modern style.
        cos: the table of cosines, a row for each position.
        sin: the table of sines.
    """

    config: LlamaConfig
    positions: str
    mask: str
    cos: str
    sin: str


def build_llama(config: LlamaConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("llama", style)
    ids = graph.input("input_ids", np.int64, "batch", "sequence")
    mask = graph.input("attention_mask", np.int64, "batch", "past + sequence")
    positions = graph.input("position_ids", np.int64, "batch", "sequence")
    cache_shape = ("batch", config.cache_heads, "past", config.head_size)
    pasts = [
        tuple(graph.input(f"past_{part}_{index}", np.float32, *cache_shape) for part in ("key", "value"))
        for index in range(config.num_layers)
    ]
    presents = []
    with graph.scope("model"):
        words = graph.weight("embed_tokens", (config.vocabulary, config.hidden), 1.0)
        x = graph.op("Gather", words, ids)
        cos, sin = _rotary_tables(graph, config)
        shared = _Shared(config, positions, _combine_masks(graph, mask, ids, pasts[0][0]), cos, sin)
        for index, past in enumerate(pasts):
            with graph.scope(f"layers.{index}"):
                x, present = _block(graph, shared, x, past)
                presents.append(present)
        with graph.scope("norm"):
            x = rms_norm(graph, x, config.hidden, EPSILON)
    with graph.scope("lm_head"):
        logits = linear(graph, x, config.hidden, config.vocabulary, bias=False)
    graph.output("logits", logits, np.float32, "batch", "sequence", config.vocabulary)
    grown = ("batch", config.cache_heads, "past + sequence", config.head_size)
    for index, present in enumerate(presents):
        for part, value in zip(("key", "value"), present, strict=True):
            graph.output(f"present_{part}_{index}", value, np.float32, *grown)
    return graph.finish()


def draw_llama_inputs(config: LlamaConfig, sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs; all texts of a batch but the first begin with padding, if the past has room."""
    rng = np.random.default_rng(seed)
    batch, length, before = (sizes[name] for name in ("batch", "sequence", "past"))
    padding = np.minimum(before, np.arange(batch))
    feeds: dict[str, npt.NDArray[Any]] = {
        "input_ids": rng.integers(0, config.vocabulary, (batch, length)),
        "attention_mask": (np.arange(before + length) >= padding[:, None]).astype(np.int64),
        "position_ids": np.arange(before, before + length) - padding[:, None],
    }
    shape = (batch, config.cache_heads, before, config.head_size)
    for index in range(config.num_layers):
        feeds |= {f"past_{part}_{index}": rng.standard_normal(shape, np.float32) for part in ("key", "value")}
    return feeds


def _rotary_tables(graph: GraphBuilder, config: LlamaConfig) -> tuple[str, str]:
    """Return cosines and sines: a column for each pair, or for each element, depending on the style."""
    steps = ROTARY_BASE ** (-np.arange(0, config.head_size, 2) / config.head_size)
    angles = np.outer(np.arange(config.positions), steps)
    if not graph.style.is_modern:
        angles = np.concatenate([angles, angles], axis=1)[np.newaxis, np.newaxis]
    cos, sin = (function(angles).astype(np.float32) for function in (np.cos, np.sin))
    return graph.initializer("cos_cached", cos), graph.initializer("sin_cached", sin)


def _combine_masks(graph: GraphBuilder, mask: str, ids: str, past: str) -> str:
    """Return ``(batch, 1, sequence, past + sequence)``: causal mask and padding mask, to be added to the scores.

    The Attention op has the causal mask built in and takes the other as booleans, for each query in ONNX Runtime.
    """
    batch, length, before = graph.size(ids, 0), graph.size(ids, 1), graph.size(past, 2)
    total = graph.add(length, before)
    if graph.style.is_modern:
        return graph.expand(graph.unsqueeze(graph.cast(mask, np.bool_), 1, 2), batch, 1, length, total)
    lowest = graph.expand(graph.constant(LOWEST, np.float32), length, length)
    causal = _mask_future(graph, lowest, length)
    zeros = graph.op("ConstantOfShape", graph.vector(length, before))
    causal = graph.op("Concat", zeros, causal, axis=-1)
    causal = graph.expand(graph.unsqueeze(causal, 0, 1), batch, 1, length, total)
    expanded = graph.expand(graph.unsqueeze(mask, 1, 2), batch, 1, length, total)
    inverse = graph.op("Sub", graph.constant(1.0, np.float32), graph.cast(expanded, np.float32))
    hidden = graph.cast(inverse, np.bool_)
    padding = graph.op("Where", hidden, graph.constant(LOWEST, np.float32), inverse)
    return graph.op("Where", graph.cast(padding, np.bool_), graph.constant(LOWEST, np.float32), causal)


def _mask_future(graph: GraphBuilder, lowest: str, length: Dim) -> str:
    """Return a square with zeros on and under the diagonal, and the lowest numbers above the diagonal."""
    if graph.style.opset >= 14:
        return graph.op("Trilu", lowest, graph.constant(1), upper=1)
    numbers = graph.arange(0, length)
    column = graph.reshape(graph.op("Add", numbers, graph.constant(1)), length, 1)
    return graph.op("Where", graph.op("Less", numbers, column), graph.constant(0.0, np.float32), lowest)


def _block(graph: GraphBuilder, shared: _Shared, x: str, past: tuple[str, ...]) -> tuple[str, tuple[str, str]]:
    config = shared.config
    gain = 1.0 / math.sqrt(2 * config.num_layers)
    with graph.scope("input_layernorm"):
        normal = rms_norm(graph, x, config.hidden, EPSILON)
    with graph.scope("self_attn"):
        attended, present = _attention(graph, shared, normal, past)
        with graph.scope("o_proj"):
            x = graph.op("Add", x, linear(graph, attended, config.hidden, config.hidden, bias=False, gain=gain))
    with graph.scope("post_attention_layernorm"):
        normal = rms_norm(graph, x, config.hidden, EPSILON)
    with graph.scope("mlp"):
        with graph.scope("gate_proj"):
            gate = swish(graph, linear(graph, normal, config.hidden, config.inner, bias=False))
        with graph.scope("up_proj"):
            inner = graph.op("Mul", gate, linear(graph, normal, config.hidden, config.inner, bias=False))
        with graph.scope("down_proj"):
            added = linear(graph, inner, config.inner, config.hidden, bias=False, gain=gain)
    return graph.op("Add", x, added), present


def _attention(graph: GraphBuilder, shared: _Shared, x: str, past: tuple[str, ...]) -> tuple[str, tuple[str, str]]:
    config, size = shared.config, shared.config.head_size
    parts = []
    for name, heads in (("q", config.num_heads), ("k", config.cache_heads), ("v", config.cache_heads)):
        with graph.scope(f"{name}_proj"):
            projected = linear(graph, x, config.hidden, heads * size, bias=False)
        parts.append(split_heads(graph, projected, heads, size))
    if graph.style.is_modern:
        tables = (shared.cos, shared.sin, shared.positions)
        turned = [graph.op("RotaryEmbedding", part, *tables) for part in parts[:2]]
        inputs = (*turned, parts[2], shared.mask, *past)
        attended, *grown = graph.ops("Attention", *inputs, num_outputs=3, is_causal=1)
        return join_heads(graph, attended, config.hidden), (grown[0], grown[1])
    query, key = _rotate(graph, shared, parts[0], parts[1], past[0])
    key, value = (graph.op("Concat", before, new, axis=-2) for before, new in zip(past, (key, parts[2]), strict=True))
    keys, values = (_repeat_heads(graph, config, part) for part in (key, value))
    scores = graph.op("MatMul", query, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.op("Div", scores, graph.constant(math.sqrt(size), np.float32))
    return join_heads(graph, attend(graph, scores, shared.mask, values), config.hidden), (key, value)


def _rotate(graph: GraphBuilder, shared: _Shared, query: str, key: str, past: str) -> tuple[str, str]:
    """Return queries and keys turned by the angles of the positions."""
    total = graph.add(graph.size(key, 2), graph.size(past, 2))
    angles = []
    for table in (shared.cos, shared.sin):
        rows = graph.slice(table, 2, 0, total)
        rows = graph.op("Squeeze", graph.op("Squeeze", rows, graph.constant([1])), graph.constant([0]))
        angles.append(graph.unsqueeze(graph.op("Gather", rows, shared.positions), 1))
    turned = []
    for part in (query, key):
        half = graph.halve(graph.size(part, 3))
        left, right = graph.slice(part, 3, 0, half), graph.slice(part, 3, half, np.iinfo(np.int64).max)
        across = graph.op("Concat", graph.op("Neg", right), left, axis=-1)
        products = graph.op("Mul", part, angles[0]), graph.op("Mul", across, angles[1])
        turned.append(graph.op("Add", *products))
    return turned[0], turned[1]


def _repeat_heads(graph: GraphBuilder, config: LlamaConfig, x: str) -> str:
    """Return ``(batch, groups, total, size)`` as ``(batch, heads, total, size)``: each group for several heads."""
    groups, repeats, size = config.cache_heads, config.num_heads // config.cache_heads, config.head_size
    batch, total = graph.size(x, 0), graph.size(x, 2)
    repeated = graph.expand(graph.unsqueeze(x, 2), batch, groups, repeats, total, size)
    return graph.reshape(repeated, batch, groups * repeats, total, size)
