"""The C runtime through ``ctypes``: programs and functions over numpy arrays, errors as exceptions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import all_dtypes, complex_dtypes, dtype_info, dtype_name, to_numpy
from byoc_core.native.abi import CPU, DLDataType, DLDevice, DLTensor

__all__ = ["NativeError", "NativeFunction", "NativeLibrary", "NativeProgram", "NativeState", "Status", "TensorInfo"]

NDArray = npt.NDArray[Any]


class Status(IntEnum):
    """The kinds of errors: ``byoc_rt_status``."""

    ARTIFACT = 1
    LINK = 2
    CALL = 3
    EXECUTION = 4
    MEMORY = 5
    UNSUPPORTED = 6


class NativeError(Exception):
    """An error of the runtime, with the text of ``byoc_rt_last_error``."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)


class _Managed(ctypes.Structure):
    """``DLManagedTensorVersioned``."""


_Deleter = ctypes.CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = (
    ("major", c_uint32),
    ("minor", c_uint32),
    ("manager_ctx", c_void_p),
    ("deleter", _Deleter),
    ("flags", c_uint64),
    ("dl_tensor", DLTensor),
)


class _Options(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("num_threads", c_int32), ("weights", c_char_p))


class _StateOptions(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("capacity", c_int64), ("limit", c_int64))


class _Info(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", DLDataType),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("dims", POINTER(c_char_p)),
    )


_INFOS = [dtype_info(name) for name in (*all_dtypes(), *complex_dtypes())]
_NAMES = {(int(info.dl_code), info.bits): info.name for info in _INFOS}
"""The names of the dtypes by DLPack's code and bits."""

_SIGNATURES: Mapping[str, tuple[object, tuple[object, ...]]] = {
    "abi_version": (c_int32, ()),
    "last_error": (c_char_p, ()),
    "load": (c_int32, (c_char_p, POINTER(_Options), POINTER(c_void_p))),
    "load_bytes": (c_int32, (c_void_p, c_size_t, POINTER(_Options), POINTER(c_void_p))),
    "unload": (None, (c_void_p,)),
    "num_functions": (c_int32, (c_void_p,)),
    "function_at": (c_void_p, (c_void_p, c_int32)),
    "find_function": (c_void_p, (c_void_p, c_char_p)),
    "function_name": (c_char_p, (c_void_p,)),
    "num_inputs": (c_int32, (c_void_p,)),
    "num_outputs": (c_int32, (c_void_p,)),
    "input": (POINTER(_Info), (c_void_p, c_int32)),
    "output": (POINTER(_Info), (c_void_p, c_int32)),
    "run": (c_int32, (c_void_p, POINTER(POINTER(DLTensor)), c_int32, POINTER(POINTER(_Managed)), c_int32)),
    "run_into": (c_int32, (c_void_p, POINTER(POINTER(DLTensor)), c_int32, POINTER(POINTER(DLTensor)), c_int32)),
    "num_states": (c_int32, (c_void_p,)),
    "state_info": (POINTER(_Info), (c_void_p, c_int32)),
    "new_state": (c_int32, (c_void_p, POINTER(_StateOptions), POINTER(c_void_p))),
    "free_state": (None, (c_void_p,)),
    "state_function": (c_void_p, (c_void_p,)),
    "run_state": (c_int32, (c_void_p, POINTER(POINTER(DLTensor)), c_int32, POINTER(POINTER(_Managed)), c_int32)),
    "run_state_into": (c_int32, (c_void_p, POINTER(POINTER(DLTensor)), c_int32, POINTER(POINTER(DLTensor)), c_int32)),
    "state_length": (c_int64, (c_void_p,)),
    "state_value": (POINTER(DLTensor), (c_void_p, c_int32)),
    "reset_state": (c_int32, (c_void_p,)),
    "restore_state": (c_int32, (c_void_p, POINTER(POINTER(DLTensor)), c_int32)),
    "fork_state": (c_int32, (c_void_p, POINTER(c_void_p))),
    "add_runtime": (c_int32, (c_void_p,)),
    "load_runtime": (c_int32, (c_char_p,)),
}
"""Result and arguments of each function of ``byoc_rt.h``, but of the variadic ``byoc_rt_fail``, and of
``byoc_rt_new_result``, called by native halves only."""


class NativeLibrary:
    """The loaded library.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"byoc_rt_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, f"c_{name}", function)

    def __getattr__(self, name: str) -> Any:
        """Return a C function: ``c_load`` for ``byoc_rt_load``."""
        raise AttributeError(name)

    def check(self, status: int) -> None:
        """Raise the error of this thread unless a status is 0."""
        if status:
            raise NativeError(status, self.c_last_error().decode())

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        num_threads: int = 0,
        weights: str | os.PathLike[str] | None = None,
        struct_size: int = ctypes.sizeof(_Options),
    ) -> NativeProgram:
        """Load an artifact; ``weights`` is the file with the constants, ``struct_size`` the stated size of options."""
        address = c_void_p()
        options = _Options(struct_size, num_threads, None if weights is None else os.fsencode(weights))
        self.check(self.c_load(os.fsencode(path), options, address))
        return NativeProgram(self, address)

    def load_bytes(
        self, data: bytes | NDArray, *, num_threads: int = 0, weights: str | os.PathLike[str] | None = None
    ) -> NativeProgram:
        """Load an artifact from memory, kept alive by the program; a numpy array may be aligned to 64 bytes."""
        array = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        address = c_void_p()
        options = _Options(ctypes.sizeof(_Options), num_threads, None if weights is None else os.fsencode(weights))
        self.check(self.c_load_bytes(array.ctypes.data, array.nbytes, options, address))
        return NativeProgram(self, address, memory=array)

    def load_runtime(self, path: str | os.PathLike[str]) -> None:
        """Load the native half of a runtime."""
        self.check(self.c_load_runtime(os.fsencode(path)))


class NativeProgram:
    """A loaded artifact; unloaded once the object, its functions and their results are gone."""

    def __init__(self, library: NativeLibrary, address: c_void_p, memory: object = None) -> None:
        self._library = library
        self._address = address
        self._memory = memory

    def __del__(self) -> None:
        self._library.c_unload(self._address)

    def __iter__(self) -> Iterator[NativeFunction]:
        for index in range(self._library.c_num_functions(self._address)):
            yield NativeFunction(self, self._library, self._library.c_function_at(self._address, index))

    def __getitem__(self, name: str) -> NativeFunction:
        address = self._library.c_find_function(self._address, name.encode())
        if not address:
            raise KeyError(self._library.c_last_error().decode())
        return NativeFunction(self, self._library, address)


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: a size differing from call to call is -1 in ``shape``; ``dims`` has the texts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]


class NativeFunction:
    """A function of a program, called with numpy arrays."""

    def __init__(self, program: NativeProgram, library: NativeLibrary, address: int) -> None:
        self._program = program
        self._library = library
        self._address = address

    @property
    def name(self) -> str:
        """The name."""
        name: bytes = self._library.c_function_name(self._address)
        return name.decode()

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs in order."""
        count = self._library.c_num_inputs(self._address)
        return tuple(_to_info(self._library.c_input(self._address, index)) for index in range(count))

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs in order."""
        count = self._library.c_num_outputs(self._address)
        return tuple(_to_info(self._library.c_output(self._address, index)) for index in range(count))

    @property
    def states(self) -> tuple[TensorInfo, ...]:
        """The values kept from call to call."""
        count = self._library.c_num_states(self._address)
        return tuple(_to_info(self._library.c_state_info(self._address, index)) for index in range(count))

    def new_state(self, *, capacity: int = 0, limit: int = 0) -> NativeState:
        """Make a state."""
        address = c_void_p()
        options = _StateOptions(ctypes.sizeof(_StateOptions), capacity, limit)
        self._library.check(self._library.c_new_state(self._address, options, address))
        return NativeState(self._program, self._library, address)

    def __call__(self, *arrays: NDArray) -> tuple[NDArray, ...]:
        """Return the results of a run, each in memory of the runtime."""
        count = self._library.c_num_outputs(self._address)
        results = (POINTER(_Managed) * count)()
        inputs = _Tensors(arrays)
        self._library.check(self._library.c_run(self._address, inputs.pointers, len(arrays), results, count))
        return tuple(_adopt(results[index], self._program) for index in range(count))

    def run_into(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray]) -> None:
        """Run the function into arrays."""
        sources, targets = _Tensors(inputs), _Tensors(outputs)
        counts = len(inputs), len(outputs)
        status = self._library.c_run_into(self._address, sources.pointers, counts[0], targets.pointers, counts[1])
        self._library.check(status)


class NativeState:
    """The values that a function keeps from call to call; freed before the program."""

    def __init__(self, program: NativeProgram, library: NativeLibrary, address: c_void_p) -> None:
        self._program = program
        self._library = library
        self._address = address

    def __del__(self) -> None:
        self._library.c_free_state(self._address)

    @property
    def function(self) -> NativeFunction:
        """The function of the state."""
        return NativeFunction(self._program, self._library, self._library.c_state_function(self._address))

    @property
    def length(self) -> int:
        """The rows of the longest moving length."""
        return int(self._library.c_state_length(self._address))

    def __call__(self, *arrays: NDArray) -> tuple[NDArray, ...]:
        """Return the results of a run, each in memory of the runtime."""
        count = len(self.function.outputs)
        results = (POINTER(_Managed) * count)()
        inputs = _Tensors(arrays)
        self._library.check(self._library.c_run_state(self._address, inputs.pointers, len(arrays), results, count))
        return tuple(_adopt(results[index], self._program) for index in range(count))

    def run_into(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray]) -> None:
        """Run the function into arrays."""
        sources, targets = _Tensors(inputs), _Tensors(outputs)
        counts = len(inputs), len(outputs)
        status = self._library.c_run_state_into(self._address, sources.pointers, counts[0], targets.pointers, counts[1])
        self._library.check(status)

    def value(self, index: int) -> NDArray:
        """Return a copy of a value."""
        pointer = self._library.c_state_value(self._address, index)
        if not pointer:
            raise NativeError(Status.CALL, self._library.c_last_error().decode())
        tensor = pointer.contents
        dtype = to_numpy(_NAMES[tensor.dtype.code, tensor.dtype.bits])
        shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        assert not tensor.strides
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(tensor.data, nbytes), dtype).reshape(shape)

    def reset(self) -> None:
        """Return to the values before the first call."""
        self._library.check(self._library.c_reset_state(self._address))

    def restore(self, *values: NDArray) -> None:
        """Replace all values."""
        tensors = _Tensors(values)
        self._library.check(self._library.c_restore_state(self._address, tensors.pointers, len(values)))

    def fork(self) -> NativeState:
        """Make a state with copies of the values."""
        address = c_void_p()
        self._library.check(self._library.c_fork_state(self._address, address))
        return NativeState(self._program, self._library, address)


class _Tensors:
    """DLPack's view of arrays, with an array of pointers for C."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        self._tensors = [_to_tensor(array) for array in arrays]
        self._arrays = arrays
        self.pointers = (POINTER(DLTensor) * len(arrays))(*map(ctypes.pointer, self._tensors))


def _to_tensor(array: NDArray) -> DLTensor:
    info = dtype_info(dtype_name(array.dtype))
    sizes = c_int64 * array.ndim
    return DLTensor(
        array.ctypes.data,
        DLDevice(CPU, 0),
        array.ndim,
        DLDataType(int(info.dl_code), info.bits, 1),
        sizes(*array.shape),
        sizes(*(stride // array.itemsize for stride in array.strides)),
        0,
    )


def _to_info(pointer: Any) -> TensorInfo:
    info = pointer.contents
    axes = range(info.ndim)
    return TensorInfo(
        info.name.decode(),
        _NAMES[info.dtype.code, info.dtype.bits],
        tuple(info.shape[axis] for axis in axes),
        tuple(info.dims[axis].decode() for axis in axes),
    )


class _Owner:
    """Releases a result at the end of the array with the result's memory, before the program is unloaded."""

    def __init__(self, pointer: Any, program: NativeProgram) -> None:
        self._pointer, self._program = pointer, program

    def __del__(self) -> None:
        self._pointer.contents.deleter(self._pointer)


def _adopt(pointer: Any, program: NativeProgram) -> NDArray:
    """Return a result as an array of the same memory; check the form promised by ``byoc_rt.h``."""
    owner, tensor = _Owner(pointer, program), pointer.contents.dl_tensor
    dtype = to_numpy(_NAMES[tensor.dtype.code, tensor.dtype.bits])
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    assert (pointer.contents.major, tensor.dtype.lanes, tensor.device.device_type) == (1, 1, CPU)
    assert address % 64 == 0
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim))
        assert 0 in shape or strides == np.empty(shape, dtype).strides
    if 0 in shape:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * (int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)).from_address(address)
    memory.owner = owner
    array: NDArray = np.ndarray(shape, dtype, memory)
    return array
