"""The decoders of the benchmarks of states: a GPT-2-style and a Llama-style decoder of the zoo, in a middle size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from byoc_core.runtime.module import NDArray

from benchmarks.zoo.gpt2 import Gpt2Config, build_gpt2
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.llama import LlamaConfig, build_llama

__all__ = ["BACKENDS", "LONG_PAST", "NUM_STEPS", "SHORT_PAST", "VOCABULARY", "Decoder", "build_decoders"]

SHORT_PAST, LONG_PAST, NUM_STEPS = 512, 4096, 32
VOCABULARY, POSITIONS = 8000, LONG_PAST + 2 * NUM_STEPS
BACKENDS = ("ccompiler",)
STYLE = "exported17"
GPT2 = Gpt2Config(num_layers=6, hidden=384, num_heads=6, vocabulary=VOCABULARY, positions=POSITIONS)
LLAMA = LlamaConfig(
    num_layers=6, hidden=384, num_heads=6, cache_heads=2, inner=1024, vocabulary=VOCABULARY, positions=POSITIONS
)


def build_decoders() -> dict[str, Decoder]:
    """Return the decoders by name, with random weights."""
    return {
        "gpt2": Decoder(build_gpt2(GPT2, STYLES[STYLE]), has_positions=False),
        "llama": Decoder(build_llama(LLAMA, STYLES[STYLE]), has_positions=True),
    }


@dataclass(frozen=True)
class Decoder:
    """A decoder of the benchmark.

    Attributes:
        model: the model.
        has_positions: whether the model takes positions and a mask.
    """

    model: onnx.ModelProto
    has_positions: bool

    @property
    def caches(self) -> list[tuple[str, str]]:
        """The names of the caches before and after a step."""
        names = [value.name for value in self.model.graph.input if value.name.startswith("past_")]
        return [(name, name.replace("past_", "present_", 1)) for name in names]

    def feeds(self, tokens: NDArray, before: int) -> dict[str, NDArray]:
        """Return the inputs other than caches."""
        length = tokens.shape[1]
        if not self.has_positions:
            return {"input_ids": tokens}
        return {
            "input_ids": tokens,
            "attention_mask": np.ones((1, before + length), np.int64),
            "position_ids": np.arange(before, before + length)[None],
        }

    def prompt(self, length: int) -> dict[str, NDArray]:
        """Return the inputs of a first call with a prompt."""
        return self.feeds(np.arange(1, 1 + length)[None] % VOCABULARY, 0)

    def empty_caches(self) -> dict[str, NDArray]:
        """Return caches without rows."""
        shapes = {
            value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            for value in self.model.graph.input
        }
        return {name: np.empty((*shapes[name][:2], 0, shapes[name][3]), np.float32) for name, _ in self.caches}
