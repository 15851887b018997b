"""oneDNN's functions as called by the C extension, in Python: they record calls, and fail on demand."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from byoc_core.native.abi import DLTensor, TVMFFIAny
from byoc_dnnl.capi import ExecArg

_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "execute": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ExecArg)),
    "create_memory": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "destroy_memory": (ctypes.c_void_p,),
    "set_address": (ctypes.c_void_p, ctypes.c_void_p),
    "create_stream": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_uint),
    "destroy_stream": (ctypes.c_void_p,),
    "wait": (ctypes.c_void_p,),
}


class FakeOneDNN:
    """The functions, and the created objects.

    Attributes:
        alive: the handles not destroyed yet.
        memories: the description and the address of each memory.
        executed: primitives, with the addresses of the arguments by number.
        moves: how often a memory got another address.
        failing: the status of each function to fail.
        execute: the action of a primitive, besides recording.
    """

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.memories: dict[int, tuple[int, int]] = {}
        self.executed: list[tuple[int, dict[int, int]]] = []
        self.moves = 0
        self.failing: dict[str, int] = {}
        self.execute: Callable[[int, dict[int, int]], object] = lambda primitive, arguments: None
        self._handles = itertools.count(0x1000, 0x10)
        self._callbacks = [
            ctypes.CFUNCTYPE(ctypes.c_int, *parameters)(self._wrap(name)) for name, parameters in _PARAMETERS.items()
        ]

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the functions; there is no OpenMP."""
        found = [ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks]
        return (*found, 0, 0, 0, 0, 0)

    def _wrap(self, name: str) -> Callable[..., int]:
        function = getattr(self, f"_{name}")

        def call(*arguments: object) -> int:
            if name in self.failing:
                return self.failing[name]
            function(*arguments)
            return 0

        return call

    def _execute(self, primitive: int, stream: int, count: int, arguments: Any) -> None:
        assert stream in self.alive
        places = {arguments[i].arg: self.memories[arguments[i].memory][1] for i in range(count)}
        self.executed.append((primitive, places))
        self.execute(primitive, places)

    def _make(self, place: Any) -> int:
        handle = next(self._handles)
        self.alive.add(handle)
        place[0] = handle
        return handle

    def _create_memory(self, place: Any, desc: int, engine: int, address: int | None) -> None:
        self.memories[self._make(place)] = (desc, address or 0)

    def _destroy_memory(self, memory: int) -> None:
        self.alive.remove(memory)
        del self.memories[memory]

    def _set_address(self, memory: int, address: int | None) -> None:
        self.moves += 1
        self.memories[memory] = (self.memories[memory][0], address or 0)

    def _create_stream(self, place: Any, engine: int, flags: int) -> None:
        self._make(place)

    def _destroy_stream(self, stream: int) -> None:
        self.alive.remove(stream)

    def _wait(self, stream: int) -> None:
        assert stream in self.alive


class Arguments:
    """Tensors as handed over by the native call list; only their shapes are read.

    Args:
        shapes: of the tensors.
        addresses: of the tensors.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], addresses: Sequence[int]) -> None:
        self._sizes = [(ctypes.c_int64 * len(shape))(*shape) for shape in shapes]
        self._tensors = (DLTensor * len(shapes))()
        self.block = (TVMFFIAny * len(shapes))()
        for number, (sizes, address) in enumerate(zip(self._sizes, addresses, strict=True)):
            tensor = self._tensors[number]
            tensor.data, tensor.ndim = address, len(sizes)
            tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
            self.block[number].type_index, self.block[number].v_ptr = 7, ctypes.addressof(tensor)
