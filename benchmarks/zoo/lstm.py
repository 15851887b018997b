"""Recurrent networks of LSTM layers with seeded weights: a language model, and a tagger reading in both directions.

Inputs ``input_ids`` ``(batch, sequence)``, ``lengths`` ``(batch)`` int32, ``h_0`` and ``c_0``
``(layers * directions, batch, hidden)``; outputs ``logits`` ``(batch, sequence, labels)``, ``h_n`` and ``c_n``. The
outputs of steps past the length of a text are the projection of zeros.
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
from benchmarks.zoo.layers import linear

__all__ = ["SIZES", "TAGGER_SIZES", "LstmConfig", "build_lstm", "draw_lstm_inputs"]


@dataclass(frozen=True)
class LstmConfig:
    """The sizes of the network."""

    num_layers: int
    hidden: int
    vocabulary: int
    labels: int
    num_directions: int = 1

    @property
    def num_states(self) -> int:
        """The number of states of all layers and directions."""
        return self.num_layers * self.num_directions


SIZES = {
    "tiny": LstmConfig(num_layers=2, hidden=32, vocabulary=71, labels=71),
    "real": LstmConfig(num_layers=2, hidden=512, vocabulary=10000, labels=10000),
}
TAGGER_SIZES = {
    "tiny": LstmConfig(num_layers=2, hidden=24, vocabulary=71, labels=9, num_directions=2),
    "real": LstmConfig(num_layers=2, hidden=512, vocabulary=10000, labels=45, num_directions=2),
}


def build_lstm(config: LstmConfig, style: Style) -> onnx.ModelProto:
    """Return the network as a model."""
    graph = GraphBuilder("lstm", style)
    ids = graph.input("input_ids", np.int64, "batch", "sequence")
    lengths = graph.input("lengths", np.int32, "batch")
    states = [graph.input(name, np.float32, config.num_states, "batch", config.hidden) for name in ("h_0", "c_0")]
    words = graph.weight("embedding.weight", (config.vocabulary, config.hidden), 1.0)
    x = graph.op("Transpose", graph.op("Gather", words, ids), perm=[1, 0, 2])
    finals: list[list[str]] = [[], []]
    for index in range(config.num_layers):
        with graph.scope(f"lstm.{index}"):
            x, last = _layer(graph, config, index, x, lengths, states)
        for found, value in zip(finals, last, strict=True):
            found.append(value)
    with graph.scope("projection"):
        wide = config.hidden * config.num_directions
        logits = linear(graph, graph.op("Transpose", x, perm=[1, 0, 2]), wide, config.labels, bias=True)
    graph.output("logits", logits, np.float32, "batch", "sequence", config.labels)
    for name, found in zip(("h_n", "c_n"), finals, strict=True):
        joined = graph.op("Concat", *found, axis=0)
        graph.output(name, joined, np.float32, config.num_states, "batch", config.hidden)
    return graph.finish()


def draw_lstm_inputs(config: LstmConfig, sizes: Mapping[str, int], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs; all texts of a batch but the first are shorter, if the length allows."""
    rng = np.random.default_rng(seed)
    shape = (sizes["batch"], sizes["sequence"])
    state = (config.num_states, shape[0], config.hidden)
    return {
        "input_ids": rng.integers(0, config.vocabulary, shape),
        "lengths": np.maximum(1, shape[1] - 2 * np.arange(shape[0])).astype(np.int32),
        "h_0": rng.standard_normal(state, np.float32),
        "c_0": rng.standard_normal(state, np.float32),
    }


def _layer(
    graph: GraphBuilder, config: LstmConfig, index: int, x: str, lengths: str, states: list[str]
) -> tuple[str, tuple[str, str]]:
    """Return a layer's outputs ``(sequence, batch, directions * hidden)``, and the last states."""
    hidden, directions = config.hidden, config.num_directions
    inputs = hidden if index == 0 else hidden * directions
    w = graph.weight("W", (directions, 4 * hidden, inputs), math.sqrt(2.0 / (inputs + hidden)))
    r = graph.weight("R", (directions, 4 * hidden, hidden), math.sqrt(1.0 / hidden))
    b = graph.weight("B", (directions, 8 * hidden), 0.05)
    begin, end = index * directions, (index + 1) * directions
    initial = [graph.slice(state, 0, begin, end) for state in states]
    steps, *last = graph.ops(
        "LSTM",
        *(x, w, r, b, lengths, *initial),
        num_outputs=3,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
    )
    if directions == 1:
        return graph.op("Squeeze", steps, graph.constant([1])), (last[0], last[1])
    turned = graph.op("Transpose", steps, perm=[0, 2, 1, 3])
    return graph.reshape(turned, 0, 0, -1), (last[0], last[1])
