"""A recorder of the calls that make objects of oneDNN: each object with the function and the arguments."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from byoc_dnnl.capi import PARAMETERS, Api, Dims
from byoc_dnnl.handles import Engine
from byoc_dnnl.library import Library

__all__ = ["Pointer", "RecordedArgument", "RecordedObject", "Recorder", "recording_engine"]


class Pointer(int):
    """The address of an object of oneDNN; 0: no object."""


RecordedArgument = int | tuple[int, ...]
"""A number, a pointer, the bits of a float, or several numbers or pointers."""


@dataclass(slots=True)
class RecordedObject:
    """An object made by a call.

    Attributes:
        function: the name of the function, or ``dnnl_primitive_desc_query_md`` for a description within a primitive.
        arguments: the arguments behind the result.
        changes: later calls changing the object: names with arguments behind the object.
    """

    function: str
    arguments: Sequence[RecordedArgument]
    changes: list[tuple[str, Sequence[RecordedArgument]]] = field(default_factory=list)


_QUERY = "dnnl_primitive_desc_query_md"
_CHANGES = ("dnnl_post_ops_append_", "dnnl_primitive_attr_set_", "dnnl_primitive_desc_next_impl")
"""The beginnings of the names of functions changing their first argument."""


class Recorder(Api):
    """The functions of a library, with a record of the objects made.

    Objects are freed when the recorder is closed, and not before: so their addresses stay unique.

    Args:
        library: the library.

    Attributes:
        objects: the recorded objects by address.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self.objects: dict[int, RecordedObject] = {}
        self._unfreed: list[tuple[Callable[..., int], object]] | None = []

    def close(self) -> None:
        """Free the objects without an owner; objects losing their owner later are freed at once."""
        unfreed, self._unfreed = self._unfreed or [], None
        for free, pointer in unfreed:
            free(pointer)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function, check its status, and record the object made."""
        super().call(name, *arguments)
        self._record(name, arguments)

    def attempt(self, name: str, *arguments: object) -> int:
        """Call a function and return its status; record the object made."""
        status = super().attempt(name, *arguments)
        if status == 0:
            self._record(name, arguments)
        return status

    def ask(self, name: str, *arguments: object) -> Any:
        """Call an infallible function; record a description found within a primitive."""
        result = super().ask(name, *arguments)
        if name == _QUERY and result:
            primitive, query, index = arguments
            self.objects[int(result)] = RecordedObject(name, (_pointer(primitive), _number(query), _number(index)))
        return result

    def own(self, handle: object, destroy: str, pointer: ctypes.c_void_p) -> object:
        """Free an object when the recorder is closed, or when its handle is collected later."""
        return self._finalize(handle, destroy, pointer)

    def function(self, name: str) -> Callable[..., int]:
        """Return a function; a function that frees an object waits until the recorder is closed."""
        function = super().function(name)
        if not name.endswith("_destroy"):
            return function

        def free(pointer: object) -> int:
            if self._unfreed is None:
                return function(pointer)
            self._unfreed.append((function, pointer))
            return 0

        return free

    def _record(self, name: str, arguments: Sequence[object]) -> None:
        types = PARAMETERS[name]
        if name.startswith(_CHANGES):
            changed = self.objects[_pointer(arguments[0])]
            recorded = [_recorded(*pair) for pair in zip(types[1:], arguments[1:], strict=True)]
            changed.changes.append((name, recorded))
        elif name.endswith(("_create", "_clone", "_with_strides", "_with_tag", "_reshape", "_submemory", "_axes")):
            pointer = arguments[0]._obj.value  # type: ignore[attr-defined]  # the result: ``ctypes.byref``
            recorded = [_recorded(*pair) for pair in zip(types[1:], arguments[1:], strict=True)]
            self.objects[pointer] = RecordedObject(name, recorded)


def _number(argument: object) -> int:
    return int(argument)  # type: ignore[call-overload,no-any-return]  # numbers and enumerations


def _pointer(argument: object) -> Pointer:
    """Return the address in a handle, in a pointer of ``ctypes``, or a number; 0 for ``None``."""
    value = getattr(argument, "pointer", argument)
    number: Any = getattr(value, "value", value)
    return Pointer(number or 0)


def _recorded(parameter: object, argument: object) -> RecordedArgument:
    """Return an argument as numbers, by the type of the parameter."""
    if parameter is ctypes.c_float:
        return int(struct.unpack("<I", struct.pack("<f", ctypes.c_float(argument).value))[0])  # type: ignore[arg-type]
    if parameter is Dims or isinstance(argument, ctypes.Array):
        items = [*argument]  # type: ignore[misc]
        is_pointers = isinstance(argument, ctypes.Array) and argument._type_ is ctypes.c_void_p
        return tuple(Pointer(item or 0) if is_pointers else int(item) for item in items)
    return _pointer(argument) if parameter is ctypes.c_void_p else _number(argument)


@contextmanager
def recording_engine(library: Library) -> Iterator[tuple[Engine, Recorder]]:
    """Yield an engine whose objects are recorded, and the recorder."""
    recorder = Recorder(library.handle)
    try:
        yield Engine(replace(library, api=recorder)), recorder
    finally:
        recorder.close()
