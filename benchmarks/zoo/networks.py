"""The zoo's own networks by name, with builders, inputs and dynamic sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx

from benchmarks.zoo import audio, bert, convnext, detector, efficientnet, gpt2, grouped, llama, lstm, small_networks
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.light import draw_inputs

__all__ = ["NETWORKS", "Network"]

Feeds = dict[str, npt.NDArray[Any]]

DYNAMIC_SIZES = {"batch": (1, 3), "sequence": (1, 5, 17), "past": (0, 1, 7)}
"""The sizes tried for each dynamic dimension."""


@dataclass(frozen=True)
class Network:
    """A family of models: a model for each size and style.

    Attributes:
        configs: the sizes of the network, by name.
        build_model: a function returning the model of a config and a style.
        draw_inputs: a function returning seeded inputs of a config, for given dynamic sizes.
        dims: the names of the dynamic sizes.
    """

    configs: Mapping[str, Any]
    build_model: Callable[[Any, Any], onnx.ModelProto]
    draw_inputs: Callable[[Any, Mapping[str, int], int], Feeds]
    dims: tuple[str, ...]

    @property
    def has_cache(self) -> bool:
        """Whether the network is a decoder with a cache of keys and values."""
        return "past" in self.dims

    def build(self, size: str, style: str) -> onnx.ModelProto:
        """Return the model of a size and a style, given by name."""
        return self.build_model(self.configs[size], STYLES[style])

    def draw(self, size: str, sizes: Mapping[str, int], seed: int) -> Feeds:
        """Return seeded inputs."""
        return self.draw_inputs(self.configs[size], sizes, seed)

    def list_sizes(self) -> list[dict[str, int]]:
        """Return every combination of dynamic sizes."""
        columns = [DYNAMIC_SIZES[dim] for dim in self.dims]
        return [dict(zip(self.dims, row, strict=True)) for row in itertools.product(*columns)]


def _fixed(configs: Mapping[str, Any], build_model: Callable[[Any, Any], onnx.ModelProto]) -> Network:
    """Return a network without dynamic sizes; inputs are drawn as declared by the model."""

    def draw(config: Any, _sizes: Mapping[str, int], seed: int) -> Feeds:
        return dict(draw_inputs(build_model(config, STYLES["exported17"]), seed))

    return Network(configs, build_model, draw, ())


_ENCODER = ("batch", "sequence")
_DECODER = ("batch", "sequence", "past")

NETWORKS = {
    "bert": Network(bert.SIZES, bert.build_bert, bert.draw_bert_inputs, _ENCODER),
    "gpt2": Network(gpt2.SIZES, gpt2.build_gpt2, gpt2.draw_gpt2_inputs, _DECODER),
    "llama": Network(llama.SIZES, llama.build_llama, llama.draw_llama_inputs, _DECODER),
    "lstm": Network(lstm.SIZES, lstm.build_lstm, lstm.draw_lstm_inputs, _ENCODER),
    "tagger": Network(lstm.TAGGER_SIZES, lstm.build_lstm, lstm.draw_lstm_inputs, _ENCODER),
    "text_tagger": Network(
        small_networks.TAGGER_SIZES, small_networks.build_tagger, small_networks.draw_tagger_inputs, ()
    ),
    "efficientnet": _fixed(efficientnet.SIZES, efficientnet.build_efficientnet),
    "convnext": _fixed(convnext.SIZES, convnext.build_convnext),
    "regnet": _fixed(grouped.REGNET_SIZES, grouped.build_grouped),
    "resnext": _fixed(grouped.RESNEXT_SIZES, grouped.build_grouped),
    "detector": _fixed(detector.SIZES, detector.build_detector),
    "audio_encoder": _fixed(audio.SIZES, audio.build_audio_encoder),
}
"""The networks by name."""
