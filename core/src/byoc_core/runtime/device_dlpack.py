"""Device arrays and tensors of other packages in the memory of devices, exchanged by DLPack without a copy.

Follows the Python specification of DLPack. The work on an array of byoc has ended when a call returns, therefore no
stream is awaited. The data pointer of a tensor is opaque: the handle of a buffer (:meth:`Device.dlpack_handle`).
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

import numpy as np

from byoc_core.dtypes import all_dtypes, complex_dtypes, dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.native.abi import DLTensor
from byoc_core.opset.layout import row_major
from byoc_core.runtime.devices import Device, DeviceMemory, DeviceTensor, label_of

__all__ = ["adopt_tensor", "export_tensor"]

_CAPSULE = b"dltensor"


def export_tensor(device: Device, tensor: DeviceTensor, owner: object) -> object:
    """Return a DLPack capsule for a tensor on a device.

    numpy makes the capsule for an array without memory worth mentioning, and frees the capsule's structure; the array
    keeps the owner alive. Only the structure holds the handle of the buffer, so numpy never sees the handle.

    Args:
        device: the device, with a DLPack device.
        tensor: the tensor.
        owner: kept alive by the capsule, and by the consumer of the capsule.

    Raises:
        BufferError: DLPack has no such dtype in bytes.
    """
    info = dtype_info(tensor.dtype)
    if info.bits != 8 * info.itemsize:
        raise BufferError(f"DLPack packs elements of {tensor.dtype}, byoc does not")
    carrier = np.dtype(np.complex128) if info.itemsize == 16 else np.dtype(f"u{info.itemsize}")
    memory: Any = (ctypes.c_char * carrier.itemsize)()
    memory.owner = owner
    array: Any = np.ndarray(tensor.shape, carrier, memory, 0, (0,) * len(tensor.shape))
    capsule = array.__dlpack__()
    found = _tensor_in(capsule)
    found.data = device.dlpack_handle(tensor.buffer) if tensor.nbytes else None
    found.byte_offset = tensor.offset if tensor.nbytes else 0
    found.device.device_type, found.device.device_id = device.dlpack_device or (0, 0)
    found.dtype.code = info.dl_code
    found.dtype.bits = info.bits
    if found.strides:
        for axis, stride in enumerate(row_major(tensor.shape)):
            found.strides[axis] = stride
    return capsule


def adopt_tensor(value: Any, device: Device, where: str) -> tuple[object, DeviceTensor]:
    """Return the tensor of another package in the memory of a device, and the owner of the memory.

    Args:
        value: an object with ``__dlpack__``, on the DLPack device of ``device``. Its work must have ended.
        device: the device.
        where: the tensor, for errors.

    Raises:
        CallError: the object cannot be exported, the tensor is on another device, or has a dtype unknown to byoc or
            strides, or the device cannot use the memory.
    """
    try:
        capsule = value.__dlpack__()
        tensor = _tensor_in(capsule)
    except Exception as error:
        raise CallError(where, f"cannot be read through DLPack: {error}", got=type(value).__name__) from error
    found_device = tensor.device.device_type, tensor.device.device_id
    if found_device != device.dlpack_device:
        raise CallError(
            where, "is on another DLPack device than stated", got=found_device, expected=device.dlpack_device
        )
    code = tensor.dtype.code, tensor.dtype.bits
    dtype = _dtype_names().get(code) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise CallError(where, "has elements of an unknown type", got=f"DLPack type code and bits {code}")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    found = DeviceTensor(None, int(tensor.byte_offset), dtype, shape)
    if found.nbytes and tensor.strides:
        strides = [tensor.strides[axis] for axis in range(tensor.ndim)]
        pairs = zip(shape, strides, row_major(shape), strict=True)
        if any(size != 1 and stride != compact for size, stride, compact in pairs):
            raise CallError(where, "has strides", got=strides, expected="a C-contiguous tensor")
    if found.nbytes and found.offset % to_numpy(dtype).itemsize:
        raise CallError(where, "is not aligned for its elements", got=f"offset {found.offset}")
    try:
        if not found.nbytes:  # functions need a buffer
            memory = DeviceMemory(device, 1)
            return memory, DeviceTensor(memory.buffer, 0, dtype, shape)
        buffer = device.adopt(int(tensor.data or 0), found.offset + found.nbytes)
    except Exception as error:
        problem = f"cannot be used by device `{label_of(device)}`: {type(error).__name__}: {error}"
        raise CallError(where, problem, got=type(value).__name__) from error
    return _Adopted(device, buffer, capsule), DeviceTensor(buffer, found.offset, dtype, shape)


class _Adopted:
    """A buffer over memory of another package, and the capsule keeping the memory alive."""

    def __init__(self, device: Device, buffer: object, capsule: object) -> None:
        self._capsule = capsule
        weakref.finalize(self, _release, device, buffer, capsule)


def _release(device: Device, buffer: object, _capsule: object) -> None:
    """Free a buffer before the capsule releases the memory."""
    device.free(buffer)


def _tensor_in(capsule: object) -> DLTensor:
    """Return the tensor of a capsule: the first field of its structure."""
    find_address = ctypes.pythonapi.PyCapsule_GetPointer
    find_address.restype, find_address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DLTensor.from_address(find_address(capsule, _CAPSULE))


@cache
def _dtype_names() -> dict[tuple[int, int], str]:
    """Return the dtypes by DLPack's code and bits."""
    infos = [dtype_info(name) for name in (*all_dtypes(), *complex_dtypes())]
    return {(int(info.dl_code), info.bits): info.name for info in infos if info.bits >= 8}
