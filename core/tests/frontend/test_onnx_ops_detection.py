"""ONNX ops of detectors, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir.module import IRModule

NEWEST_OF = {"GridSample": 20, "RoiAlign": 16}

Cases = list[dict[str, Any]]


def _case(*inputs: npt.ArrayLike | None, exact: bool = True, terms: float = 1.0, **attrs: object) -> Any:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "exact": exact, "terms": terms}


def _boxes(seed: int, count: int = 30, batch: int = 2) -> npt.NDArray[np.float32]:
    corners = np.random.default_rng(seed).uniform(0, 10, (batch, count, 4)).astype(np.float32)
    corners[:, 0] = corners[:, 1]  # boxes equal to others, and without area
    corners[:, 2, 2:] = corners[:, 2, :2]
    return corners


def _non_max_suppression(opset: int) -> Cases:
    scores = np.random.default_rng(5).permutation(2 * 3 * 30).reshape(2, 3, 30).astype(np.float32) / 200
    limits: list[tuple[int, float | None, float | None]] = [
        (4, 0.3, 0.2),
        (30, 0.1, None),
        (0, 0.5, 0.1),
        (5, None, None),
    ]
    kinds = (np.int64, np.float32, np.float32)
    cases = []
    for own in limits:
        given = [None if item is None else np.array([item], kind) for item, kind in zip(own, kinds, strict=True)]
        cases.append(_case(_boxes(1), scores, *given))
    center = np.array([9]), np.array([0.4], np.float32), np.array([0.3], np.float32)
    return [*cases, _case(_boxes(2), scores, *center, center_point_box=1)]


def _grid_sample(opset: int) -> Cases:
    if opset < 16:
        return []
    generator = np.random.default_rng(3)
    x = generator.standard_normal((2, 3, 5, 6)).astype(np.float32)
    grid = generator.uniform(-1.6, 1.6, (2, 4, 7, 2)).astype(np.float32)
    modes = ("bilinear", "nearest", "bicubic") if opset < 20 else ("linear", "nearest", "cubic")
    return [
        _case(x, grid, mode=mode, padding_mode=border, align_corners=align, exact=False, terms=32)
        for mode in modes
        for border in ("zeros", "border", "reflection")
        for align in (0, 1)
    ]


def _roi_align(opset: int) -> Cases:
    generator = np.random.default_rng(4)
    x = generator.standard_normal((2, 3, 8, 9)).astype(np.float32)
    rois = np.sort(generator.uniform(-2, 20, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    images = np.array([0, 1, 1, 0, 1])
    sizes = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}
    modes = [{}, {"coordinate_transformation_mode": "output_half_pixel"}] if opset >= 16 else [{}]
    return [
        _case(x, rois, images, mode=mode, sampling_ratio=samples, exact=False, terms=16, **sizes, **own)
        for mode in ("avg", "max")
        for samples in (0, 2)
        for own in modes
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "GridSample": _grid_sample,
    "NonMaxSuppression": _non_max_suppression,
    "RoiAlign": _roi_align,
}


def test_same_as_onnxruntime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    for case in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**case))
