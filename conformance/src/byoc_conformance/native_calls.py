"""Calls of compiled functions, as by machine code: by address, over tensors of the C ABI."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from byoc_core.dtypes import dtype_info, dtype_name
from byoc_core.native.abi import CPU, DLTENSOR_TYPE_INDEX, DLDataType, DLDevice, DLTensor, TVMFFIAny
from byoc_core.runtime import NativeEntry

from byoc_conformance.outcome import FailedError

__all__ = ["call_natively"]

_SAFE_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


def call_natively(entry: NativeEntry, arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Call a function by its address.

    Args:
        entry: the function.
        arrays: inputs and then outputs, with any strides.

    Raises:
        FailedError: the function returns a nonzero status.
    """
    tensors, values = (DLTensor * len(arrays))(), (TVMFFIAny * len(arrays))()
    axes = []
    for tensor, value, array in zip(tensors, values, arrays, strict=True):
        itemsize, info = array.itemsize, dtype_info(dtype_name(array.dtype))
        count = max(1, array.ndim)
        shape = (ctypes.c_int64 * count)(*array.shape)
        strides = (ctypes.c_int64 * count)(*(step // itemsize for step in array.strides))
        axes += [shape, strides]
        tensor.data, tensor.device, tensor.ndim = array.ctypes.data, DLDevice(CPU, 0), array.ndim
        tensor.dtype = DLDataType(int(info.dl_code), info.bits, 1)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        value.type_index, value.v_ptr = DLTENSOR_TYPE_INDEX, ctypes.addressof(tensor)
    result = TVMFFIAny()
    function = _SAFE_CALL(entry.function)
    status = function(entry.context, ctypes.addressof(values), len(arrays), ctypes.addressof(result))
    if status:
        raise FailedError(f"the call by machine code fails: {entry.explain(status)}")
