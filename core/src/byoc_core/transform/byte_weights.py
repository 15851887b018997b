"""Constant integers as bytes with a zero point, the form taken by kernels for products of bytes.

Backends with such kernels sum the products in 32 bits: more than :data:`MAX_TERMS` terms could overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_TERMS", "to_bytes"]

MAX_TERMS = 1 << 15
"""The most terms of a 32-bit sum of products of bytes less zero points: a product is at most 255 * 255."""

_MAX_DIFFERENCE = 255


def to_bytes(array: npt.NDArray[Any], channel: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]] | None:
    """Split an array of integers into int8 values and a zero point: the difference of both is the array.

    uint8 weights less their zero point need nine bits and a sign: -131 to 124, for example. The zero point is 0 if the
    integers fit without a shift. Otherwise the zero point is the number nearest to 0 valid for all integers, or else a
    number for each output channel.

    Args:
        array: integers, of rank 1 or more.
        channel: the axis of the output channels.

    Returns:
        Values of the array's shape, and the zero point: of shape ``()``, or of the array's rank with size 1 on all axes
        except ``channel``. ``None`` if the array is empty or its numbers are out of reach of bytes and zero points.
    """
    limits = np.iinfo(np.int8)
    if not array.size or max(abs(int(array.min())), abs(int(array.max()))) > _MAX_DIFFERENCE:
        return None
    reduced_axes = tuple(axis for axis in range(array.ndim) if axis != channel % array.ndim)
    for axes in (None, reduced_axes):
        lowest = limits.min - array.min(axis=axes, keepdims=axes is not None).astype(np.int64)
        highest = limits.max - array.max(axis=axes, keepdims=axes is not None).astype(np.int64)
        if (lowest <= highest).all():
            zero = np.clip(0, lowest, highest)
            return (array + zero).astype(np.int8), np.asarray(zero, np.int8)
    return None
