"""A Python function as called by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.native.abi import DLTensor, TVMFFIAny
from byoc_core.runtime import NativeEntry

_SAFE_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(TVMFFIAny), ctypes.c_int32, ctypes.c_void_p
)


def native_entry(function: Callable[..., object], dtypes: Sequence[str]) -> NativeEntry:
    """Return the entry of a function over tensors in any strides.

    Args:
        function: the function; an exception becomes status 1.
        dtypes: of the arguments.
    """

    def call(context: int, args: Any, num_args: int, result: int) -> int:
        try:
            function(*(_array(args[i].v_ptr, dtypes[i]) for i in range(num_args)))
        except Exception:
            return 1
        return 0

    pointer = _SAFE_CALL(call)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return NativeEntry(address, 0, lambda status: f"the device says {status}", pointer)


def _array(address: int, dtype: str) -> Any:
    tensor = ctypes.cast(address, ctypes.POINTER(DLTensor)).contents
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    element = to_numpy(dtype)
    if 0 in shape:
        return np.empty(shape, element)
    strides = tuple(tensor.strides[axis] * element.itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    last = sum((size - 1) * step for size, step in zip(shape, strides or (), strict=False))
    nbytes = last + element.itemsize if strides else int(np.prod(shape, dtype=int)) * element.itemsize
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(tensor.data + tensor.byte_offset)
    return np.ndarray(shape, element, memory, 0, strides)
