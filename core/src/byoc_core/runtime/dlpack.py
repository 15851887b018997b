"""Tensors of other packages as numpy arrays of the same memory, by DLPack.

numpy reads the dtypes of numpy. Further dtypes of byoc, such as bfloat16, are read here from the capsule of the
producer (the DLPack specification: https://dmlc.github.io/dlpack/latest/python_spec.html).
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np

from byoc_core.dtypes import all_dtypes, complex_dtypes, dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.native.abi import CPU, DLTensor
from byoc_core.runtime.module import NDArray

__all__ = ["from_dlpack", "view_of_tensor", "writable_tensor"]

_CAPSULE = b"dltensor"
_FIRST_VERSION = (1, 0)
"""The first version of DLPack with a flag for read-only memory."""


def from_dlpack(value: object, where: str) -> NDArray:
    """Return the memory of a tensor as an array.

    Args:
        value: an object with ``__dlpack__``, in memory of the CPU.
        where: the tensor, for errors.

    Raises:
        CallError: the tensor has no ``__dlpack__``, is in other memory, has elements of an unknown dtype, or cannot be
            exported.
    """
    if not hasattr(value, "__dlpack__"):
        expected = "a numpy array or an object with __dlpack__"
        raise CallError(where, "is not an array", got=type(value).__name__, expected=expected)
    try:
        array: NDArray = np.from_dlpack(value)
    except Exception as error:  # noqa: BLE001 - code of the producer
        return _from_capsule(value, where, error)
    return array


def _from_capsule(value: Any, where: str, refusal: Exception) -> NDArray:
    """Return the memory of a tensor refused by numpy as an array."""
    try:
        device, _ = value.__dlpack_device__()
        capsule = value.__dlpack__() if device == CPU else None
    except Exception:  # noqa: BLE001 - code of the producer; numpy's error came first
        problem = f"cannot be read through DLPack: {refusal}"
        raise CallError(where, problem, got=type(value).__name__) from refusal
    if capsule is None:
        raise CallError(where, "is not in CPU memory", got=f"DLPack device type {int(device)}")
    return _array_of_capsule(capsule, where)


def _array_of_capsule(capsule: object, where: str) -> NDArray:
    """Return the memory of a capsule without version as a writable array."""
    find_address = ctypes.pythonapi.PyCapsule_GetPointer
    find_address.restype, find_address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # The tensor is the first field of the capsule's structure. The capsule frees the memory at its own end.
    return view_of_tensor(DLTensor.from_address(find_address(capsule, _CAPSULE)), where, owner=capsule)


def writable_tensor(value: Any, where: str) -> NDArray | None:
    """Return the memory of a tensor on the CPU as a writable array; ``None`` if the producer forbids writes.

    Versions of DLPack from 1 on have a flag for read-only memory. An earlier producer, without versions, may export
    writable memory only.

    Args:
        value: an object with ``__dlpack__`` on the CPU, exported as read-only to numpy.
        where: the tensor, for errors.

    Raises:
        CallError: the elements have no numpy form.
    """
    is_capsule = ctypes.pythonapi.PyCapsule_IsValid
    is_capsule.restype, is_capsule.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    try:
        try:
            capsule = value.__dlpack__(max_version=_FIRST_VERSION)
        except TypeError:  # a producer without versions
            capsule = value.__dlpack__()
    except Exception:  # noqa: BLE001 - code of the producer, refusing
        return None
    return _array_of_capsule(capsule, where) if is_capsule(capsule, _CAPSULE) else None


def view_of_tensor(tensor: DLTensor, where: str, owner: object = None) -> NDArray:
    """Return the memory of a tensor as an array.

    Args:
        tensor: the tensor.
        where: the tensor, for errors.
        owner: kept alive by the array.

    Raises:
        CallError: the tensor is not the CPU's, or the elements have no numpy form.
    """
    if tensor.device.device_type != CPU:
        raise CallError(where, "is not in CPU memory", got=f"DLPack device type {tensor.device.device_type}")
    code = (tensor.dtype.code, tensor.dtype.bits)
    dtype = _numpy_dtypes().get(code) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise CallError(where, "has elements of a type unknown to numpy", got=f"DLPack type code and bits {code}")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if 0 in shape:
        return np.empty(shape, dtype)
    strides = None
    low, high = 0, dtype.itemsize * math.prod(shape)
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim))
        steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + dtype.itemsize
    first = (tensor.data or 0) + tensor.byte_offset + low
    memory = (ctypes.c_char * (high - low)).from_address(first)
    memory.owner = owner
    array: NDArray = np.ndarray(shape, dtype, memory, -low, strides)
    return array


@cache
def _numpy_dtypes() -> dict[tuple[int, int], np.dtype[np.generic]]:
    """Return the numpy dtypes by DLPack's code and bits; numpy stores elements of less than a byte differently."""
    infos = [dtype_info(name) for name in (*all_dtypes(), *complex_dtypes())]
    return {(int(info.dl_code), info.bits): to_numpy(info.name) for info in infos if info.bits >= 8}
