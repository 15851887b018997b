"""A GPT-2-style decoder (Radford et al. 2019) with a cache of keys and values, and seeded weights.

Inputs ``input_ids`` ``(batch, sequence)`` and for each layer ``past_key_i``, ``past_value_i``
``(batch, heads, past, size)``; outputs ``logits`` ``(batch, sequence, vocabulary)`` and for each layer
``present_key_i``, ``present_value_i`` ``(batch, heads, past + sequence, size)``. The past may be empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.graph_builder import GraphBuilder, Style
from benchmarks.zoo.layers import LOWEST, gelu_tanh, join_heads, layer_norm, split_heads

__all__ = ["SIZES", "Gpt2Config", "build_gpt2", "draw_gpt2_inputs"]

EPSILON = 1e-5


@dataclass(frozen=True)
class Gpt2Config:
    """The sizes of the network."""

    num_layers: int
    hidden: int
    num_heads: int
    vocabulary: int
    positions: int

    @property
    def head_size(self) -> int:
        """The width of a head."""
        return self.hidden // self.num_heads


SIZES = {
    "tiny": Gpt2Config(num_layers=2, hidden=32, num_heads=4, vocabulary=89, positions=48),
    "real": Gpt2Config(num_layers=12, hidden=768, num_heads=12, vocabulary=50257, positions=1024),
}


def build_gpt2(config: Gpt2Config, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("gpt2", style)
    ids = graph.input("input_ids", np.int64, "batch", "sequence")
    cache_shape = ("batch", config.num_heads, "past", config.head_size)
    pasts = [
        tuple(graph.input(f"past_{part}_{index}", np.float32, *cache_shape) for part in ("key", "value"))
        for index in range(config.num_layers)
    ]
    presents = []
    with graph.scope("transformer"):
        words = graph.weight("wte", (config.vocabulary, config.hidden), 1.0 / math.sqrt(config.hidden))
        causal = np.tril(np.ones((config.positions, config.positions), np.bool_))[np.newaxis, np.newaxis]
        seen = "" if style.is_modern else graph.initializer("bias", causal)
        x = _embed(graph, config, words, ids, pasts[0][0])
        for index, past in enumerate(pasts):
            with graph.scope(f"h.{index}"):
                x, present = _block(graph, config, x, past, seen)
                presents.append(present)
        with graph.scope("ln_f"):
            x = layer_norm(graph, x, config.hidden, EPSILON)
    # The head shares the embedding's weights.
    logits = graph.op("MatMul", x, graph.op("Transpose", words, perm=[1, 0]))
    graph.output("logits", logits, np.float32, "batch", "sequence", config.vocabulary)
    grown = ("batch", config.num_heads, "past + sequence", config.head_size)
    for index, present in enumerate(presents):
        for part, value in zip(("key", "value"), present, strict=True):
            graph.output(f"present_{part}_{index}", value, np.float32, *grown)
    return graph.finish()


def draw_gpt2_inputs(config: Gpt2Config, sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs."""
    rng = np.random.default_rng(seed)
    shape = (sizes["batch"], config.num_heads, sizes["past"], config.head_size)
    feeds: dict[str, npt.NDArray[Any]] = {
        "input_ids": rng.integers(0, config.vocabulary, (sizes["batch"], sizes["sequence"]))
    }
    for index in range(config.num_layers):
        feeds |= {f"past_{part}_{index}": rng.standard_normal(shape, np.float32) for part in ("key", "value")}
    return feeds


def _embed(graph: GraphBuilder, config: Gpt2Config, words: str, ids: str, past: str) -> str:
    """Return the sum of the embeddings of tokens and of positions, counted from the end of the past."""
    length, before = graph.size(ids, 1), graph.size(past, 2)
    numbers = graph.unsqueeze(graph.arange(before, graph.add(length, before)), 0)
    positions = graph.reshape(numbers, -1, length)
    position_table = graph.weight("wpe", (config.positions, config.hidden), 0.5 / math.sqrt(config.hidden))
    return graph.op("Add", graph.op("Gather", words, ids), graph.op("Gather", position_table, positions))


def _block(
    graph: GraphBuilder, config: Gpt2Config, x: str, past: tuple[str, ...], seen: str
) -> tuple[str, tuple[str, str]]:
    # Each block adds two branches; GPT-2 scales the branches by the number of all branches.
    gain = 1.0 / math.sqrt(2 * config.num_layers)
    with graph.scope("ln_1"):
        normal = layer_norm(graph, x, config.hidden, EPSILON)
    with graph.scope("attn"):
        attended, present = _attention(graph, config, normal, past, seen)
        with graph.scope("c_proj"):
            x = graph.op("Add", _project(graph, attended, config.hidden, config.hidden, gain), x)
    with graph.scope("ln_2"):
        normal = layer_norm(graph, x, config.hidden, EPSILON)
    with graph.scope("mlp"):
        with graph.scope("c_fc"):
            inner = gelu_tanh(graph, _project(graph, normal, config.hidden, 4 * config.hidden))
        with graph.scope("c_proj"):
            return graph.op("Add", x, _project(graph, inner, 4 * config.hidden, config.hidden, gain)), present


def _project(graph: GraphBuilder, x: str, num_inputs: int, num_outputs: int, gain: float = 1.0) -> str:
    """Return a dense layer in the form of GPT-2: a Gemm between two reshapes."""
    deviation = gain * math.sqrt(2.0 / (num_inputs + num_outputs))
    weight = graph.weight("weight", (num_inputs, num_outputs), deviation)
    bias = graph.weight("bias", (num_outputs,), 0.05)
    batch, length = graph.size(x, 0), graph.size(x, 1)
    product = graph.op("Gemm", graph.reshape(x, -1, num_inputs), weight, bias, alpha=1.0, beta=1.0)
    return graph.reshape(product, batch, length, num_outputs)


def _attention(
    graph: GraphBuilder, config: Gpt2Config, x: str, past: tuple[str, ...], seen: str
) -> tuple[str, tuple[str, str]]:
    with graph.scope("c_attn"):
        joined = _project(graph, x, config.hidden, 3 * config.hidden)
    parts = graph.ops("Split", joined, graph.constant([config.hidden] * 3), num_outputs=3, axis=2)
    heads = config.num_heads
    if graph.style.is_modern:
        inputs, counts = [*parts, "", *past], {"q_num_heads": heads, "kv_num_heads": heads}
        result, *grown = graph.ops("Attention", *inputs, num_outputs=3, is_causal=1, **counts)
        return result, (grown[0], grown[1])
    query, key, value = (split_heads(graph, part, heads, config.head_size) for part in parts)
    key, value = (graph.op("Concat", before, new, axis=-2) for before, new in zip(past, (key, value), strict=True))
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Div", scores, graph.constant(math.sqrt(config.head_size), np.float32))
    length, total = graph.size(query, 2), graph.size(key, 2)
    rows = graph.slice(seen, 2, graph.subtract(total, length), total)
    square = graph.slice(rows, 3, 0, total)
    masked = graph.op("Where", square, scores, graph.constant(LOWEST, np.float32))
    attended = graph.op("MatMul", graph.op("Softmax", masked, axis=-1), value)
    return join_heads(graph, attended, config.hidden), (key, value)
