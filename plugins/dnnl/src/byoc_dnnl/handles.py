"""Objects of oneDNN with an owner: each is freed exactly once, after Python drops the last reference to the handle."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Hashable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.capi import (
    CPU_ENGINE,
    FORMAT_ANY,
    FORMAT_KIND_BLOCKED,
    IN_ORDER_STREAM,
    MAX_NDIMS,
    Api,
    CpuRuntime,
    DataType,
    ExecArg,
    Query,
    Status,
    dims_array,
    failure,
)

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
    """

    __slots__ = ("_library",)
    _destroy = "dnnl_engine_destroy"

    def __init__(self, library: Library) -> None:
        self._library = library
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
        return 1 if self.openmp is None else int(self.openmp.omp_get_max_threads())

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
    """

    __slots__ = ()
    _destroy = "dnnl_memory_desc_destroy"
    __hash__ = None  # type: ignore[assignment]  # the library decides equality

    @classmethod
    def strided(
        cls, engine: Engine, sizes: Sequence[int], strides: Sequence[int] | None = None, dtype: str = "float32"
    ) -> MemoryDesc:
        """Create a description with strides, in elements; without strides, of a row-major tensor without gaps."""
        sizes = tuple(sizes)
        steps = row_major_strides(sizes) if strides is None else tuple(strides)
        name = "dnnl_memory_desc_create_with_strides"
        return cls(engine.api, name, len(sizes), dims_array(sizes), DataType[dtype], dims_array(steps))

    @classmethod
    def any_layout(cls, engine: Engine, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Create a description with the layout left to the primitive."""
        sizes = tuple(sizes)
        name = "dnnl_memory_desc_create_with_tag"
        return cls(engine.api, name, len(sizes), dims_array(sizes), DataType[dtype], FORMAT_ANY)

    @classmethod
    def copied(cls, api: Api, pointer: int) -> MemoryDesc:
        """Copy a description owned by another object."""
        return cls(api, "dnnl_memory_desc_clone", pointer)

    def permuted(self, axes: Sequence[int]) -> MemoryDesc:
        """Return the same memory with permuted axes: axis ``i`` of the result is ``axes[i]`` of this description."""
        if sorted(axes) != list(range(len(self.sizes))):
            problem = "cannot be permuted: the order must name each axis once"
            raise ArtifactError(f"a tensor of sizes {list(self.sizes)}", problem, got=list(axes))
        new_axes = [0] * len(axes)
        for index, axis in enumerate(axes):
            new_axes[axis] = index
        array = (ctypes.c_int * len(axes))(*new_axes)
        return MemoryDesc(self.api, "dnnl_memory_desc_permute_axes", self, array)

    def cast(self, engine: Engine, dtype: str) -> MemoryDesc | None:
        """Return the same layout for elements of another dtype; ``None`` for a blocked layout."""
        if self.dtype == dtype:
            return self
        if self._number(Query.INNER_NBLKS):
            return None
        return MemoryDesc.strided(engine, self.sizes, self._dims(Query.STRIDES), dtype)

    def as_bytes(self, engine: Engine) -> MemoryDesc | None:
        """Return two-byte elements as bytes, on an additional axis; ``None`` if such a description is impossible."""
        if self._number(Query.INNER_NBLKS) or len(self.sizes) == MAX_NDIMS:
            return None
        strides = [2 * stride for stride in self._dims(Query.STRIDES)]
        return MemoryDesc.strided(engine, (*self.sizes, 2), (*strides, 1), "uint8")

    def reshaped(self, sizes: Sequence[int]) -> MemoryDesc | None:
        """Return the same memory with other sizes; ``None`` if the layout does not permit the sizes."""
        sizes = tuple(sizes)
        return self._other("dnnl_memory_desc_reshape", len(sizes), dims_array(sizes))

    def _other(self, name: str, *arguments: object) -> MemoryDesc | None:
        """Return the description made from this description by a function, or ``None`` if the function cannot."""
        pointer = ctypes.c_void_p()
        status = self.api.attempt(name, ctypes.byref(pointer), self, *arguments)
        if status in (Status.INVALID_ARGUMENTS, Status.UNIMPLEMENTED):
            return None
        if status != Status.SUCCESS:
            raise failure(name, status)
        result = MemoryDesc.__new__(MemoryDesc)
        result._own(self.api, pointer)
        return result

    def part(self, starts: Sequence[int], sizes: Sequence[int]) -> MemoryDesc | None:
        """Return a piece of the same memory; ``None`` if the piece would begin within a block."""
        where = dims_array(tuple(sizes)), dims_array(tuple(starts))
        return self._other("dnnl_memory_desc_create_submemory", *where)

    def plain_order(self) -> tuple[int, ...] | None:
        """Return the axes from the outermost to the innermost; ``None`` with blocks or gaps."""
        strides, sizes = self._dims(Query.STRIDES), self.sizes
        order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], sizes[axis] > 1, axis)))
        return order if self.permuted(order).is_row_major() else None

    def without_blocks(self, engine: Engine) -> MemoryDesc | None:
        """Return the same memory with the blocked axis as two axes: the block, and the position in the block.

        Returns:
            ``None`` with padding, with two blocked axes, or if the result would have more axes than oneDNN supports.
        """
        count = self._number(Query.INNER_NBLKS)
        if self.is_padded() or count > 1 or len(self.sizes) + count > MAX_NDIMS:
            return None
        sizes, strides = list(self.sizes), list(self._dims(Query.STRIDES))
        if count == 1:
            (axis,), (block,) = self._dims(Query.INNER_IDXS, 1), self._dims(Query.INNER_BLKS, 1)
            sizes[axis : axis + 1] = sizes[axis] // block, block
            strides[axis : axis + 1] = strides[axis], 1
        return MemoryDesc.strided(engine, sizes, strides, self.dtype)

    def has_usual_order(self) -> bool:
        """Return whether the strides order the axes from the outermost to the innermost, perhaps with axis 1 last.

        Blocks may lie within. Axes of size 1 count too, because oneDNN looks at their strides.
        """
        strides = self._dims(Query.STRIDES)
        orders = [strides] if self.is_blocked() else [strides, (*strides[:1], *strides[2:], *strides[1:2])]
        return any(list(order) == sorted(order, reverse=True) for order in orders)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._dims(Query.DIMS)

    @property
    def dtype(self) -> str:
        """The name of the elements' dtype."""
        return DataType(self._number(Query.DATA_TYPE)).name

    @property
    def nbytes(self) -> int:
        """The size in memory, with padding."""
        return int(self.api.ask("dnnl_memory_desc_get_size", self))

    def with_plain_unit_axes(self) -> MemoryDesc:
        """Return the same memory, with strides along axes of size 1 as in a tensor without gaps.

        These strides mean nothing, but oneDNN looks at them to distinguish layouts.
        """
        if self._number(Query.INNER_NBLKS):
            return self
        sizes, strides = self.sizes, list(self._dims(Query.STRIDES))
        for axis in reversed(range(len(sizes))):
            if sizes[axis] == 1:
                strides[axis] = max(
                    (strides[inner_axis] * sizes[inner_axis] for inner_axis in range(axis + 1, len(sizes))), default=1
                )
        name = "dnnl_memory_desc_create_with_strides"
        dtype = self._number(Query.DATA_TYPE)
        return MemoryDesc(self.api, name, len(sizes), dims_array(sizes), dtype, dims_array(tuple(strides)))

    def is_row_major(self) -> bool:
        """Return whether the layout is row-major, without gaps."""
        return self._number(Query.INNER_NBLKS) == 0 and self._steps() == self._steps_of(row_major_strides(self.sizes))

    def is_blocked(self) -> bool:
        """Return whether the innermost elements are blocks of an axis, as in ``ABcd16b``."""
        return self._number(Query.INNER_NBLKS) != 0

    def is_padded(self) -> bool:
        """Return whether the last block of an axis extends beyond the axis."""
        return self._dims(Query.PADDED_DIMS) != self.sizes

    def identity(self) -> tuple[object, ...]:
        """Return a key, equal for equal descriptions, for descriptions with strides or with an open layout."""
        kind = self._number(Query.FORMAT_KIND)
        basics: tuple[object, ...] = (kind, self.dtype, self.sizes)
        if kind != FORMAT_KIND_BLOCKED:
            return basics
        offset = ctypes.c_int64()
        self.api.call("dnnl_memory_desc_query", self, Query.SUBMEMORY_OFFSET, ctypes.byref(offset))
        count = self._number(Query.INNER_NBLKS)
        blocks = (self._dims(query, count) for query in (Query.INNER_BLKS, Query.INNER_IDXS))
        return (*basics, offset.value, self._dims(Query.PADDED_DIMS), self._dims(Query.STRIDES), *blocks)

    def has_same_layout(self, other: MemoryDesc) -> bool:
        """Return whether the elements have the same order, including padding; dtypes may differ."""
        queries = (Query.DIMS, Query.PADDED_DIMS, Query.STRIDES)
        blocks = (Query.INNER_BLKS, Query.INNER_IDXS)
        count = self._number(Query.INNER_NBLKS)
        return (
            count == other._number(Query.INNER_NBLKS)
            and all(self._dims(query) == other._dims(query) for query in queries)
            and all(self._dims(query, count) == other._dims(query, count) for query in blocks)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return bool(self.api.ask("dnnl_memory_desc_equal", self, other))

    def __str__(self) -> str:
        """Return the axes, outermost first, as oneDNN's tags, with a dtype other than float32: ``ABcd16b:int8``."""
        return self._tag() if self.dtype == "float32" else f"{self._tag()}:{self.dtype}"

    def _tag(self) -> str:
        if self._number(Query.FORMAT_KIND) != FORMAT_KIND_BLOCKED:
            return "other" if self._size_is_known() else "any"
        count = self._number(Query.INNER_NBLKS)
        blocks, indices = (self._dims(query, count) for query in (Query.INNER_BLKS, Query.INNER_IDXS))
        strides, sizes = self._dims(Query.STRIDES), list(self._dims(Query.PADDED_DIMS))
        for block, axis in zip(blocks, indices, strict=True):
            sizes[axis] //= block
        order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis], axis))
        letters = "".join(chr(ord("A" if axis in indices else "a") + axis) for axis in order)
        return letters + "".join(f"{block}{chr(ord('a') + axis)}" for block, axis in zip(blocks, indices, strict=True))

    def _size_is_known(self) -> bool:
        return self.nbytes > 0

    def _steps(self) -> tuple[int, ...]:
        return self._steps_of(self._dims(Query.STRIDES))

    def _steps_of(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Return the meaningful strides: the strides along axes with more than one element."""
        return tuple(stride for stride, size in zip(strides, self.sizes, strict=True) if size != 1)

    def _number(self, query: Query) -> int:
        found = ctypes.c_int()
        self.api.call("dnnl_memory_desc_query", self, query, ctypes.byref(found))
        return found.value

    def _dims(self, query: Query, count: int | None = None) -> tuple[int, ...]:
        found = ctypes.POINTER(ctypes.c_int64 * MAX_NDIMS)()
        self.api.call("dnnl_memory_desc_query", self, query, ctypes.byref(found))
        return tuple(found.contents[: self._number(Query.NDIMS) if count is None else count])


class PrimitiveDesc(Handle):
    """A primitive ready for creation: the implementation is chosen, nothing is generated yet.

    Attributes:
        implementation: the name of the implementation.
        recipe: a key, equal for equal primitives, if the primitive is to be kept (:mod:`byoc_dnnl.primitive_cache`).
    """

    __slots__ = ("implementation", "recipe")
    _destroy = "dnnl_primitive_desc_destroy"

    def __init__(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self._own(api, pointer)
        self.recipe: Hashable | None = None
        self.implementation = self._queried_implementation()

    def _queried_implementation(self) -> str:
        text = ctypes.c_char_p()
        self.api.call("dnnl_primitive_desc_query", self.pointer, Query.IMPL_INFO_STR, 0, ctypes.byref(text))
        return (text.value or b"").decode()

    def advance(self) -> bool:
        """Choose the next implementation; return whether there is one."""
        if self.api.attempt("dnnl_primitive_desc_next_impl", self) != Status.SUCCESS:
            return False
        self.implementation = self._queried_implementation()
        return True

    @property
    def is_reference(self) -> bool:
        """Whether the implementation, or a part of the implementation, is the library's slow general fallback."""
        return any(part.startswith("ref") for part in self.implementation.split("+"))

    def memory_desc(self, query: Query, index: int = 0) -> MemoryDesc:
        """Return the required layout of an argument."""
        return MemoryDesc.copied(self.api, self.api.ask("dnnl_primitive_desc_query_md", self, query, index))

    def argument_nbytes(self, argument: int) -> int:
        """Return the number of bytes of an argument read or written by the primitive."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.EXEC_ARG_MD, argument)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0

    @property
    def scratch_nbytes(self) -> int:
        """The scratch memory of the primitive, in bytes."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.SCRATCHPAD_MD, 0)
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


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major tensor without gaps."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, sizes[axis + 1])
    return tuple(strides)
