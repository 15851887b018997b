"""Python functions behind the calling convention of native calls."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.native.abi import DLTensor, TVMFFIAny
from byoc_core.runtime.module import NativeEntry, NDArray, PackedFunction

SAFE_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(TVMFFIAny), ctypes.c_int32, ctypes.c_void_p
)
DTYPES = {
    (0, 8): "int8",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (2, 32): "float32",
    (2, 64): "float64",
    (6, 8): "bool",
}


def array_of(tensor: DLTensor) -> NDArray:
    """Return the memory of a tensor as an array."""
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    dtype = to_numpy(DTYPES[tensor.dtype.code, tensor.dtype.bits])
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = [tensor.strides[axis] for axis in range(tensor.ndim)] if tensor.strides else None
    nbytes = dtype.itemsize * (
        sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) + 1 if steps else math.prod(shape)
    )
    flat = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(tensor.data)).view(dtype)
    if steps is None:
        return flat.reshape(shape)
    return np.lib.stride_tricks.as_strided(flat, shape, [step * dtype.itemsize for step in steps])


def native_entry(function: Callable[..., Any]) -> NativeEntry:
    """Return an entry calling a Python function ``f(*inputs, *outputs)``; an exception becomes status 7."""
    failed = threading.local()

    def call(context: int, args: Any, num_args: int, result: int) -> int:
        try:
            tensors = [ctypes.cast(args[i].v_ptr, ctypes.POINTER(DLTensor)).contents for i in range(num_args)]
            function(*map(array_of, tensors))
        except Exception as error:  # a callback has nobody above it
            failed.text = f"{type(error).__name__}: {error}"
            return 7
        return 0

    pointer = SAFE_CALL(call)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return NativeEntry(address, 0, lambda status: f"status {status}, {failed.text}", pointer)


def native_function(name: str, function: Callable[..., Any]) -> PackedFunction:
    """Return a Python function callable in both ways."""
    return PackedFunction(name, function, None, native_entry(function))
