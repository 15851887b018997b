"""Functions of an exported library that need Python, called by the library in the interpreter of the process.

The C side is ``native/byoc_python.c``; the artifact lies in the library's own memory, and is read there.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np

from byoc_core.artifact.library import ExecutableModule
from byoc_core.artifact.loading import OpenedArtifact, load_opened
from byoc_core.dtypes import all_dtypes, complex_dtypes, dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.native.abi import CPU, DLTensor
from byoc_core.runtime.module import NDArray

__all__ = ["call"]


def call(
    artifact: int, artifact_nbytes: int, name: str, tensors: int, num_tensors: int, error: int, error_nbytes: int
) -> int:
    """Run a function of the artifact at an address.

    Args:
        artifact: address of the first byte; the artifact stays there as long as the process runs.
        artifact_nbytes: the artifact's size.
        name: the name of the function.
        tensors: address of ``num_tensors`` pointers ``DLTensor *``, inputs and then outputs.
        num_tensors: the number of tensors.
        error: address of memory for an exception's name and text, each ended by a zero byte.
        error_nbytes: the size of this memory.

    Returns:
        0, or -1 after an exception, which is reported at ``error`` only.
    """
    try:
        module = _module_at(artifact, artifact_nbytes)
        pointers = (ctypes.POINTER(DLTensor) * num_tensors).from_address(tensors)
        arrays = [_array(pointer.contents, f"function `{name}`, argument {i}") for i, pointer in enumerate(pointers)]
        function = module.get_function(name)
        if function.returns_results:
            raise CallError(
                f"function `{name}`",
                "returns results of sizes known only after running, so cannot fill buffers",
                hint="Call the function through byoc_core.load_module(...).",
            )
        function(*arrays)
    except Exception as failure:  # noqa: BLE001 - the border to C: no exception may cross it
        text = f"{_builtin_name(failure)}\0{failure}".encode(errors="replace")[: error_nbytes - 1] + b"\0"
        ctypes.memmove(error, text, len(text))
        return -1
    return 0


@cache
def _module_at(address: int, nbytes: int) -> ExecutableModule:
    memory = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B").toreadonly()
    # Loading the library already allowed the library's native code.
    return ExecutableModule(load_opened(OpenedArtifact.open(memory, "the library's artifact"), allow_native=True))


def _array(tensor: DLTensor, where: str) -> NDArray:
    """Return a tensor's memory as an array.

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
    array: NDArray = np.ndarray(shape, dtype, memory, -low, strides)
    return array


@cache
def _numpy_dtypes() -> dict[tuple[int, int], np.dtype[np.generic]]:
    """Return the numpy dtypes by DLPack's code and bits; numpy stores elements of less than a byte differently."""
    infos = [dtype_info(name) for name in (*all_dtypes(), *complex_dtypes())]
    return {(int(info.dl_code), info.bits): to_numpy(info.name) for info in infos if info.bits >= 8}


def _builtin_name(error: Exception) -> str:
    """Return the name of a builtin Python exception, known to other programs, for an exception of byoc."""
    return "ValueError" if isinstance(error, CallError) else "RuntimeError"
