"""Loading of compiled libraries, with functions callable from Python with numpy arrays."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, ExecutionError, InternalError
from byoc_core.native.abi import CPU, DLTENSOR_TYPE_INDEX, DLDataType, DLDevice, DLTensor, TVMFFIAny
from byoc_core.native.build_cache import cache_directory
from byoc_core.native.cpu import Target, check_target
from byoc_core.native.linkage import SharedLibrary
from byoc_core.native.needed_libraries import link_needed_libraries, missing_library, missing_library_error

__all__ = ["ArgumentSpec", "NativeFunction", "NativeLibrary", "failure_of", "load_library", "open_library"]

NDArray = npt.NDArray[Any]
ArgumentSpec = tuple[str, tuple[int | None, ...]]
"""A tensor argument: dtype and sizes; ``None`` for a size read from the array at each call."""


class NativeLibrary:
    """A shared library in this process, loaded until the process ends because functions may still be held.

    Args:
        handle: the loaded library.
        name: the library's name in errors.
    """

    def __init__(self, handle: ctypes.CDLL, name: str) -> None:
        self._handle = handle
        self._references: list[object] = []
        self.name = name

    def keep_alive(self, *objects: object) -> None:
        """Hold objects whose memory the library's code reads, as long as the library or a function of it is held."""
        self._references += objects

    def address_of(self, symbol: str) -> int:
        """Return the address of an exported variable or function.

        Raises:
            ArtifactError: there is no such symbol.
        """
        try:
            variable = ctypes.c_char.in_dll(self._handle, symbol)
        except ValueError as error:
            raise ArtifactError(f"library `{self.name}`", f"does not export the symbol `{symbol}`") from error
        return ctypes.addressof(variable)

    def function(
        self, symbol: str, arguments: Sequence[ArgumentSpec], optional: Sequence[ArgumentSpec] = ()
    ) -> NativeFunction:
        """Return the function exported as ``__tvm_ffi_<symbol>``.

        Args:
            symbol: the function's name.
            arguments: the arguments, inputs then outputs.
            optional: further arguments of a call behind these, all or none.

        Raises:
            ArtifactError: the library does not export the function.
        """
        address = self.address_of(f"__tvm_ffi_{symbol}")
        message = ctypes.CFUNCTYPE(ctypes.c_char_p)(self.address_of("byoc_last_error"))
        return NativeFunction(symbol, address, message, arguments, optional, owner=self)


_SAFE_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


def load_library(data: bytes, target: Target, name: str) -> NativeLibrary:
    """Load a new copy of a library, with separate global variables.

    Args:
        data: the shared library.
        target: the machines for which the library was built.
        name: the library's name in errors.

    Raises:
        ArtifactError: the library is for another kind of machine, or the system refuses to load it.
    """
    return NativeLibrary(open_library(data, target, name), name)


def open_library(data: bytes, target: Target, name: str, shared: Sequence[SharedLibrary] = ()) -> ctypes.CDLL:
    """Return the handle of a new copy of a library, opened from a private, immediately deleted temporary file.

    Libraries needed by the copy come from `shared`, else from a folder of ``$BYOC_LIBRARY_PATH``, else from an
    installed distribution declaring the library, else from the system's search path. The bytes contain only their
    names: no path in the bytes is opened.

    Cost: a few mappings and some 50 kB, until the process ends.

    Raises:
        ArtifactError: the library is for another kind of machine, or the system refuses to load it.
    """
    check_target(target, f"library `{name}`")
    failures: list[str] = []
    # A temporary folder may be mounted without permission to execute; then use the user's cache folder.
    for parent in (Path(tempfile.gettempdir()), cache_directory()):
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="byoc-load-", dir=parent, ignore_cleanup_errors=True) as folder:
                path = Path(folder) / "module.so"
                path.write_bytes(data)
                link_needed_libraries(data, Path(folder), shared)
                return ctypes.CDLL(os.fspath(path))
        except OSError as error:
            failures.append(str(error))
            missing = missing_library(str(error))
            if missing is not None:
                raise missing_library_error(name, missing) from error
    raise ArtifactError(f"library `{name}`", "cannot be loaded", detail="\n".join(failures))


class _Block:
    """The argument list of a call under way: tensors, shapes and tags, laid out once and reused."""

    __slots__ = ("address", "keep", "pointers", "set_shape", "tensors")

    def __init__(self, arguments: Sequence[ArgumentSpec]) -> None:
        self.tensors = (DLTensor * len(arguments))()
        values = (TVMFFIAny * len(arguments))()
        shapes = []
        dynamic: list[tuple[int, int, Any]] = []
        for index, (dtype, sizes) in enumerate(arguments):
            info = dtype_info(dtype)
            shape = (ctypes.c_int64 * max(1, len(sizes)))(*(size or 0 for size in sizes))
            tensor = self.tensors[index]
            tensor.device = DLDevice(CPU, 0)
            tensor.ndim = len(sizes)
            tensor.dtype = DLDataType(int(info.dl_code), info.bits, 1)
            tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            values[index].type_index = DLTENSOR_TYPE_INDEX
            values[index].v_ptr = ctypes.addressof(tensor)
            shapes.append(shape)
            dynamic += [(index, axis, shape) for axis, size in enumerate(sizes) if size is None]
        self.set_shape = tuple(dynamic)
        self.address = ctypes.addressof(values)
        # The `data` field of each tensor is its first word: writing it as an integer is the quickest way.
        self.pointers = memoryview(self.tensors).cast("B").cast("Q")
        self.keep = (values, shapes)


def failure_of(symbol: str, message: str) -> ExecutionError:
    """Return the error for the message of a compiled function: ``place: problem``, or any text."""
    where, colon, problem = message.partition(": ")
    if not colon:
        where, problem = f"function `{symbol}`", where or "failed without a message"
    return ExecutionError(where, problem)


class NativeFunction:
    """A compiled function as ``f(*inputs, *outputs)`` over C-contiguous arrays of the declared dtypes.

    Nothing but the number of arrays is checked: the code would read or write beyond smaller arrays. Any number of
    threads may call the function at once: each call under way has a separate argument block, taken from a pool. The
    interpreter lock is released while the function runs.

    Args:
        symbol: the function's name, for errors.
        address: address of the exported function.
        message: returns the text of this thread's last error.
        arguments: the arguments, inputs then outputs.
        optional: further arguments of a call behind these, all or none.
        owner: held as long as the function is.

    Attributes:
        symbol: the function's name.
        address: address of the exported function.
        owner: keeps the address valid.
    """

    __slots__ = ("_arguments", "_call", "_message", "_num_arguments", "_pools", "address", "owner", "symbol")

    def __init__(
        self,
        symbol: str,
        address: int,
        message: Callable[[], bytes],
        arguments: Sequence[ArgumentSpec],
        optional: Sequence[ArgumentSpec] = (),
        *,
        owner: object = None,
    ) -> None:
        self.symbol = symbol
        self.address = address
        self.owner = owner
        self._call = _SAFE_CALL(address)
        self._message = message
        self._arguments = (*arguments, *optional)
        self._num_arguments = len(arguments)
        # By the number of arguments.
        self._pools: dict[int, list[_Block]] = {len(arguments): [], len(self._arguments): []}

    def __call__(self, *arrays: NDArray) -> None:
        """Run the function.

        Raises:
            ExecutionError: the function reports an error; the function's message is shown.
        """
        pool = self._pools.get(len(arrays))
        if pool is None:
            raise InternalError(
                f"function `{self.symbol}`", "wrong number of arrays", got=len(arrays), expected=self._num_arguments
            )
        try:
            block = pool.pop()
        except IndexError:
            block = _Block(self._arguments[: len(arrays)])
        pointers = block.pointers
        word = 0
        for array in arrays:
            try:
                pointers[word] = _address(_first_byte(array))
            except (TypeError, ValueError, BufferError):  # read-only, or without elements
                pointers[word] = array.ctypes.data
            word += _WORDS_PER_TENSOR
        for index, axis, shape in block.set_shape:
            shape[axis] = arrays[index].shape[axis]
        status = self._call(None, block.address, len(arrays), None)
        if status:
            raise failure_of(self.symbol, self.explain(status))
        pool.append(block)

    def explain(self, status: int) -> str:
        """Return the message of the last failure in this thread."""
        return self._message().decode(errors="replace")


_address = ctypes.addressof
_first_byte: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer
_WORDS_PER_TENSOR = ctypes.sizeof(DLTensor) // 8
