"""Objects of oneDNN with an owner: each is freed exactly once, after Python drops the last reference to the handle."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.capi import (
    CPU_ENGINE,
    FORMAT_ANY,
    FORMAT_KIND_ANY,
    FORMAT_KIND_BLOCKED,
    IN_ORDER_STREAM,
    MAX_NDIMS,
    Api,
    Argument,
    CpuRuntime,
    DataType,
    ExecArg,
    Query,
    Status,
    dims_array,
    failure,
)
from byoc_dnnl.desc_facts import Facts, query_facts, row_major_strides
from byoc_dnnl.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from byoc_dnnl.library import Library

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


_TOKENS = count()
"""The tokens of memory descriptions: a counter is the same in all threads."""

_MISSING = object()

_NUM_PRIMITIVES = 128
"""Number of primitive descriptors kept in a generation: products take 60 kB each, others up to 10 kB."""


class Handle:
    """A pointer created by a function of oneDNN, with the function for freeing.

    The handle itself can be passed to functions of oneDNN; the call keeps the handle alive.

    Attributes:
        pointer: for callers that keep this object alive long enough.
    """

    __slots__ = ("__weakref__", "api", "pointer")
    _destroy = ""

    def __init__(self, api: Api, create: str, *arguments: object) -> None:
        pointer = ctypes.c_void_p()
        api.call(create, ctypes.byref(pointer), *arguments)
        self._own(api, pointer)

    def _own(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self.api, self.pointer = api, pointer
        # At the end of the process the system frees everything, and libraries may be unloaded before.
        weakref.finalize(self, api.function(self._destroy), pointer).atexit = False

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The argument passed by ``ctypes``."""
        return self.pointer


class Engine(Handle):
    """The engine of the CPU, owner of all other objects.

    The engine switches oneDNN's cache of primitives off. A cached descriptor may point to attributes of a freed
    descriptor. oneDNN 3.2 reads these attributes if the cache no longer holds the primitive at the time of creation.
    Programs keep their primitives themselves, except for some kept for good (:mod:`byoc_dnnl.primitive_cache`).

    Attributes:
        primitives: recent primitive descriptors by request, and ``None`` for requests without an implementation
            (:class:`~byoc_dnnl.primitives.PrimitiveFactory`).
    """

    __slots__ = ("_library", "_max_threads", "primitives")
    _destroy = "dnnl_engine_destroy"

    def __init__(self, library: Library) -> None:
        self._library = library
        self.primitives: Memo[PrimitiveDesc | None] = Memo(_NUM_PRIMITIVES)
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


class MemoryDesc(Handle):
    """The layout of a tensor in memory: dtype, sizes, and strides or blocks. Equal descriptions compare equal.

    Descriptions are created by class methods; a method that returns another description does not change this one.
    Descriptions never change. A request for a recent description returns the same object: plans make the same requests
    for each of their equal layers.

    Attributes:
        facts: dtype, sizes, strides and blocks.
        sizes: the sizes of the axes.
        dtype: the name of the elements' dtype.
        token: a number of this description alone, never used again: for keys.
    """

    __slots__ = ("_is_row_major", "_nbytes", "dtype", "facts", "sizes", "token")
    _destroy = "dnnl_memory_desc_destroy"
    __hash__ = None  # type: ignore[assignment]  # the library decides equality

    def _own(self, api: Api, pointer: ctypes.c_void_p, facts: Facts | None = None) -> None:
        super()._own(api, pointer)
        self.token = next(_TOKENS)
        self.facts = facts or query_facts(api, pointer)
        self.sizes, self.dtype = self.facts.sizes, self.facts.dtype
        self._nbytes: int | None = None
        self._is_row_major: bool | None = None

    @classmethod
    def _owned(cls, api: Api, pointer: ctypes.c_void_p, facts: Facts | None = None) -> MemoryDesc:
        made = cls.__new__(cls)
        made._own(api, pointer, facts)
        return made

    @classmethod
    def strided(
        cls, engine: Engine, sizes: Sequence[int], strides: Sequence[int] | None = None, dtype: str = "float32"
    ) -> MemoryDesc:
        """Create a description with strides, in elements; without strides, of a row-major tensor without gaps."""
        sizes = tuple(sizes)
        if strides is not None:
            return cls._strided(engine.api, sizes, tuple(strides), dtype)
        recent = engine.api.descs
        found = recent.get((dtype, sizes), None)
        if found is None:
            found = recent.put((dtype, sizes), cls._strided(engine.api, sizes, row_major_strides(sizes), dtype))
        assert isinstance(found, MemoryDesc)
        return found

    @classmethod
    def _strided(cls, api: Api, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> MemoryDesc:
        key = dtype, sizes, strides
        found = api.descs.get(key, None)
        if found is None:
            dims, steps, rank = dims_array(sizes), dims_array(strides), len(sizes)
            name, pointer = "dnnl_memory_desc_create_with_strides", ctypes.c_void_p()
            api.call(name, ctypes.byref(pointer), rank, dims, DataType[dtype], steps)
            facts = Facts.of_strides(tuple(dims[:rank]), tuple(steps[:rank]), dtype)
            found = api.descs.put(key, cls._owned(api, pointer, facts))
        assert isinstance(found, MemoryDesc)
        return found

    @classmethod
    def any_layout(cls, engine: Engine, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Create a description with the layout left to the primitive."""
        sizes, recent = tuple(sizes), engine.api.descs
        key = "any", dtype, sizes
        found = recent.get(key, None)
        if found is None:
            name, pointer, dims, rank = (
                "dnnl_memory_desc_create_with_tag",
                ctypes.c_void_p(),
                dims_array(sizes),
                len(sizes),
            )
            engine.api.call(name, ctypes.byref(pointer), rank, dims, DataType[dtype], FORMAT_ANY)
            facts = Facts(FORMAT_KIND_ANY, dtype, tuple(dims[:rank]))
            found = recent.put(key, cls._owned(engine.api, pointer, facts))
        assert isinstance(found, MemoryDesc)
        return found

    @classmethod
    def copied(cls, api: Api, pointer: int) -> MemoryDesc:
        """Return the description owned by another object: a copy, or an equal recent description."""
        return cls(api, "dnnl_memory_desc_clone", pointer)._shared()

    def _shared(self) -> MemoryDesc:
        """Return a recent description equal in all respects, or this description.

        Facts do not tell everything: weights of bytes may have room for sums behind the elements. The library compares
        the rest, but not the strides along axes of size 1.
        """
        facts = self.facts
        if facts.is_strided:
            known: object = self._strided(self.api, facts.sizes, facts.strides, facts.dtype)
        else:
            known = self.api.descs.get(facts, None) or self.api.descs.put(facts, self)
        assert isinstance(known, MemoryDesc)
        return known if self.api.ask("dnnl_memory_desc_equal", known, self) else self

    def _derived(
        self, kind: str, numbers: tuple[object, ...], name: str, arguments: Callable[[], Sequence[object]]
    ) -> MemoryDesc | None:
        """Return the description made from this description by a function, or ``None`` if the function cannot."""
        key = self.token, kind, numbers
        found = self.api.descs.get(key, _MISSING)
        if found is _MISSING:
            pointer = ctypes.c_void_p()
            status = self.api.attempt(name, ctypes.byref(pointer), self, *arguments())
            if status in (Status.INVALID_ARGUMENTS, Status.UNIMPLEMENTED):
                return self.api.descs.put(key, None)  # type: ignore[return-value]
            if status != Status.SUCCESS:
                raise failure(name, status)
            found = self.api.descs.put(key, self._owned(self.api, pointer)._shared())
        assert found is None or isinstance(found, MemoryDesc)
        return found

    def permuted(self, axes: Sequence[int]) -> MemoryDesc:
        """Return the same memory with permuted axes: axis ``i`` of the result is ``axes[i]`` of this description."""
        if sorted(axes) != list(range(len(self.sizes))):
            problem = "cannot be permuted: the order must name each axis once"
            raise ArtifactError(f"a tensor of sizes {list(self.sizes)}", problem, got=list(axes))
        facts = self.facts
        if facts.is_strided:
            sizes, strides = (tuple([numbers[axis] for axis in axes]) for numbers in (facts.sizes, facts.strides))
            return self._strided(self.api, sizes, strides, facts.dtype)

        def new_axes() -> Sequence[object]:
            numbers = sorted(range(len(axes)), key=axes.__getitem__)
            return ((ctypes.c_int * len(axes))(*numbers),)

        found = self._derived("permuted", tuple(axes), "dnnl_memory_desc_permute_axes", new_axes)
        if found is None:
            raise failure("dnnl_memory_desc_permute_axes", Status.INVALID_ARGUMENTS)
        return found

    def cast(self, engine: Engine, dtype: str) -> MemoryDesc | None:
        """Return the same layout for elements of another dtype; ``None`` for a blocked layout."""
        facts = self.facts
        if facts.dtype == dtype:
            return self
        return None if facts.blocks else MemoryDesc.strided(engine, facts.sizes, facts.strides, dtype)

    def as_bytes(self, engine: Engine) -> MemoryDesc | None:
        """Return two-byte elements as bytes, on an additional axis; ``None`` if such a description is impossible."""
        facts = self.facts
        if facts.blocks or len(facts.sizes) == MAX_NDIMS:
            return None
        strides = [2 * stride for stride in facts.strides]
        return MemoryDesc.strided(engine, (*facts.sizes, 2), (*strides, 1), "uint8")

    def reshaped(self, sizes: Sequence[int]) -> MemoryDesc | None:
        """Return the same memory with other sizes; ``None`` if the layout does not permit the sizes."""
        sizes = tuple(sizes)
        name = "dnnl_memory_desc_reshape"
        return self._derived("reshaped", sizes, name, lambda: (len(sizes), dims_array(sizes)))

    def part(self, starts: Sequence[int], sizes: Sequence[int]) -> MemoryDesc | None:
        """Return a piece of the same memory; ``None`` if the piece would begin within a block."""
        starts, sizes = tuple(starts), tuple(sizes)
        name = "dnnl_memory_desc_create_submemory"
        return self._derived("part", (starts, sizes), name, lambda: (dims_array(sizes), dims_array(starts)))

    def plain_order(self) -> tuple[int, ...] | None:
        """Return the axes from the outermost to the innermost; ``None`` with blocks or gaps."""
        strides, sizes = self.facts.strides, self.sizes
        order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], sizes[axis] > 1, axis)))
        return order if self.permuted(order).is_row_major() else None

    def without_blocks(self, engine: Engine) -> MemoryDesc | None:
        """Return the same memory with the blocked axis as two axes: the block, and the position in the block.

        Returns:
            ``None`` with padding, with two blocked axes, or if the result would have more axes than oneDNN supports.
        """
        facts = self.facts
        count = len(facts.blocks)
        if self.is_padded() or count > 1 or len(facts.sizes) + count > MAX_NDIMS:
            return None
        sizes, strides = list(facts.sizes), list(facts.strides)
        if count == 1:
            (axis,), (block,) = facts.block_axes, facts.blocks
            sizes[axis : axis + 1] = sizes[axis] // block, block
            strides[axis : axis + 1] = strides[axis], 1
        return MemoryDesc.strided(engine, sizes, strides, facts.dtype)

    def has_usual_order(self) -> bool:
        """Return whether the strides order the axes from the outermost to the innermost, perhaps with axis 1 last.

        Blocks may lie within. Axes of size 1 count too, because oneDNN looks at their strides.
        """
        strides = self.facts.strides
        orders = [strides] if self.is_blocked() else [strides, (*strides[:1], *strides[2:], *strides[1:2])]
        return any(list(order) == sorted(order, reverse=True) for order in orders)

    @property
    def nbytes(self) -> int:
        """The size in memory, with padding."""
        if self._nbytes is None:
            self._nbytes = int(self.api.ask("dnnl_memory_desc_get_size", self))
        return self._nbytes

    def with_plain_unit_axes(self) -> MemoryDesc:
        """Return the same memory, with strides along axes of size 1 as in a tensor without gaps.

        These strides mean nothing, but oneDNN looks at them to distinguish layouts.
        """
        facts = self.facts
        if facts.blocks:
            return self
        sizes, strides = facts.sizes, list(facts.strides)
        for axis in reversed(range(len(sizes))):
            if sizes[axis] == 1:
                strides[axis] = max(
                    (strides[inner_axis] * sizes[inner_axis] for inner_axis in range(axis + 1, len(sizes))), default=1
                )
        return self._strided(self.api, sizes, tuple(strides), facts.dtype)

    def is_row_major(self) -> bool:
        """Return whether the layout is row-major, without gaps."""
        if self._is_row_major is None:
            self._is_row_major = self._found_row_major()
        return self._is_row_major

    def _found_row_major(self) -> bool:
        facts = self.facts
        if facts.blocks:
            return False
        expected = 1
        for size, stride in zip(reversed(facts.sizes), reversed(facts.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= max(1, size)
        return True

    def is_blocked(self) -> bool:
        """Return whether the innermost elements are blocks of an axis, as in ``ABcd16b``."""
        return bool(self.facts.blocks)

    def is_padded(self) -> bool:
        """Return whether the last block of an axis extends beyond the axis."""
        return self.facts.padded_sizes != self.facts.sizes

    def identity(self) -> tuple[object, ...]:
        """Return a key, equal for equal descriptions, for descriptions with strides or with an open layout."""
        return self.facts

    def has_same_layout(self, other: MemoryDesc) -> bool:
        """Return whether the elements have the same order, including padding; dtypes may differ."""
        own, others = self.facts, other.facts
        return (own.sizes, own.padded_sizes, own.strides, own.blocks, own.block_axes) == (
            *(others.sizes, others.padded_sizes, others.strides, others.blocks, others.block_axes),
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        own, others = self.facts, other.facts
        if own.sizes != others.sizes or own.dtype != others.dtype or own.blocks != others.blocks:
            return False
        return bool(self.api.ask("dnnl_memory_desc_equal", self, other))

    def __str__(self) -> str:
        """Return the axes, outermost first, as oneDNN's tags, with a dtype other than float32: ``ABcd16b:int8``."""
        return self._tag() if self.dtype == "float32" else f"{self._tag()}:{self.dtype}"

    def _tag(self) -> str:
        facts = self.facts
        if facts.kind != FORMAT_KIND_BLOCKED:
            return "other" if self._size_is_known() else "any"
        strides, sizes = facts.strides, list(facts.padded_sizes)
        for block, axis in zip(facts.blocks, facts.block_axes, strict=True):
            sizes[axis] //= block
        order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis], axis))
        letters = "".join(chr(ord("A" if axis in facts.block_axes else "a") + axis) for axis in order)
        pairs = zip(facts.blocks, facts.block_axes, strict=True)
        return letters + "".join(f"{block}{chr(ord('a') + axis)}" for block, axis in pairs)

    def _size_is_known(self) -> bool:
        return self.nbytes > 0


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


class Memory(Handle):
    """A description together with the address of memory owned by another object."""

    __slots__ = ()
    _destroy = "dnnl_memory_destroy"

    def __init__(self, engine: Engine, desc: MemoryDesc, address: int) -> None:
        super().__init__(engine.api, "dnnl_memory_create", desc, engine, address or None)


def argument_block(arguments: Sequence[tuple[int, Memory]]) -> ctypes.Array[ExecArg]:
    """Convert arguments to the form of a primitive; the caller holds the memories."""
    return (ExecArg * len(arguments))(*(ExecArg(argument, memory.pointer) for argument, memory in arguments))
