"""The check of a model of the zoo: many sizes from a single build, and decoding step by step with a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import byoc_core
import numpy as np
import onnx
from byoc_core.dims import DimExpr
from byoc_core.ir import IRModule, TensorType
from byoc_core.transform.evaluate import evaluate_function

from benchmarks.zoo.accuracy import Accuracy, Array, judge, open_session, run_peer, with_usual_error
from benchmarks.zoo.built_model import BuiltModel, Step, build_model
from benchmarks.zoo.networks import NETWORKS, Feeds

__all__ = ["ModelCheck", "check_symbolic"]

PROMPT_LENGTH = 4
NUM_DECODED = 5
DECODING_BATCH = 2


@dataclass(frozen=True)
class _Trial:
    """A choice of dynamic sizes: inputs, ONNX Runtime's results for these and other inputs, float64 results."""

    sizes: Mapping[str, int]
    feeds: Feeds
    peers: Sequence[Array]
    other_results: Sequence[Array]
    exacts: Sequence[Array]


class ModelCheck:
    """A network of a size and a style beside ONNX Runtime; the reference results for all backends are computed once."""

    def __init__(self, name: str, size: str, style: str) -> None:
        self._network = NETWORKS[name]
        self._size = size
        self._model = self._network.build(size, style)

    @cached_property
    def module(self) -> IRModule:
        """The imported model.

        Raises:
            FrontendError: the model cannot be imported.
            ValueError: a dynamic size of an input or output is lost.
        """
        module = byoc_core.from_onnx(self._model)
        main, graph = module["main"], self._model.graph
        for values, declared in ((main.params, graph.input), (main.results, graph.output)):
            for value, info in zip(values, declared, strict=True):
                check_symbolic(info, value.type)
        return module

    def build(self, backends: Sequence[str], options: Mapping[str, Mapping[str, object]] | None = None) -> BuiltModel:
        """Build the model for all sizes, with options of the backends, save the executable, and load the artifact."""
        return build_model(self.module, backends, options)

    def compare_sizes(self, built: BuiltModel) -> dict[str, Accuracy]:
        """Return the accuracy at every choice of dynamic sizes, each judged beside the worst errors of all choices."""
        texts = [
            ", ".join(f"{name} {size}" for name, size in trial.sizes.items()) or "fixed sizes" for trial in self._trials
        ]
        judged = [
            judge(built.run(trial.feeds), trial.peers, trial.other_results, trial.exacts) for trial in self._trials
        ]
        return dict(zip(texts, with_usual_error(judged), strict=True))

    def compare_decoding(self, built: BuiltModel) -> Accuracy | None:
        """Return the accuracy of logits from a prompt and then token by token, against a single run over all tokens.

        Each token is the likeliest after the preceding tokens. ``None`` for networks without a cache.
        """
        if not self._network.has_cache:
            return None
        tokens, logits = self._decode(built.run)
        other = np.random.default_rng(2).permutation(tokens.reshape(-1)).reshape(tokens.shape)
        feeds, other_feeds = (self._continue(input_tokens, None) for input_tokens in (tokens, other))
        return judge([logits], self._peer(feeds)[:1], self._peer(other_feeds)[:1], self._exact(feeds)[:1])

    @cached_property
    def _trials(self) -> list[_Trial]:
        trials = []
        for sizes in self._network.list_sizes():
            feeds, other_feeds = (self._network.draw(self._size, sizes, seed) for seed in (1, 2))
            trials.append(_Trial(sizes, feeds, self._peer(feeds), self._peer(other_feeds), self._exact(feeds)))
        return trials

    @cached_property
    def _peer(self) -> Step:
        session = open_session(self._model.SerializeToString())
        return lambda feeds: run_peer(session, feeds)

    def _exact(self, feeds: Feeds) -> Sequence[Array]:
        inputs = [feeds[value.name] for value in self._model.graph.input]
        return evaluate_function(self.module, "main", inputs, exact=True)

    def _decode(self, run: Step) -> tuple[Array, Array]:
        """Return the tokens read, and the logits after each."""
        rng = np.random.default_rng(3)
        tokens = rng.integers(0, self._network.configs[self._size].vocabulary, (DECODING_BATCH, PROMPT_LENGTH))
        found, cache, read = [], None, tokens
        for _ in range(1 + NUM_DECODED):
            logits, *cache = run(self._continue(read, cache))
            found.append(logits)
            read = logits[:, -1:].argmax(axis=-1)
            tokens = np.concatenate([tokens, read], axis=1)
        return tokens[:, :-1], np.concatenate(found, axis=1)

    def _continue(self, tokens: Array, cache: Sequence[Array] | None) -> Feeds:
        """Return the inputs for the tokens after the cached tokens, without padding."""
        batch, length = tokens.shape
        before = 0 if cache is None else cache[0].shape[2]
        sizes = {"batch": 1, "sequence": length, "past": before}
        feeds = {
            name: np.broadcast_to(array, (batch, *array.shape[1:]))
            for name, array in self._network.draw(self._size, sizes, 0).items()
        }
        names = [name for name in feeds if name.startswith("past_")]
        return feeds | {"input_ids": tokens} | dict(zip(names, cache or (), strict=cache is not None))


def check_symbolic(declared: onnx.ValueInfoProto, found: object) -> None:
    """Check that the dynamic sizes declared in the file are symbolic in the module.

    Raises:
        ValueError: a size is a number, or unknown.
    """
    dims = declared.type.tensor_type.shape.dim
    shape = found.shape if isinstance(found, TensorType) else None
    if shape is None or any(
        dim.dim_param and not isinstance(size, DimExpr) for dim, size in zip(dims, shape, strict=True)
    ):
        expected = ", ".join(dim.dim_param or str(dim.dim_value) for dim in dims)
        raise ValueError(f"`{declared.name}` lost its dynamic sizes: {found}, expected ({expected})")
