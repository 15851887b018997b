"""Models of sequences: T5, and selective state spaces."""

from __future__ import annotations

import numpy as np
import torch
from torch._higher_order_ops import scan
from transformers import MambaConfig, MambaForCausalLM, T5Config, T5ForConditionalGeneration

from benchmarks.zoo.exports.export import Feeds, Sizes
from benchmarks.zoo.exports.torch_exports import EXPORTERS, TorchModel, export_all

__all__ = ["EXPORTS"]


class _T5(torch.nn.Module):
    """Encoder and decoder of T5 with scores of the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        config = T5Config(
            vocab_size=120,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=20,
            decoder_start_token_id=0,
            use_cache=False,
        )
        self.model = T5ForConditionalGeneration(config)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(input_ids=tokens, attention_mask=mask, decoder_input_ids=target).logits
        return scores


def _draw_t5(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    batch, length = sizes["batch"], sizes["source"]
    mask = np.ones((batch, length), np.int64)
    mask[0, length - length // 3 :] = 0
    return {
        "tokens": rng.integers(1, 120, (batch, length)),
        "mask": mask,
        "target": rng.integers(1, 120, (batch, sizes["target"])),
    }


class _Mamba(torch.nn.Module):
    """Mamba with scores of the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        config = MambaConfig(
            vocab_size=120, hidden_size=32, state_size=8, num_hidden_layers=2, conv_kernel=4, use_cache=False
        )
        self.model = MambaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(tokens, use_cache=False).logits
        return scores


class _SelectiveScan(torch.nn.Module):
    """A block with a selective state space: decays and inputs of the states depend on the sequence."""

    def __init__(self) -> None:
        super().__init__()
        width, states = 32, 8
        self.inputs = torch.nn.Linear(16, 2 * width)
        self.steps = torch.nn.Linear(width, width)
        self.sources = torch.nn.Linear(width, states)
        self.sinks = torch.nn.Linear(width, states)
        self.decay = torch.nn.Parameter(torch.log(torch.arange(1, states + 1, dtype=torch.float32)).repeat(width, 1))
        self.direct = torch.nn.Parameter(torch.ones(width))
        self.outputs = torch.nn.Linear(width, 16)

    def prepare(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the gate, the signal, the logarithms of decays, the inputs of states, and the sinks."""
        signal, gate = self.inputs(x).chunk(2, -1)
        signal = torch.nn.functional.silu(signal)
        step = torch.nn.functional.softplus(self.steps(signal) - 3)
        logs = -step.unsqueeze(-1) * torch.exp(self.decay)
        sources = (step * signal).unsqueeze(-1) * self.sources(signal).unsqueeze(2)
        return gate, signal, logs, sources, self.sinks(signal)

    def finish(self, gate: torch.Tensor, signal: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the result of the block from the sums of states."""
        result: torch.Tensor = self.outputs((y + signal * self.direct) * torch.nn.functional.silu(gate))
        return result


class _ScanByLoop(_SelectiveScan):
    """The states are computed step by step, in a loop over the length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, signal, logs, sources, sinks = self.prepare(x)
        decays = torch.exp(logs)
        state = torch.zeros_like(sources[:, 0])
        found = torch.zeros_like(signal[:, :0])
        for index in range(x.shape[1]):
            state = decays[:, index] * state + sources[:, index]
            y = torch.matmul(state, sinks[:, index].unsqueeze(-1))
            found = torch.cat([found, y.transpose(1, 2)], 1)
        return self.finish(gate, signal, found)


class _ScanByScan(_SelectiveScan):
    """The states are computed by PyTorch's scan operator, for programs captured by ``torch.export``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, signal, logs, sources, sinks = self.prepare(x)

        def step(
            state: torch.Tensor, parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
        ) -> tuple[torch.Tensor, torch.Tensor]:
            decay, source, sink = parts
            following = decay * state + source
            return following, torch.matmul(following, sink.unsqueeze(-1)).squeeze(-1)

        parts = tuple(part.transpose(0, 1) for part in (torch.exp(logs), sources, sinks))
        _, found = scan(step, torch.zeros_like(sources[:, 0]), parts)
        return self.finish(gate, signal, found.transpose(0, 1))


class _ScanBySums(_SelectiveScan):
    """The states are computed at once: cumulative sums of inputs over cumulative decays."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, signal, logs, sources, sinks = self.prepare(x)
        total = torch.cumsum(logs, 1)
        states = torch.cumsum(sources * torch.exp(-total), 1) * torch.exp(total)
        return self.finish(gate, signal, torch.matmul(states, sinks.unsqueeze(-1)).squeeze(-1))


def _draw_signal(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"x": rng.standard_normal((sizes["batch"], sizes["length"], 16)).astype(np.float32)}


_LENGTHS = ({"batch": 2, "length": 12}, {"batch": 1, "length": 30}, {"batch": 3, "length": 5})

_MODELS = (
    TorchModel(
        "t5",
        "T5, encoder and decoder (transformers.T5ForConditionalGeneration)",
        _T5,
        _draw_t5,
        {"batch": 2, "source": 11, "target": 6},
        (
            {"batch": 2, "source": 11, "target": 6},
            {"batch": 1, "source": 40, "target": 1},
            {"batch": 3, "source": 4, "target": 25},
        ),
        {
            "tokens": {0: "batch", 1: "source"},
            "mask": {0: "batch", 1: "source"},
            "target": {0: "batch", 1: "target"},
        },
    ),
    TorchModel(
        "mamba",
        "Mamba, a language model of selective state spaces (transformers.MambaForCausalLM)",
        _Mamba,
        # A loop of Python over the length: both exporters unroll the loop.
        lambda rng, sizes: {"tokens": rng.integers(1, 120, (sizes["batch"], 12))},
        {"batch": 2},
        ({"batch": 2}, {"batch": 1}, {"batch": 5}),
        {"tokens": {0: "batch"}},
    ),
    *(
        TorchModel(
            f"selective-scan-{form}",
            f"A block of a selective state space, {doc}",
            build,
            _draw_signal,
            _LENGTHS[0],
            _LENGTHS,
            {"x": {0: "batch", 1: "length"}},
            ("y",),
            exporters=exporters,
            prepare=torch.jit.script if form == "loop" else lambda module: module,
        )
        for form, doc, build, exporters in (
            ("loop", "with a loop over the length", _ScanByLoop, ("torchscript",)),
            ("operator", "by the operator scan", _ScanByScan, ("dynamo",)),
            ("sums", "by cumulative sums", _ScanBySums, EXPORTERS),
        )
    ),
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
