"""Ops of detectors: the choice among overlapping boxes."""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OperandCase, example, integers
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.families.data_dependent import data_dependent_op
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.type_rules import require_equal, require_kind, require_rank, require_same_dtype
from byoc_core.opset.types import TensorType

__all__ = ["OPS"]


def _non_max_suppression(
    boxes: NDArray,
    scores: NDArray,
    max_boxes: NDArray,
    overlap: NDArray,
    least_score: NDArray,
    *,
    center_point_box: bool,
) -> NDArray:
    """Return (batch, class, box) of the chosen boxes; of equal scores the first box is chosen first."""
    check_array_shape("nn.non_max_suppression", "boxes", boxes.shape, (scores.shape[0], scores.shape[2], 4))
    work = working_dtype(boxes.dtype)
    rows = [np.zeros((0, 3), np.int64)]
    for batch, (own_boxes, own_scores) in enumerate(zip(boxes.astype(work), scores.astype(work), strict=True)):
        corners = _corners(own_boxes, center_point_box)
        for class_, class_scores in enumerate(own_scores):
            order = np.argsort(-class_scores, kind="stable")
            order = order[class_scores[order] > least_score]
            found = _choose(corners, order, int(max_boxes), work.type(overlap))
            found_rows = np.empty((len(found), 3), np.int64)
            found_rows[:, 0], found_rows[:, 1], found_rows[:, 2] = batch, class_, found
            rows.append(found_rows)
    return np.concatenate(rows)


def _corners(boxes: NDArray, center_point_box: bool) -> NDArray:
    """Return the lower and the upper corner of boxes ``(n, 4)``, in each axis in order."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if center_point_box:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def _choose(corners: NDArray, order: NDArray, count: int, overlap: np.generic) -> list[int]:
    """Return up to ``count`` boxes in order, leaving out boxes overlapping an earlier choice."""
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    found: list[int] = []
    while len(order) and len(found) < count:
        best, order = int(order[0]), order[1:]
        found.append(best)
        low = np.maximum(corners[best, :2], corners[order, :2])
        high = np.minimum(corners[best, 2:], corners[order, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[best] + areas[order] - common
        # Boxes without area, and boxes apart, suppress none.
        overlaps = (common > 0) & (areas[best] > 0) & (areas[order] > 0) & (union > 0)
        order = order[~(overlaps & (common / np.where(union > 0, union, 1) > overlap))]
    return found


def _suppression_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 0, ("float",))
    require_same_dtype(context, 0, 1, 3, 4)
    require_rank(context, 0, 3, "(batch, boxes, 4)")
    require_rank(context, 1, 3, "(batch, classes, boxes)")
    batch, boxes, corners = context.shape(0)
    if isinstance(corners, int) and corners != 4:
        raise context.error("has no boxes of four numbers", operand=0, got=corners, expected="4")
    require_equal(context, 1, 0, batch, "as operand `boxes`")
    require_equal(context, 1, 2, boxes, "as operand `boxes`")
    require_kind(context, 2, ("int",))
    for index in (2, 3, 4):
        require_rank(context, index, 0, "a scalar")
    return (TensorType((size, 3), "int64"),)


OPS: tuple[OpDef, ...] = (
    data_dependent_op(
        "nn.non_max_suppression",
        ("boxes", "scores", "max_boxes", "overlap", "least_score"),
        _suppression_types,
        NumpyKernel(_non_max_suppression, gives=fixed_dtype("int64")),
        "Return batch, class and number of the boxes with the highest scores in each class. A box is left out if a box "
        "chosen before shares more than ``overlap`` of the area covered by both, or if the score is not above "
        "``least_score``; at most ``max_boxes`` boxes of a class are chosen.\n\n"
        "Shapes: ``boxes`` ``(batch, n, 4)``, two opposite corners; ``scores`` ``(batch, classes, n)``; three scalars. "
        "The result is int64 ``(k, 3)``, by batch, class and falling score.",
        attrs=(
            AttrSpec(
                "center_point_box",
                AttrKind.BOOL,
                False,
                doc="Whether a box is a centre with width and height, in place of two corners.",
            ),
        ),
        cases=lambda: (
            example((2, 6, 4), (2, 3, 6), integers((), 1, 3), OperandCase(()), OperandCase(())),
            example((1, 5, 4), (1, 2, 5), integers((), 5, 5), OperandCase(()), OperandCase(()), center_point_box=True),
        ),
    ),
)
"""The family's ops."""
