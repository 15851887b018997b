"""Constant integers as bytes with a zero point, as kernels that multiply bytes take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_TERMS", "to_bytes"]

MAX_TERMS = 1 << 15
"""Sums of so many products of bytes less their zero points fit in 32 bits: a product is at most 255 * 255."""

_MAX_DIFFERENCE = 255


def to_bytes(array: npt.NDArray[Any], channel: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]] | None:
    """Return int8 values and a zero point whose difference is an array of integers.

    Weights of uint8 less their zero point need nine bits and a sign: -131 to 124, say. The zero point is 0 if the
    integers fit without it, else the number nearest to 0 that serves all, else one number for each output channel.

    Args:
        array: integers, of rank 1 or more.
        channel: the axis of the output channels.

    Returns:
        Values of the array's shape, and the zero point: of shape ``()``, or of the array's rank with size 1 on all axes
        but ``channel``. ``None`` where the array is empty, or bytes and zero points do not reach its numbers.
    """
    limits = np.iinfo(np.int8)
    if not array.size or max(abs(int(array.min())), abs(int(array.max()))) > _MAX_DIFFERENCE:
        return None
    others = tuple(axis for axis in range(array.ndim) if axis != channel % array.ndim)
    for axes in (None, others):
        lowest = limits.min - array.min(axis=axes, keepdims=axes is not None).astype(np.int64)
        highest = limits.max - array.max(axis=axes, keepdims=axes is not None).astype(np.int64)
        if (lowest <= highest).all():
            zero = np.clip(0, lowest, highest)
            return (array + zero).astype(np.int8), np.asarray(zero, np.int8)
    return None
