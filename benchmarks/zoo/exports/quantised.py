"""Models after the tools of ONNX Runtime: its quantisers, and its optimizer of transformers."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from benchmarks.zoo.exports.export import Export, Feeds, Sizes
from benchmarks.zoo.exports.torch_exports import TorchModel, export_all

__all__ = ["EXPORTS"]

_WORDS, _HIDDEN, _HEADS = 200, 64, 4
_SIZES = ({"batch": 1, "length": 5}, {"batch": 2, "length": 16}, {"batch": 3, "length": 33})
_IMAGES = ({"batch": 1}, {"batch": 3})

Tool = Callable[[Path, Path], None]
"""Reads a model of floats, and writes the result."""


class _Encoder(torch.nn.Module):
    """A classifier of token sequences: embeddings, and layers of torch.nn.TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(_WORDS, _HIDDEN)
        layer = torch.nn.TransformerEncoderLayer(_HIDDEN, _HEADS, 2 * _HIDDEN, 0.0, "gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = torch.nn.Linear(_HIDDEN, 10)
        for weight in self.layers.parameters():  # copies of a layer in the beginning
            if weight.ndim == 2:
                torch.nn.init.xavier_uniform_(weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.scores(self.layers(self.words(tokens)))
        return result


class _Decoder(torch.nn.Module):
    """Llama without a cache: the scores of the next words."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=_WORDS,
            hidden_size=_HIDDEN,
            intermediate_size=2 * _HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=_HEADS,
            num_key_value_heads=2,
            initializer_range=0.2,
            use_cache=False,
        )
        self.model = LlamaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return result


class _Bert(torch.nn.Module):
    """BERT, with a padding mask and segments."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=_WORDS,
            hidden_size=_HIDDEN,
            intermediate_size=2 * _HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=_HEADS,
            max_position_embeddings=64,
            initializer_range=0.2,
            attn_implementation="eager",
        )
        self.model = BertModel(config)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return result.last_hidden_state, result.pooler_output


class _Block(torch.nn.Module):
    """An inverted residual block: expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.expand = torch.nn.Sequential(torch.nn.Conv2d(channels, wide, 1), torch.nn.ReLU6())
        self.depthwise = torch.nn.Sequential(
            torch.nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), torch.nn.Hardswish()
        )
        self.gate = torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Conv2d(wide, wide, 1), torch.nn.Sigmoid()
        )
        self.project = torch.nn.Conv2d(wide, out_channels, 1)
        self.is_residual = channels == out_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        z: torch.Tensor = self.project(y * self.gate(y))
        return x + z if self.is_residual else z


class _Convnet(torch.nn.Module):
    """A classifier of images in the manner of MobileNet, with branches joined by a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.LeakyReLU(0.1), torch.nn.MaxPool2d(2))
        self.blocks = torch.nn.Sequential(_Block(8, 8, 1), _Block(8, 16, 2), _Block(16, 16, 1))
        self.branches = torch.nn.ModuleList([torch.nn.Conv2d(16, 16, k, padding=k // 2) for k in (1, 3)])
        self.pool = torch.nn.AvgPool2d(2)
        self.scores = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))
        x = self.pool(torch.cat([torch.relu(branch(x)) for branch in self.branches], 1))
        result: torch.Tensor = self.scores(x.mean((2, 3)))
        return result


def _draw_tokens(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"tokens": rng.integers(0, _WORDS, (sizes["batch"], sizes["length"]))}


def _draw_bert(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    shape = (sizes["batch"], sizes["length"])
    mask = np.ones(shape, np.int64)
    mask[0, shape[1] // 2 + 1 :] = 0
    return {
        "input_ids": rng.integers(0, _WORDS, shape),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, shape),
    }


def _draw_images(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"x": rng.standard_normal((sizes["batch"], 3, 32, 32)).astype(np.float32)}


_AXES = {0: "batch", 1: "length"}
_EXAMPLE = {"batch": 2, "length": 7}
_ENCODER = TorchModel("encoder", "A transformer encoder", _Encoder, _draw_tokens, _EXAMPLE, _SIZES, {"tokens": _AXES})
_DECODER = TorchModel("llama", "Llama", _Decoder, _draw_tokens, _EXAMPLE, _SIZES, {"tokens": _AXES})
_CONVNET = TorchModel(
    "convnet", "A network like MobileNet", _Convnet, _draw_images, {"batch": 2}, _IMAGES, {"x": {0: "batch"}}
)
_BERT = TorchModel(
    "bert",
    "BERT",
    _Bert,
    _draw_bert,
    _EXAMPLE,
    _SIZES,
    dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), _AXES),
    outputs=("states", "pooled"),
)


class _Calibration(CalibrationDataReader):
    """Seeded inputs of a model."""

    def __init__(self, model: TorchModel) -> None:
        rng = np.random.default_rng(2)
        self._feeds = iter([dict(model.draw(rng, model.sizes[-1])) for _ in range(4)])

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)


def _quantise_dynamic(source: Path, target: Path, **options: Any) -> None:
    quantize_dynamic(source, target, **options)


def _quantise_static(model: TorchModel, source: Path, target: Path, **options: Any) -> None:
    prepared = source.with_name("prepared.onnx")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, target, _Calibration(model), **options)


def _quantise_weights(source: Path, target: Path, **options: Any) -> None:
    quantiser = MatMulNBitsQuantizer(onnx.load(source), **options)
    quantiser.process()
    quantiser.model.save_model_to_file(str(target))


def _fuse(source: Path, target: Path, *, is_half: bool, **options: Any) -> None:
    model = optimizer.optimize_model(str(source), num_heads=_HEADS, hidden_size=_HIDDEN, **options)
    if is_half:
        model.convert_float_to_float16(keep_io_types=False)
    model.save_model_to_file(str(target))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tools' advice off the terminal; errors are raised as ever."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _write(original: Export, tool: Tool, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, _quiet():
        source = Path(folder) / "original.onnx"
        original.write(source)
        onnx.save(onnx.load(source), source)  # weights inside the file: the tools lose files of weights
        tool(source, path)


def _exports(model: TorchModel, exporter: str, tools: Mapping[str, Tool], *, is_quantised: bool = True) -> list[Export]:
    """Return the exports of a module by an exporter, each after a tool."""
    (original,) = [export for export in export_all(model) if export.name.endswith(exporter)]
    return [
        Export(
            f"{model.name}-{name}",
            f"{model.doc}, {name}",
            partial(_write, original, tool),
            model.draw,
            model.sizes,
            original=original.write if is_quantised else None,
        )
        for name, tool in tools.items()
    ]


_INT8, _UINT8, _INT16, _UINT16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16, QuantType.QUInt16


def _static(
    model: TorchModel, quant_format: QuantFormat, activations: QuantType, weights: QuantType, **extra: Any
) -> Tool:
    """Return a tool for static quantisation; in the decoder of matrix products alone, because the mask is infinite."""
    per_channel = extra.pop("per_channel", False)
    return partial(
        _quantise_static,
        model,
        quant_format=quant_format,
        activation_type=activations,
        weight_type=weights,
        per_channel=per_channel,
        op_types_to_quantize=["MatMul"] if model is _DECODER else None,
        extra_options=extra,
    )


def _static_tools(model: TorchModel) -> Mapping[str, Tool]:
    qdq, qop = QuantFormat.QDQ, QuantFormat.QOperator
    return {
        "qdq-u8s8": _static(model, qdq, _UINT8, _INT8),
        "qdq-u8s8-channels": _static(model, qdq, _UINT8, _INT8, per_channel=True),
        "qdq-s8s8": _static(model, qdq, _INT8, _INT8),
        "qdq-s8s8-symmetric": _static(model, qdq, _INT8, _INT8, ActivationSymmetric=True, per_channel=True),
        "qdq-u8u8": _static(model, qdq, _UINT8, _UINT8),
        "qdq-u16s8": _static(model, qdq, _UINT16, _INT8),
        "qdq-s16s8": _static(model, qdq, _INT16, _INT8, ActivationSymmetric=True),
        "qop-u8s8": _static(model, qop, _UINT8, _INT8),
        "qop-u8s8-channels": _static(model, qop, _UINT8, _INT8, per_channel=True),
        "qop-s8s8": _static(model, qop, _INT8, _INT8, ActivationSymmetric=True),
        "qop-u8u8": _static(model, qop, _UINT8, _UINT8),
    }


_DYNAMIC_TOOLS: Mapping[str, Tool] = {
    "dynamic-s8": partial(_quantise_dynamic, weight_type=_INT8),
    "dynamic-u8": partial(_quantise_dynamic, weight_type=_UINT8),
    "dynamic-s8-channels": partial(_quantise_dynamic, weight_type=_INT8, per_channel=True),
}


def _nbits(**options: Any) -> Tool:
    return partial(_quantise_weights, **options)


_NBITS_TOOLS: Mapping[str, Tool] = {
    "4bits-32": _nbits(block_size=32, is_symmetric=False, accuracy_level=0),
    "4bits-32-symmetric": _nbits(block_size=32, is_symmetric=True, accuracy_level=0),
    "4bits-128": _nbits(block_size=128, is_symmetric=False, accuracy_level=0),
    "4bits-32-level4": _nbits(block_size=32, is_symmetric=False, accuracy_level=4),
    "4bits-128-symmetric-level4": _nbits(block_size=128, is_symmetric=True, accuracy_level=4),
    "8bits-32": _nbits(bits=8, block_size=32, is_symmetric=False, accuracy_level=0),
    "4bits-32-qdq": _nbits(block_size=32, is_symmetric=False, quant_format=QuantFormat.QDQ),
    "4bits-128-qdq-symmetric": _nbits(block_size=128, is_symmetric=True, quant_format=QuantFormat.QDQ),
    "4bits-embeddings": _nbits(block_size=32, is_symmetric=True, op_types_to_quantize=("MatMul", "Gather")),
    "4bits-embeddings-zeros": _nbits(block_size=32, is_symmetric=False, op_types_to_quantize=("MatMul", "Gather")),
}


def _fusions(**options: Any) -> Mapping[str, Tool]:
    return {"fused": partial(_fuse, is_half=False, **options), "fused-half": partial(_fuse, is_half=True, **options)}


# The TorchScript exporter refuses the encoder (`aten::_transformer_encoder_layer_fwd`) and Llama (`aten::diff`).
EXPORTS: Sequence[Export] = [
    *_exports(_ENCODER, "dynamo", {**_DYNAMIC_TOOLS, **_static_tools(_ENCODER), **_NBITS_TOOLS}),
    *_exports(_DECODER, "dynamo", {**_DYNAMIC_TOOLS, **_static_tools(_DECODER), **_NBITS_TOOLS}),
    *_exports(_CONVNET, "dynamo", {**_static_tools(_CONVNET)}),
    *_exports(_BERT, "torchscript", _fusions(model_type="bert"), is_quantised=False),
]
"""The exports of this module."""
