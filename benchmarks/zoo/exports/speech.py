"""Models of speech: Whisper, wav2vec 2.0, and a classifier with a spectrogram inside."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from benchmarks.zoo.exports.export import Feeds, Sizes
from benchmarks.zoo.exports.torch_exports import EXPORTERS, TorchModel, export_all

__all__ = ["EXPORTS"]

_HEADS, _WIDTH, _MELS, _FRAMES = 4, 8, 20, 40


def _whisper() -> WhisperForConditionalGeneration:
    config = WhisperConfig(
        vocab_size=120,
        num_mel_bins=_MELS,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=_HEADS,
        decoder_attention_heads=_HEADS,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        d_model=_HEADS * _WIDTH,
        max_source_positions=_FRAMES // 2,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperForConditionalGeneration(config)


class _WhisperEncoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = _whisper().model.encoder

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.encoder(features).last_hidden_state
        return states


class _WhisperDecoder(torch.nn.Module):
    """The decoder with the keys and values of earlier tokens as inputs and outputs, and scores of the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        whisper = _whisper()
        self.decoder, self.head = whisper.model.decoder, whisper.proj_out

    def forward(
        self,
        tokens: torch.Tensor,
        states: torch.Tensor,
        key_0: torch.Tensor,
        value_0: torch.Tensor,
        key_1: torch.Tensor,
        value_1: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        cache = EncoderDecoderCache(DynamicCache([(key_0, value_0), (key_1, value_1)]), DynamicCache())
        result = self.decoder(tokens, encoder_hidden_states=states, cache=cache, use_cache=True)
        layers = cache.self_attention_cache.layers
        return self.head(result.last_hidden_state), *(part for layer in layers for part in (layer.keys, layer.values))


_PAST = ("key_0", "value_0", "key_1", "value_1")


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return rng.standard_normal(shape).astype(np.float32)


def _draw_decoder(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    batch = sizes["batch"]
    past = {name: _floats(rng, batch, _HEADS, sizes["past"], _WIDTH) for name in _PAST}
    tokens = rng.integers(3, 120, (batch, sizes["tokens"]))
    return {"tokens": tokens, "states": _floats(rng, batch, sizes["states"], _HEADS * _WIDTH), **past}


class _Wav2Vec2(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = Wav2Vec2Config(
            vocab_size=32,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            conv_dim=(16, 16, 16),
            conv_stride=(5, 4, 2),
            conv_kernel=(10, 8, 4),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
        )
        self.model = Wav2Vec2ForCTC(config)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(samples).logits
        return scores


def _mel_matrix(num_bins: int, num_mels: int, rate: float) -> torch.Tensor:
    """Return triangular filters, equally wide on the mel scale, shape (bins, mels)."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, num_mels + 2) / 2595) - 1)
    bins = np.linspace(0, rate / 2, num_bins)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling)).astype(np.float32))


class _Spectrogram(torch.nn.Module):
    """A classifier of sound: a short-time Fourier transform, magnitudes on the mel scale, and convolutions."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.window: torch.Tensor
        self.mel: torch.Tensor
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("mel", _mel_matrix(33, 16, 16000.0))
        self.layers = torch.nn.Sequential(
            torch.nn.Conv1d(16, 24, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv1d(24, 24, 3, stride=2),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(24, 6)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(
            samples,
            n_fft=64,
            hop_length=16,
            win_length=64,
            window=self.window,
            center=True,
            return_complex=self.form != "real",
        )
        if self.form == "magnitude":
            size = spectrum.abs()
        else:
            size = (torch.view_as_real(spectrum) if self.form == "power" else spectrum).pow(2).sum(-1)
        mel = torch.matmul(size.transpose(1, 2), self.mel)
        logs = torch.log10(torch.clamp(mel, min=1e-5)).transpose(1, 2)
        result: torch.Tensor = self.head(self.layers(logs).mean(-1))
        return result


def _draw_samples(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"samples": _floats(rng, sizes["batch"], sizes["samples"])}


_SOUNDS = ({"batch": 2, "samples": 800}, {"batch": 1, "samples": 3001}, {"batch": 3, "samples": 517})

_MODELS = (
    TorchModel(
        "whisper-encoder",
        "The encoder of Whisper (transformers.WhisperModel)",
        _WhisperEncoder,
        lambda rng, sizes: {"features": _floats(rng, sizes["batch"], _MELS, _FRAMES)},
        {"batch": 2},
        ({"batch": 2}, {"batch": 1}, {"batch": 5}),
        {"features": {0: "batch"}},
        ("states",),
    ),
    TorchModel(
        "whisper-decoder",
        "The decoder of Whisper with past keys and values (transformers.WhisperForConditionalGeneration)",
        _WhisperDecoder,
        _draw_decoder,
        {"batch": 2, "tokens": 3, "past": 4, "states": 20},
        (
            {"batch": 2, "tokens": 3, "past": 4, "states": 20},
            {"batch": 1, "tokens": 1, "past": 9, "states": 20},
            {"batch": 3, "tokens": 5, "past": 0, "states": 7},
        ),
        {
            "tokens": {0: "batch", 1: "tokens"},
            "states": {0: "batch", 1: "states"},
            **{name: {0: "batch", 2: "past"} for name in _PAST},
        },
        ("scores", *(f"new_{name}" for name in _PAST)),
    ),
    TorchModel(
        "wav2vec2",
        "wav2vec 2.0 with scores for CTC (transformers.Wav2Vec2ForCTC)",
        _Wav2Vec2,
        _draw_samples,
        _SOUNDS[0],
        _SOUNDS,
        {"samples": {0: "batch", 1: "samples"}},
    ),
    *(
        TorchModel(
            f"spectrogram-{form}",
            "A classifier of sound with torch.stft, mel filters and convolutions",
            partial(_Spectrogram, form),
            _draw_samples,
            _SOUNDS[0],
            _SOUNDS,
            {"samples": {0: "batch", 1: "samples"}},
            exporters=exporters,
        )
        # TorchScript's exporter refuses complex numbers: "STFT does not currently support complex types".
        for form, exporters in (("magnitude", ("dynamo",)), ("power", ("dynamo",)), ("real", EXPORTERS))
    ),
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
