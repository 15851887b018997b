"""Detectors with the choice of boxes inside the graph: a YOLO-style network, and three of torchvision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torchvision
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign

from benchmarks.zoo.exports.export import Feeds, Sizes
from benchmarks.zoo.exports.images import draw_image
from benchmarks.zoo.exports.torch_exports import TorchModel, export_all

__all__ = ["EXPORTS"]


class _ConvUnit(torch.nn.Sequential):
    """A convolution, a batch normalisation, and SiLU or ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *, relu: bool = False) -> None:
        super().__init__(
            torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            torch.nn.BatchNorm2d(outputs, momentum=None),
            torch.nn.ReLU() if relu else torch.nn.SiLU(),
        )


class _Split(torch.nn.Module):
    """A block that splits its channels, passes one half through residual units, and joins all parts."""

    def __init__(self, inputs: int, outputs: int, depth: int = 2) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = _ConvUnit(inputs, outputs, 1)
        self.units = torch.nn.ModuleList(
            torch.nn.Sequential(_ConvUnit(half, half), _ConvUnit(half, half)) for _ in range(depth)
        )
        self.leave = _ConvUnit(half * (2 + depth), outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for unit in self.units:
            parts.append(parts[-1] + unit(parts[-1]))
        result: torch.Tensor = self.leave(torch.cat(parts, 1))
        return result


class _PooledPyramid(torch.nn.Module):
    """Maxima of growing windows beside the features, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = _ConvUnit(channels, channels // 2, 1)
        self.pool = torch.nn.MaxPool2d(5, 1, 2)
        self.leave = _ConvUnit(channels * 2, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        result: torch.Tensor = self.leave(torch.cat(parts, 1))
        return result


_CLASSES, _BINS, _STRIDES = 5, 8, (8, 16)
_BOXES = ("boxes", "scores", "labels")
_SIZES = tuple({"height": height, "width": width} for height, width in ((96, 128), (64, 64), (128, 160)))


class _Yolo(torch.nn.Module):
    """A detector without anchors: distances to sides as means over bins, and boxes chosen for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Sequential(
            _ConvUnit(3, 8, stride=2), _ConvUnit(8, 16, stride=2), _Split(16, 16), _ConvUnit(16, 32, stride=2)
        )
        self.large = torch.nn.Sequential(_ConvUnit(32, 48, stride=2), _Split(48, 48), _PooledPyramid(48))
        self.up = torch.nn.Upsample(scale_factor=2.0, mode="nearest")
        self.merge = _Split(80, 32)
        self.down = _ConvUnit(32, 32, stride=2)
        self.deep = _Split(80, 48)
        self.boxes = torch.nn.ModuleList(torch.nn.Conv2d(channels, 4 * _BINS, 1) for channels in (32, 48))
        self.classes = torch.nn.ModuleList(torch.nn.Conv2d(channels, _CLASSES, 1) for channels in (32, 48))
        for layer in self.boxes:
            _draw_weights(layer, 1.5)
        for layer in self.classes:
            _draw_weights(layer, 0.15, bias=-0.2)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        small = self.small(image)
        large = self.large(small)
        small = self.merge(torch.cat([self.up(large), small], 1))
        large = self.deep(torch.cat([self.down(small), large], 1))
        boxes, scores = [], []
        for level, x in enumerate((small, large)):
            distances = self.boxes[level](x).view(1, 4, _BINS, -1).softmax(2)
            bins = torch.arange(_BINS, dtype=x.dtype).view(1, 1, -1, 1)
            left, top, right, bottom = (distances * bins).sum(2)[0].unbind(0)
            rows, columns = torch.meshgrid(
                torch.arange(x.shape[2], dtype=x.dtype) + 0.5,
                torch.arange(x.shape[3], dtype=x.dtype) + 0.5,
                indexing="ij",
            )
            rows, columns = rows.flatten(), columns.flatten()
            sides = torch.stack([columns - left, rows - top, columns + right, rows + bottom], 1)
            boxes.append(sides * _STRIDES[level])
            scores.append(self.classes[level](x)[0].flatten(1).transpose(0, 1).sigmoid())
        return _choose(torch.cat(boxes), torch.cat(scores))


def _choose(boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the boxes, scores and labels above a score that overlap no better box of their class."""
    best, labels = scores.max(1)
    is_kept = best > 0.5
    boxes, best, labels = boxes[is_kept], best[is_kept], labels[is_kept]
    indices = torchvision.ops.nms(boxes + labels[:, None] * 4096.0, best, 0.4)
    return boxes[indices], best[indices], labels[indices]


def _draw_weights(layer: torch.nn.Module, std: float, bias: float = 0.0) -> None:
    """Draw weights of a layer so that its results differ by ``std`` for features of size 1."""
    for name, parameter in layer.named_parameters():
        if "weight" in name:
            torch.nn.init.normal_(parameter, std=std / parameter[0].numel() ** 0.5)
        else:
            torch.nn.init.normal_(parameter, bias, 0.3)


def _calibrate(module: torch.nn.Module, draw: Callable[[np.random.Generator, Sizes], Feeds]) -> torch.nn.Module:
    """Set the statistics of batch normalisations to the means over drawn images, so that scores are apart."""
    module.eval()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.train()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for sizes in _SIZES * 4:
            module(*map(torch.from_numpy, draw(rng, sizes).values()))
    return module.eval()


class _Pyramid(torch.nn.Module):
    """A small backbone with a feature pyramid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(_ConvUnit(3, 16, stride=2, relu=True), _ConvUnit(16, 16, stride=2, relu=True))
        self.small = _ConvUnit(16, 32, stride=2, relu=True)
        self.large = _ConvUnit(32, 48, stride=2, relu=True)
        self.pyramid = FeaturePyramidNetwork([32, 48], 32)
        self.out_channels = 32

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        small = self.small(self.stem(x))
        result: dict[str, torch.Tensor] = self.pyramid({"0": small, "1": self.large(small)})
        return result


class _Stages(torch.nn.Module):
    """A small backbone with the features of its stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(_ConvUnit(3, 16, stride=2, relu=True), _ConvUnit(16, 16, stride=2, relu=True))
        self.stages = torch.nn.ModuleList(
            [_ConvUnit(16, 32, stride=2, relu=True), _ConvUnit(32, 48, stride=2, relu=True)]
        )
        self.out_channels = [32, 48]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x, features = self.stem(x), {}
        for number, stage in enumerate(self.stages):
            x = features[str(number)] = stage(x)
        return features


class _Detector(torch.nn.Module):
    """A detector of torchvision on a single image, with the results as a tuple."""

    def __init__(self, model: torch.nn.Module, keys: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.keys = keys

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (found,) = self.model([image])
        return tuple(found[key] for key in self.keys)


def _build_ssd() -> torch.nn.Module:
    anchors = DefaultBoxGenerator([[2], [2, 3]], scales=[0.15, 0.4, 0.8], steps=[8, 16])
    model = SSD(_Stages(), anchors, (96, 128), _CLASSES, score_thresh=0.6, nms_thresh=0.4, detections_per_img=50)
    for layer in model.head.classification_head.module_list:
        _draw_weights(layer, 1.0)
    for layer in model.head.regression_head.module_list:
        _draw_weights(layer, 1.0)
    return _calibrate(_Detector(model, _BOXES), _draw_single)


def _rcnn_options() -> dict[str, object]:
    return {
        "min_size": 96,
        "max_size": 160,
        "rpn_anchor_generator": AnchorGenerator(((16, 24), (32, 48)), ((0.5, 1.0, 2.0),) * 2),
        "rpn_pre_nms_top_n_test": 60,
        "rpn_post_nms_top_n_test": 30,
        "box_roi_pool": MultiScaleRoIAlign(["0", "1"], 5, 2),
        "box_score_thresh": 0.4,
        "box_nms_thresh": 0.4,
        "box_detections_per_img": 30,
        "num_classes": _CLASSES,
    }


def _separate(model: FasterRCNN, std: float) -> None:
    """Draw the weights of the heads so that scores are apart, and boxes differ."""
    _draw_weights(model.rpn.head.cls_logits, 3.0)
    _draw_weights(model.rpn.head.bbox_pred, 1.0)
    _draw_weights(model.roi_heads.box_predictor.cls_score, std)
    _draw_weights(model.roi_heads.box_predictor.bbox_pred, std / 5)


def _build_faster_rcnn() -> torch.nn.Module:
    model = FasterRCNN(_Pyramid(), **_rcnn_options())
    _separate(model, 10.0)
    return _calibrate(_Detector(model, _BOXES), _draw_single)


def _build_mask_rcnn() -> torch.nn.Module:
    model = MaskRCNN(_Pyramid(), mask_roi_pool=MultiScaleRoIAlign(["0", "1"], 6, 2), **_rcnn_options())
    _separate(model, 5.0)
    return _calibrate(_Detector(model, (*_BOXES, "masks")), _draw_single)


def _draw_batch(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"image": draw_image(rng, sizes["height"], sizes["width"])[None]}


def _draw_single(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"image": draw_image(rng, sizes["height"], sizes["width"])}


def _torchvision(name: str, doc: str, build: Callable[[], torch.nn.Module], *more: str) -> TorchModel:
    return TorchModel(
        name,
        f"{doc} (torchvision)",
        build,
        _draw_single,
        _SIZES[0],
        _SIZES,
        {"image": {1: "height", 2: "width"}},
        (*_BOXES, *more),
        # torch.export refuses torchvision's `if boxes.numel() == 0`: a condition on the number of boxes.
        ("torchscript",),
    )


_MODELS = (
    TorchModel(
        "yolo",
        "A YOLO-style detector with non-maximum suppression",
        lambda: _calibrate(_Yolo(), _draw_batch),
        _draw_batch,
        _SIZES[0],
        _SIZES,
        {"image": {2: "height", 3: "width"}},
        _BOXES,
    ),
    _torchvision("ssd", "SSD, on a small backbone", _build_ssd),
    _torchvision("faster-rcnn", "Faster R-CNN, on a small feature pyramid", _build_faster_rcnn),
    _torchvision("mask-rcnn", "Mask R-CNN, on a small feature pyramid", _build_mask_rcnn, "masks"),
)

EXPORTS = [export for model in _MODELS for export in export_all(model)]
"""The exports of this module."""
