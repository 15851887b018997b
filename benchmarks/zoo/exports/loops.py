"""Models with loops that depend on data, and with bags of embeddings."""

from __future__ import annotations

import numpy as np
import torch

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
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
