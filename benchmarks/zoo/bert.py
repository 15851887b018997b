"""A BERT-style encoder (Devlin et al. 2018, arXiv:1810.04805) with seeded weights.

Inputs ``input_ids``, ``attention_mask``, ``token_type_ids``, each ``(batch, sequence)``; outputs ``last_hidden_state``
``(batch, sequence, hidden)`` and ``pooler_output`` ``(batch, hidden)``.
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
from benchmarks.zoo.layers import LOWEST, attend, gelu_erf, join_heads, layer_norm, linear, split_heads

__all__ = ["SIZES", "BertConfig", "build_bert", "draw_bert_inputs"]

EPSILON = 1e-12


@dataclass(frozen=True)
class BertConfig:
    """The sizes of the network."""

    num_layers: int
    hidden: int
    num_heads: int
    inner: int
    vocabulary: int
    positions: int
    segments: int = 2


SIZES = {
    "tiny": BertConfig(num_layers=2, hidden=48, num_heads=4, inner=96, vocabulary=101, positions=40),
    "real": BertConfig(num_layers=12, hidden=768, num_heads=12, inner=3072, vocabulary=30522, positions=512),
}


def build_bert(config: BertConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("bert", style)
    ids, mask, segments = (
        graph.input(name, np.int64, "batch", "sequence") for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    with graph.scope("bert"):
        added = _expand_mask(graph, mask, ids)
        x = _embed(graph, config, ids, segments)
        for index in range(config.num_layers):
            with graph.scope(f"layer.{index}"):
                x = _layer(graph, config, x, added)
        with graph.scope("pooler"):
            first = graph.op("Gather", x, graph.constant(0), axis=1)
            pooled = graph.op("Tanh", linear(graph, first, config.hidden, config.hidden, bias=True))
    graph.output("last_hidden_state", x, np.float32, "batch", "sequence", config.hidden)
    graph.output("pooler_output", pooled, np.float32, "batch", config.hidden)
    return graph.finish()


def draw_bert_inputs(config: BertConfig, sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs; all texts of a batch but the first end in padding, if the length allows padding."""
    rng = np.random.default_rng(seed)
    shape = (sizes["batch"], sizes["sequence"])
    lengths = np.maximum(1, shape[1] - np.arange(shape[0]))
    return {
        "input_ids": rng.integers(0, config.vocabulary, shape),
        "attention_mask": (np.arange(shape[1]) < lengths[:, None]).astype(np.int64),
        "token_type_ids": np.broadcast_to((np.arange(shape[1]) > shape[1] // 2).astype(np.int64), shape),
    }


def _expand_mask(graph: GraphBuilder, mask: str, ids: str) -> str:
    """Return the mask of ones and zeros as ``(batch, 1, sequence, sequence)``, to be added to the scores.

    The Attention op takes booleans.
    """
    batch, length = graph.size(ids, 0), graph.size(ids, 1)
    expanded = graph.expand(graph.unsqueeze(mask, 1, 2), batch, 1, length, length)
    if graph.style.is_modern:
        return graph.cast(expanded, np.bool_)
    inverse = graph.op("Sub", graph.constant(1.0, np.float32), graph.cast(expanded, np.float32))
    return graph.op("Where", graph.cast(inverse, np.bool_), graph.constant(LOWEST, np.float32), inverse)


def _embed(graph: GraphBuilder, config: BertConfig, ids: str, segments: str) -> str:
    with graph.scope("embeddings"):
        numbers = graph.initializer("position_ids", np.arange(config.positions)[np.newaxis])
        positions = graph.slice(numbers, 1, 0, graph.size(ids, 1))
        tables = {"word": config.vocabulary, "token_type": config.segments, "position": config.positions}
        word_embeddings, segment_embeddings, position_embeddings = (
            graph.op("Gather", graph.weight(name, (count, config.hidden), 1.0), index)
            for (name, count), index in zip(tables.items(), (ids, segments, positions), strict=True)
        )
        return layer_norm(
            graph,
            graph.op("Add", graph.op("Add", word_embeddings, segment_embeddings), position_embeddings),
            config.hidden,
            EPSILON,
        )


def _layer(graph: GraphBuilder, config: BertConfig, x: str, mask: str) -> str:
    with graph.scope("attention"):
        attended = _attention(graph, config, x, mask)
        with graph.scope("output"):
            result = linear(graph, attended, config.hidden, config.hidden, bias=True)
            x = layer_norm(graph, graph.op("Add", result, x), config.hidden, EPSILON)
    with graph.scope("intermediate"):
        inner = gelu_erf(graph, linear(graph, x, config.hidden, config.inner, bias=True))
    with graph.scope("output"):
        result = linear(graph, inner, config.inner, config.hidden, bias=True)
        return layer_norm(graph, graph.op("Add", result, x), config.hidden, EPSILON)


def _attention(graph: GraphBuilder, config: BertConfig, x: str, mask: str) -> str:
    parts = []
    for name in ("query", "key", "value"):
        with graph.scope(name):
            parts.append(linear(graph, x, config.hidden, config.hidden, bias=True))
    if graph.style.is_modern:
        return graph.op("Attention", *parts, mask, q_num_heads=config.num_heads, kv_num_heads=config.num_heads)
    size = config.hidden // config.num_heads
    query, key, value = (split_heads(graph, part, config.num_heads, size, turned=part is parts[1]) for part in parts)
    scores = graph.op("Div", graph.op("MatMul", query, key), graph.constant(math.sqrt(size), np.float32))
    return join_heads(graph, attend(graph, scores, mask, value), config.hidden)
