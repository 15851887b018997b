"""Kernels of convolution over one, two or three axes: image to columns, then one matrix product per group."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.kernels.windows import (
    channels_first,
    channels_restored,
    num_windows,
    pad_image,
    spatial_axes,
    tap_view,
    window_view,
)

__all__ = ["KERNELS", "conv", "conv_transpose"]

# Images are unfolded in batches whose columns take at most this many bytes.
_COLUMN_BYTES = 1 << 25


def conv(
    x: NDArray,
    weight: NDArray,
    *,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    data_layout: str,
    kernel_layout: str,
) -> NDArray:
    """Gives the cross-correlation of images with filters.

    Shapes: ``(N, C, H, W), (O, C/groups, KH, KW) -> (N, O, OH, OW)`` in the layouts ``NCHW`` and ``OIHW``; likewise
    with one or three spatial axes.

    Cost: ``2 * N * O * OH * OW * C/groups * KH * KW`` operations, and at most 32 MiB (or one image's columns, where
    that is more) beside the padded input.

    Raises:
        ExecutionError: the channels do not fit the filter and the groups, or the padded image is smaller than it.
    """
    wide = working_dtype(x.dtype)
    image = channels_first(x, data_layout)
    filters = _ordered(weight, kernel_layout, "OI").astype(wide, copy=False)
    rank = image.ndim - 2
    _require_groups("operand `x`", "input channels", image.shape[1], groups)
    _require_groups("operand `weight`", "output channels", filters.shape[0], groups)
    _require_input_channels(filters.shape[1], image.shape[1] // groups)
    window = filters.shape[2:]
    out_size = [
        num_windows(image.shape[2 + axis], window[axis], strides[axis], dilation[axis], *padding[axis::rank])
        for axis in range(rank)
    ]
    padded = pad_image(image.astype(wide, copy=False), padding, 0)
    windows = window_view(padded, window, strides, dilation, out_size)
    depthwise = groups > 1 and filters.shape[1] == 1 and filters.shape[0] == groups
    result = _depthwise(windows, filters) if depthwise else _by_columns(windows, filters, groups)
    return channels_restored(result.astype(x.dtype, copy=False), data_layout)


def _ordered(weight: NDArray, layout: str, channels: str) -> NDArray:
    """Gives filters with the two channel axes in an order, then the spatial ones."""
    return weight.transpose([layout.index(axis) for axis in channels + spatial_axes(layout)])


def _require_groups(operand: str, channels: str, count: int, groups: int) -> None:
    if count % groups:
        raise ExecutionError(
            operand, f"the groups do not divide the {channels}", got=count, expected=f"a multiple of {groups}"
        )


def _require_input_channels(found: int, expected: int) -> None:
    if found != expected:
        raise ExecutionError(
            "operand `weight`", "the number of input channels does not fit operand `x`", got=found, expected=expected
        )


def _by_columns(windows: NDArray, filters: NDArray, groups: int) -> NDArray:
    batch, channels = windows.shape[:2]
    rank = filters.ndim - 2
    out_size = windows.shape[2 + rank :]
    out_channels = filters.shape[0]
    depth, pixels = channels // groups * math.prod(filters.shape[2:]), math.prod(out_size)
    matrix = np.ascontiguousarray(filters).reshape(groups, out_channels // groups, depth)
    result = np.empty((batch, groups, out_channels // groups, pixels), filters.dtype)
    step = max(1, _COLUMN_BYTES // max(1, groups * depth * pixels * filters.itemsize))
    for start in range(0, batch, step):
        part = windows[start : start + step]
        columns = part.reshape(len(part), groups, depth, pixels)
        np.matmul(matrix, columns, out=result[start : start + step])
    return result.reshape(batch, out_channels, *out_size)


def _depthwise(windows: NDArray, filters: NDArray) -> NDArray:
    """One filter per channel: a sum over the filter's few taps, without unfolding."""
    rank = filters.ndim - 2
    result = np.zeros((*windows.shape[:2], *windows.shape[2 + rank :]), filters.dtype)
    for tap in np.ndindex(*filters.shape[2:]):
        result += tap_view(windows, tap) * tap_view(filters, tap).reshape(-1, *[1] * rank)
    return result


def conv_transpose(
    x: NDArray,
    weight: NDArray,
    *,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    data_layout: str,
    kernel_layout: str,
) -> NDArray:
    """Gives the transposed convolution: every element of the image adds a scaled filter to the result.

    Shapes: ``(N, C, H, W), (C, O/groups, KH, KW) -> (N, O, OH, OW)`` in the layouts ``NCHW`` and ``IOHW``; likewise
    with one or three spatial axes.

    Cost: ``2 * N * C * H * W * O/groups * KH * KW`` operations, and the products of one batch beside the result.

    Raises:
        ExecutionError: the channels do not fit the filter and the groups, or the padding leaves nothing.
    """
    wide = working_dtype(x.dtype)
    image = channels_first(x, data_layout).astype(wide, copy=False)
    filters = _ordered(weight, kernel_layout, "IO").astype(wide, copy=False)
    batch, channels, *size = image.shape
    rank, window, per_group = len(size), filters.shape[2:], filters.shape[1]
    _require_groups("operand `x`", "input channels", channels, groups)
    _require_input_channels(filters.shape[0], channels)
    whole = [
        (size[axis] - 1) * strides[axis] + (window[axis] - 1) * dilation[axis] + 1 + output_padding[axis]
        for axis in range(rank)
    ]
    for axis, extent in enumerate(whole):
        if extent <= padding[axis] + padding[rank + axis]:
            raise ExecutionError(
                "operand `x`",
                f"the padding leaves nothing of spatial axis {axis}",
                got=padding[axis] + padding[rank + axis],
                expected=f"less than {extent}",
            )
    depth = per_group * math.prod(window)
    matrix = np.ascontiguousarray(filters).reshape(groups, channels // groups, depth).swapaxes(1, 2)
    products = np.matmul(matrix, image.reshape(batch, groups, channels // groups, math.prod(size)))
    products = products.reshape(batch, groups, per_group, *window, *size)
    result = np.zeros((batch, groups, per_group, *whole), wide)
    for tap in np.ndindex(*window):
        reached: list[Any] = [
            slice(first, first + (count - 1) * stride + 1 if count else first, stride)
            for first, count, stride in zip(np.multiply(tap, dilation), size, strides, strict=True)
        ]
        result[(..., *reached)] += products[(slice(None), slice(None), slice(None), *tap)]
    cut: list[Any] = [slice(padding[axis], whole[axis] - padding[rank + axis]) for axis in range(rank)]
    kept = result[(..., *cut)]
    restored = kept.reshape(batch, groups * per_group, *kept.shape[3:])
    return channels_restored(restored.astype(x.dtype, copy=False), data_layout)


KERNELS: dict[str, Callable[..., NDArray]] = {
    **{f"nn.conv{rank}d": conv for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": conv_transpose for rank in (1, 2, 3)},
}
