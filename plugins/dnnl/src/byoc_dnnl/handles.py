"""Objects of oneDNN with an owner: each is freed exactly once, after Python drops the last reference to the handle."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_dnnl.capi import (
    CPU_ENGINE,
    IN_ORDER_STREAM,
    Api,
    Argument,
    CpuRuntime,
    ExecArg,
    Query,
    Status,
)
from byoc_dnnl.handle import Handle
from byoc_dnnl.memo import Memo
from byoc_dnnl.memory_desc import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from byoc_dnnl.library import Library
    from byoc_dnnl.post_ops import Attributes
    from byoc_dnnl.primitives import Windows

__all__ = [
    "Engine",
    "Handle",
    "Memory",
    "MemoryDesc",
    "Primitive",
    "PrimitiveDesc",
    "Stream",
    "argument_block",
]


_NUM_PRIMITIVES = 128
"""Number of primitive descriptors kept in a generation: products take 60 kB each, others up to 10 kB."""

_NUM_WINDOWS = 64
"""Number of windows of convolutions kept in a generation, of 1 kB each."""

_NUM_ATTRIBUTES = 64
"""Number of attributes of primitives kept in a generation, up to 20 kB each."""


class Engine(Handle):
    """The engine of the CPU, owner of all other objects.

    The engine switches oneDNN's cache of primitives off. A cached descriptor may point to attributes of a freed
    descriptor. oneDNN 3.2 reads these attributes if the cache no longer holds the primitive at the time of creation.
    Programs keep their primitives themselves, except for some kept for good (:mod:`byoc_dnnl.primitive_cache`).

    Attributes:
        primitives: recent primitive descriptors by request, and ``None`` for requests without an implementation
            (:class:`~byoc_dnnl.primitives.PrimitiveFactory`).
        attributes: recent attributes of primitives, by post-ops and scales.
        windows: recent windows of convolutions, by strides, dilation and padding.
    """

    __slots__ = ("_library", "_max_threads", "attributes", "primitives", "windows")
    _destroy = "dnnl_engine_destroy"

    def __init__(self, library: Library) -> None:
        self._library = library
        self.primitives: Memo[PrimitiveDesc | None] = Memo(_NUM_PRIMITIVES)
        self.attributes: Memo[Attributes] = Memo(_NUM_ATTRIBUTES)
        self.windows: Memo[Windows] = Memo(_NUM_WINDOWS)
        openmp = self.openmp
        self._max_threads: Callable[[], int] = (lambda: 1) if openmp is None else openmp.omp_get_max_threads
        library.api.call("dnnl_set_primitive_cache_capacity", 0)
        super().__init__(library.api, "dnnl_engine_create", CPU_ENGINE, 0)

    @property
    def openmp(self) -> ctypes.CDLL | None:
        """The OpenMP library linked to oneDNN, for finding functions; ``None`` for a single-threaded oneDNN."""
        return None if self._library.runtime is CpuRuntime.SEQUENTIAL else self._library.handle

    @property
    def isa(self) -> int:
        """The usable instruction sets: bits of :class:`~byoc_dnnl.capi.Isa`."""
        return self._library.isa

    @property
    def num_threads(self) -> int:
        """The number of threads of objects created now."""
        return self._max_threads()

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        """Set the number of threads for objects created in this thread within the context."""
        handle = self.openmp
        if handle is None:
            yield
            return
        saved = handle.omp_get_max_threads()
        handle.omp_set_num_threads(number)
        try:
            yield
        finally:
            handle.omp_set_num_threads(saved)


class Stream(Handle):
    """A stream, for executing primitives one after the other."""

    __slots__ = ()
    _destroy = "dnnl_stream_destroy"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.api, "dnnl_stream_create", engine, IN_ORDER_STREAM)


class PrimitiveDesc(Handle):
    """A primitive ready for creation: the implementation is chosen, nothing is generated yet.

    Equal steps of plans may share a description: only the creator may call :meth:`advance`.

    Attributes:
        implementation: the name of the implementation.
        is_reference: whether the implementation, or a part of the implementation, is the library's slow general
            fallback.
        recipe: a key, equal for equal primitives, if the primitive is to be kept (:mod:`byoc_dnnl.primitive_cache`).
        primitive_ref: a weak reference to the primitive, if created (:mod:`byoc_dnnl.primitive_cache`).
    """

    __slots__ = ("_descs", "_nbytes", "implementation", "is_reference", "primitive_ref", "recipe")
    _destroy = "dnnl_primitive_desc_destroy"

    def __init__(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self._own(api, pointer)
        self._descs: dict[tuple[Query, int], MemoryDesc] = {}
        self._nbytes: dict[int, int] = {}
        self.recipe: Hashable | None = None
        self.primitive_ref: weakref.ref[Primitive] | None = None
        self._query_implementation()

    def _query_implementation(self) -> None:
        text = ctypes.c_char_p()
        self.api.call("dnnl_primitive_desc_query", self.pointer, Query.IMPL_INFO_STR, 0, ctypes.byref(text))
        self.implementation = (text.value or b"").decode()
        self.is_reference = any(part.startswith("ref") for part in self.implementation.split("+"))

    def advance(self) -> bool:
        """Choose the next implementation; return whether there is one."""
        if self.api.attempt("dnnl_primitive_desc_next_impl", self) != Status.SUCCESS:
            return False
        self._descs, self._nbytes = {}, {}
        self._query_implementation()
        return True

    def memory_desc(self, query: Query, index: int = 0) -> MemoryDesc:
        """Return the required layout of an argument."""
        found = self._descs.get((query, index))
        if found is None:
            found = MemoryDesc.copied(self.api, self.api.ask("dnnl_primitive_desc_query_md", self, query, index))
            self._descs[query, index] = found
        return found

    def argument_nbytes(self, argument: int) -> int:
        """Return the number of bytes of an argument read or written by the primitive."""
        found = self._nbytes.get(argument)
        if found is None:
            found = self._nbytes[argument] = self._queried_nbytes(Query.EXEC_ARG_MD, argument)
        return found

    @property
    def scratch_nbytes(self) -> int:
        """The scratch memory of the primitive, in bytes."""
        found = self._nbytes.get(Argument.SCRATCHPAD)
        if found is None:
            found = self._nbytes[Argument.SCRATCHPAD] = self._queried_nbytes(Query.SCRATCHPAD_MD, 0)
        return found

    def _queried_nbytes(self, query: Query, index: int) -> int:
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, query, index)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0


class Primitive(Handle):
    """A primitive for any number of executions, also in several threads at once."""

    __slots__ = ()
    _destroy = "dnnl_primitive_destroy"

    def __init__(self, desc: PrimitiveDesc) -> None:
        super().__init__(desc.api, "dnnl_primitive_create", desc)

    @classmethod
    def owned(cls, api: Api, pointer: ctypes.c_void_p) -> Primitive:
        """Return the owner of an existing primitive."""
        primitive = cls.__new__(cls)
        primitive._own(api, pointer)
        return primitive


class Memory(Handle):
    """A description together with the address of memory owned by another object."""

    __slots__ = ()
    _destroy = "dnnl_memory_destroy"

    def __init__(self, engine: Engine, desc: MemoryDesc, address: int) -> None:
        super().__init__(engine.api, "dnnl_memory_create", desc, engine, address or None)


def argument_block(arguments: Sequence[tuple[int, Memory]]) -> ctypes.Array[ExecArg]:
    """Convert arguments to the form of a primitive; the caller holds the memories."""
    return (ExecArg * len(arguments))(*(ExecArg(argument, memory.pointer) for argument, memory in arguments))
