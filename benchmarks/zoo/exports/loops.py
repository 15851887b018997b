"""Models with loops and branches that depend on data, and with bags of embeddings."""

from __future__ import annotations

import numpy as np
import torch
from torch._higher_order_ops import while_loop

from benchmarks.zoo.exports.export import Feeds, Sizes
from benchmarks.zoo.exports.torch_exports import TorchModel, export_all

__all__ = ["EXPORTS"]


class _Bags(torch.nn.Module):
    """A classifier of bags of tokens: the mean of the embeddings of each bag, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = torch.nn.EmbeddingBag(500, 32, mode="mean")
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))

    def forward(self, tokens: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(self.bags(tokens, offsets))
        return result


def _draw_bags(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    inner = rng.choice(np.arange(1, sizes["tokens"]), sizes["bags"] - 1, replace=False)
    offsets = np.array([0, *sorted(inner)], np.int64)
    return {"tokens": rng.integers(0, 500, sizes["tokens"]), "offsets": offsets}


class _Equilibrium(torch.nn.Module):
    """A deep equilibrium model: rounds of a layer until the state hardly changes, then a branch on the magnitude."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 32)
        self.step = torch.nn.Linear(32, 32, bias=False)
        self.head = torch.nn.Linear(32, 5)
        torch.nn.init.orthogonal_(self.step.weight, gain=0.7)


class _EquilibriumLoop(_Equilibrium):
    """The model with Python's control flow, for TorchScript."""

    def forward(self, x: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.inner(x)
        state = torch.zeros_like(inner)
        change = torch.ones((), dtype=inner.dtype)
        rounds = torch.zeros((), dtype=torch.int64)
        while bool(change > 0.01) and bool(rounds < limit):
            following = torch.tanh(self.step(state) + inner)
            change = (following - state).abs().max()
            state = following
            rounds = rounds + 1
        is_large = bool(state.abs().mean() > 0.5)
        state = state / state.abs().mean() if is_large else state * 2
        return self.head(state), rounds


class _EquilibriumOperators(_Equilibrium):
    """The model with PyTorch's control flow operators, for programs captured by ``torch.export``."""

    def forward(self, x: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.inner(x)

        def is_going_on(state: torch.Tensor, change: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
            return torch.logical_and(change > 0.01, rounds < limit)

        def step(
            state: torch.Tensor, change: torch.Tensor, rounds: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            following = torch.tanh(self.step(state) + inner)
            return following, (following - state).abs().max(), rounds + 1

        start = (torch.zeros_like(inner), torch.ones((), dtype=inner.dtype), torch.zeros((), dtype=torch.int64))
        state, _, rounds = while_loop(is_going_on, step, start)
        state = torch.cond(state.abs().mean() > 0.5, lambda own: own / own.abs().mean(), lambda own: own * 2, (state,))
        return self.head(state), rounds


def _draw_equilibrium(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    x = rng.standard_normal((sizes["batch"], 16)) * (4.0 if sizes["is_far"] else 0.5)
    return {"x": x.astype(np.float32), "limit": np.array(sizes["limit"], np.int64)}


_LONGEST = 12


class _Decoder(torch.nn.Module):
    """A decoder of one GRU layer, started from features, with the parts of a beam search over its tokens."""

    __constants__ = ("beams", "end", "first_token", "tokens")
    beams, tokens, first_token, end = 4, 50, 1, 2

    def __init__(self) -> None:
        super().__init__()
        self.start = torch.nn.Linear(20, 32)
        self.embedding = torch.nn.Embedding(self.tokens, 32)
        self.inputs = torch.nn.Linear(32, 96)
        self.states = torch.nn.Linear(32, 96)
        self.head = torch.nn.Linear(32, self.tokens)
        torch.nn.init.normal_(self.head.weight, std=0.5)
        torch.nn.init.constant_(self.head.bias[self.end], 2.5)  # so that beams end at different lengths

    def step(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state of a GRU; TorchScript's exporter refuses ``torch.nn.GRUCell``."""
        reset, update, new = self.inputs(x).chunk(3, -1)
        own_reset, own_update, own_new = self.states(state).chunk(3, -1)
        share = torch.sigmoid(update + own_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
        return share * state + (1 - share) * candidate

    def follow(
        self, token: torch.Tensor, state: torch.Tensor, scores: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the best followers of beams, shape (N, K): origins, tokens, states, scores; ended beams stay as is."""
        batch, beams = scores.shape[0], scores.shape[1]
        is_ended = token == self.end
        state = self.step(self.embedding(token.reshape(-1)), state.reshape(batch * beams, -1))
        steps = torch.log_softmax(self.head(state), -1).reshape(batch, beams, self.tokens)
        only_end = torch.full([self.tokens], -1e9, dtype=steps.dtype)
        only_end[self.end] = 0.0
        steps = torch.where(is_ended.unsqueeze(-1), only_end, steps)
        scores, flat = torch.topk((scores.unsqueeze(-1) + steps).reshape(batch, beams * self.tokens), beams)
        origin = torch.div(flat, self.tokens, rounding_mode="floor")
        state = state.reshape(batch, beams, -1)
        state = torch.gather(state, 1, origin.unsqueeze(-1).expand(-1, -1, state.shape[2]))
        return origin, flat % self.tokens, state, scores

    def first(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the first tokens, shape (N, K), the states, and the scores: only one beam is possible."""
        batch = features.shape[0]
        state = torch.tanh(self.start(features)).unsqueeze(1).expand(-1, self.beams, -1).contiguous()
        token = torch.full([batch, self.beams], self.first_token, dtype=torch.int64)
        scores = torch.full([batch, self.beams], -1e9, dtype=state.dtype)
        scores[:, 0] = 0.0
        return token, state, scores


class _BeamLoop(_Decoder):
    """The search with Python's loop, for TorchScript: the sequences grow."""

    def forward(self, features: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        token, state, scores = self.first(features)
        tokens = token.unsqueeze(-1)
        step = torch.zeros((), dtype=torch.int64)
        while bool(step < limit) and not bool((tokens[:, :, -1] == self.end).all()):
            origin, token, state, scores = self.follow(tokens[:, :, -1], state, scores)
            sequences = torch.gather(tokens, 1, origin.unsqueeze(-1).expand(-1, -1, tokens.shape[2]))
            tokens = torch.cat([sequences, token.unsqueeze(-1)], -1)
            step = step + 1
        return tokens, scores


class _BeamOperators(_Decoder):
    """The search with PyTorch's loop operator, for ``torch.export``: the sequences are in a buffer of fixed length."""

    def forward(self, features: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        token, state, scores = self.first(features)
        tokens = torch.full([features.shape[0], self.beams, _LONGEST + 1], self.end, dtype=torch.int64)
        tokens = torch.cat([token.unsqueeze(-1), tokens[:, :, 1:]], -1)

        def is_going_on(
            step: torch.Tensor, token: torch.Tensor, tokens: torch.Tensor, state: torch.Tensor, scores: torch.Tensor
        ) -> torch.Tensor:
            return torch.logical_and(step < limit, torch.logical_not((token == self.end).all()))

        def follow(
            step: torch.Tensor, token: torch.Tensor, tokens: torch.Tensor, state: torch.Tensor, scores: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            origin, token, state, scores = self.follow(token, state, scores)
            tokens = torch.gather(tokens, 1, origin.unsqueeze(-1).expand(-1, -1, tokens.shape[2]))
            is_here = torch.arange(_LONGEST + 1) == step + 1
            return step + 1, token, torch.where(is_here, token.unsqueeze(-1), tokens), state, scores

        start = (torch.zeros((), dtype=torch.int64), token, tokens, state, scores)
        _, _, tokens, _, scores = while_loop(is_going_on, follow, start)
        return tokens, scores


def _draw_features(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    features = rng.standard_normal((sizes["batch"], 20)).astype(np.float32)
    return {"features": features, "limit": np.array(sizes["limit"], np.int64)}


_MODELS = (
    TorchModel(
        "embedding-bag",
        "A classifier of bags of tokens (torch.nn.EmbeddingBag)",
        _Bags,
        _draw_bags,
        {"tokens": 12, "bags": 3},
        ({"tokens": 12, "bags": 3}, {"tokens": 100, "bags": 9}, {"tokens": 7, "bags": 1}),
        {"tokens": {0: "tokens"}, "offsets": {0: "bags"}},
    ),
    *(
        TorchModel(
            "equilibrium",
            "A deep equilibrium model: rounds until convergence, and a branch",
            build,
            _draw_equilibrium,
            {"batch": 4, "limit": 20, "is_far": 0},
            (
                {"batch": 4, "limit": 20, "is_far": 0},
                {"batch": 9, "limit": 100, "is_far": 1},
                {"batch": 2, "limit": 3, "is_far": 1},
                {"batch": 1, "limit": 0, "is_far": 0},
            ),
            {"x": {0: "batch"}},
            ("scores", "rounds"),
            exporters=(exporter,),
            prepare=torch.jit.script,
        )
        for exporter, build in (("dynamo", _EquilibriumOperators), ("torchscript", _EquilibriumLoop))
    ),
    *(
        TorchModel(
            "beam-search",
            "A GRU decoder inside a beam search: top-k over beams, gathered states and sequences",
            build,
            _draw_features,
            {"batch": 2, "limit": 5},
            (
                {"batch": 2, "limit": 5},
                {"batch": 5, "limit": _LONGEST},
                {"batch": 1, "limit": 1},
                {"batch": 1, "limit": _LONGEST},
            ),
            {"features": {0: "batch"}},
            ("tokens", "scores"),
            exporters=(exporter,),
            prepare=torch.jit.script,
        )
        for exporter, build in (("dynamo", _BeamOperators), ("torchscript", _BeamLoop))
    ),
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
