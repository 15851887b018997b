"""Vision models of transformers: DETR and RT-DETR, and CLIP with text and images in one graph."""

from __future__ import annotations

import numpy as np
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
)

from benchmarks.zoo.exports.export import Feeds, Sizes
from benchmarks.zoo.exports.images import draw_image
from benchmarks.zoo.exports.torch_exports import TorchModel, export_all

__all__ = ["EXPORTS"]

_VOCABULARY, _END = 200, 199


class _Detr(torch.nn.Module):
    """DETR: a ResNet, an encoder of its features, and a decoder of queries; takes padded images and their masks."""

    def __init__(self) -> None:
        super().__init__()
        backbone = ResNetConfig(
            embedding_size=16,
            hidden_sizes=[16, 32, 48],
            depths=[1, 1, 1],
            layer_type="basic",
            out_features=["stage3"],
        )
        self.model = DetrForObjectDetection(
            DetrConfig(
                backbone_config=backbone,
                num_queries=12,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                num_labels=5,
            )
        )

    def forward(self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=pixel_values, pixel_mask=pixel_mask)
        return found.logits, found.pred_boxes


class _RtDetr(torch.nn.Module):
    """RT-DETR: queries chosen by their scores, and attention to sampled places."""

    def __init__(self) -> None:
        super().__init__()
        backbone = RTDetrResNetConfig(
            embedding_size=16,
            hidden_sizes=[16, 32, 32, 48],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        )
        self.model = RTDetrForObjectDetection(
            RTDetrConfig(
                backbone_config=backbone,
                encoder_in_channels=[32, 32, 48],
                encoder_hidden_dim=32,
                encoder_ffn_dim=64,
                encoder_attention_heads=4,
                d_model=32,
                num_queries=12,
                decoder_in_channels=[32, 32, 32],
                decoder_ffn_dim=64,
                decoder_layers=2,
                decoder_attention_heads=4,
                hidden_expansion=1.0,
                num_labels=5,
                anchor_image_size=None,
            )
        )
        # The usual weights are so small that all scores are equal, and the choice of queries would be by chance.
        for layer in self.model.modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
                torch.nn.init.normal_(layer.weight, std=(3.0 / layer.weight[0].numel()) ** 0.5)
        torch.nn.init.normal_(self.model.model.enc_output[0].weight, std=100.0)

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=pixel_values)
        return found.logits, found.pred_boxes


def _draw_padded(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    """Draw images of different sizes in one batch, with zeros below and on the right, and the masks."""
    batch, height, width = sizes["batch"], sizes["height"], sizes["width"]
    images, mask = np.zeros((batch, 3, height, width), np.float32), np.zeros((batch, height, width), np.int64)
    for number in range(batch):
        rows, columns = (size - number * size // (2 * batch) for size in (height, width))
        images[number, :, :rows, :columns] = draw_image(rng, rows, columns)
        mask[number, :rows, :columns] = 1
    return {"pixel_values": images, "pixel_mask": mask}


class _Clip(torch.nn.Module):
    """CLIP: the similarity of each text to each image."""

    def __init__(self) -> None:
        super().__init__()
        layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        tokens = {"vocab_size": _VOCABULARY, "max_position_embeddings": 24, "bos_token_id": 198, "eos_token_id": _END}
        self.model = CLIPModel(
            CLIPConfig(
                text_config={**layers, **tokens, "pad_token_id": 0},
                vision_config={**layers, "image_size": 64, "patch_size": 16},
                projection_dim=32,
            )
        )

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        found = self.model(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return found.logits_per_image, found.logits_per_text, found.text_embeds, found.image_embeds


def _draw_pairs(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    """Draw images of 64 by 64, and texts of different lengths: an end and padding after the tokens."""
    texts, length = sizes["texts"], sizes["tokens"]
    tokens, mask = rng.integers(1, _END - 1, (texts, length)), np.ones((texts, length), np.int64)
    for number in range(texts):
        end = length - 1 - number % (length - 1)
        tokens[number, end], tokens[number, end + 1 :], mask[number, end + 1 :] = _END, 0, 0
    images = np.stack([draw_image(rng, 64, 64) for _ in range(sizes["images"])])
    return {"input_ids": tokens, "pixel_values": images, "attention_mask": mask}


class _ClipVision(torch.nn.Module):
    """CLIP's encoder of images of all sizes: the embeddings of places are interpolated."""

    def __init__(self) -> None:
        super().__init__()
        self.model = CLIPVisionModelWithProjection(
            CLIPVisionConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                image_size=64,
                patch_size=16,
                projection_dim=16,
            )
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(pixel_values=pixel_values, interpolate_pos_encoding=True).image_embeds
        return result


def _draw_images(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    images = [draw_image(rng, sizes["height"], sizes["width"]) for _ in range(sizes["batch"])]
    return {"pixel_values": np.stack(images)}


def _choices(*names: str, values: tuple[tuple[int, ...], ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(names, choice, strict=True)) for choice in values)


_IMAGES = _choices("batch", "height", "width", values=((2, 96, 128), (1, 64, 64), (3, 112, 80)))
_SQUARES = _choices("batch", "height", "width", values=((2, 96, 128), (1, 64, 64), (3, 128, 96)))
_PAIRS = _choices("images", "texts", "tokens", values=((2, 3, 9), (1, 1, 5), (4, 2, 24)))

_MODELS = (
    TorchModel(
        "detr",
        "DETR, on a small ResNet (transformers)",
        _Detr,
        _draw_padded,
        _IMAGES[0],
        _IMAGES,
        {
            "pixel_values": {0: "batch", 2: "height", 3: "width"},
            "pixel_mask": {0: "batch", 1: "height", 2: "width"},
        },
        ("logits", "boxes"),
    ),
    TorchModel(
        "rt-detr",
        "RT-DETR, on a small ResNet (transformers)",
        _RtDetr,
        _draw_images,
        _SQUARES[0],
        _SQUARES,
        {"pixel_values": {0: "batch", 2: "height", 3: "width"}},
        ("logits", "boxes"),
    ),
    TorchModel(
        "clip",
        "CLIP, text and images in one graph (transformers)",
        _Clip,
        _draw_pairs,
        _PAIRS[0],
        _PAIRS,
        {
            "input_ids": {0: "texts", 1: "tokens"},
            "pixel_values": {0: "images"},
            "attention_mask": {0: "texts", 1: "tokens"},
        },
        ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"),
    ),
    TorchModel(
        "clip-vision",
        "CLIP's encoder of images, embeddings of places interpolated to the size of the image (transformers)",
        _ClipVision,
        _draw_images,
        _IMAGES[0],
        _IMAGES,
        {"pixel_values": {0: "batch", 2: "height", 3: "width"}},
        ("image_embeds",),
    ),
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
