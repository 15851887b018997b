"""Buffers of states: numpy arrays in the host's memory, device arrays in the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import Device
from byoc_core.runtime.module import NDArray

__all__ = ["StateBuffer", "assign", "first_rows", "new_buffer", "on_host"]

StateBuffer = NDArray | DeviceArray


def new_buffer(device: Device | None, dtype: str, shape: Sequence[int], where: str) -> StateBuffer:
    """Return a buffer with undefined elements, in the memory of a device, or of the host (``None``).

    Raises:
        ExecutionError: the device has no such memory left, or failed otherwise.
        MemoryError, ValueError, OverflowError: numpy has no such memory.
    """
    return np.empty(shape, to_numpy(dtype)) if device is None else DeviceArray.empty(device, dtype, shape, where)


def first_rows(buffer: StateBuffer, axis: int, count: int) -> StateBuffer:
    """Return the first rows of a buffer; all axes before the axis have size 1, therefore the rows are contiguous."""
    if isinstance(buffer, DeviceArray):
        return buffer.first_rows(axis, count)
    rows: NDArray = buffer[(slice(None),) * axis + (slice(0, count),)]
    return rows


def assign(target: StateBuffer, source: StateBuffer) -> None:
    """Copy a value of the same shape, or a single element, into a buffer; on one device, the device copies.

    Raises:
        ExecutionError: a device failed.
    """
    if isinstance(target, DeviceArray):
        target.assign(source if isinstance(source, DeviceArray) else np.broadcast_to(source, target.shape))
    elif isinstance(source, DeviceArray):
        source.copy_to(target)
    else:
        target[...] = source


def on_host(value: StateBuffer) -> NDArray:
    """Return a copy of a value in the host's memory.

    Raises:
        ExecutionError: the device failed.
    """
    return value.numpy() if isinstance(value, DeviceArray) else value.copy()
