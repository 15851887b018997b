"""Kernels of the host in C, with the results of the numpy kernels to the last bit: for ops with loops over elements.

The numpy kernels define the ops. Without the C extension, the numpy kernels run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import numpy as np

from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import working_dtype
from byoc_core.runtime.extension import extension
from byoc_core.runtime.graph.native_strings import string_kernels
from byoc_core.runtime.module import NDArray

__all__ = ["native_kernels"]


@cache
def native_kernels() -> Mapping[str, NumpyKernel]:
    """Return the kernels in C by op, none without the extension."""
    found = extension()
    if found is None:
        return MappingProxyType({})
    from byoc_core.opset.families import KERNELS

    suppression = NumpyKernel(_non_max_suppression, gives=fixed_dtype("int64"))
    return MappingProxyType({"nn.non_max_suppression": suppression, **string_kernels(found, KERNELS)})


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
    num_images, num_classes, num_boxes = scores.shape
    check_array_shape("nn.non_max_suppression", "boxes", boxes.shape, (num_images, num_boxes, 4))
    work = working_dtype(boxes.dtype)
    found = extension()
    assert found is not None
    rows = found.choose_boxes(
        np.ascontiguousarray(boxes, work),
        np.ascontiguousarray(scores, work),
        work == np.float64,
        num_images,
        num_classes,
        num_boxes,
        int(max_boxes),
        float(overlap),
        float(least_score),
        center_point_box,
    )
    return np.frombuffer(rows, np.int64).reshape(-1, 3)
