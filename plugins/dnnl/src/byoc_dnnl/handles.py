"""Objects of oneDNN with an owner: each is freed exactly once, when nothing in Python holds its handle any more."""

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
    """A pointer that a function of oneDNN made, and the function that frees it.

    Itself it can be handed to functions of oneDNN, and lives as long as the call.

    Attributes:
        pointer: for who sees to it that this object lives long enough.
    """

    __slots__ = ("__weakref__", "api", "pointer")
    _destroy = ""

    def __init__(self, api: Api, create: str, *arguments: object) -> None:
        pointer = ctypes.c_void_p()
        api.call(create, ctypes.byref(pointer), *arguments)
        self._own(api, pointer)

    def _own(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self.api, self.pointer = api, pointer
        # At the end of the process the system frees all, and libraries may be gone before.
        weakref.finalize(self, api.function(self._destroy), pointer).atexit = False

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """What ``ctypes`` hands over."""
        return self.pointer


class Engine(Handle):
    """The engine of the CPU, in which all else is made.

    It switches oneDNN's cache of primitives off. A descriptor that comes from there may point to attributes of one that
    is gone, which oneDNN 3.2 reads if the primitive is not in the cache any more when it is made. Programs keep their
    primitives themselves, but for some that are kept for good (:mod:`byoc_dnnl.kept`).
    """

    __slots__ = ("_library",)
    _destroy = "dnnl_engine_destroy"

    def __init__(self, library: Library) -> None:
        self._library = library
        library.api.call("dnnl_set_primitive_cache_capacity", 0)
        super().__init__(library.api, "dnnl_engine_create", CPU_ENGINE, 0)

    @property
    def openmp(self) -> ctypes.CDLL | None:
        """Finds the functions of the OpenMP library that oneDNN is linked with; ``None`` where it has one thread."""
        return None if self._library.runtime is CpuRuntime.SEQUENTIAL else self._library.handle

    @property
    def isa(self) -> int:
        """What it may use of the processor: bits of :class:`~byoc_dnnl.capi.Isa`."""
        return self._library.isa

    @property
    def num_threads(self) -> int:
        """How many threads what is created now will use."""
        return 1 if self.openmp is None else int(self.openmp.omp_get_max_threads())

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        """Has what is created in this thread meanwhile use so many threads."""
        handle = self.openmp
        if handle is None:
            yield
            return
        before = handle.omp_get_max_threads()
        handle.omp_set_num_threads(number)
        try:
            yield
        finally:
            handle.omp_set_num_threads(before)


class Stream(Handle):
    """What primitives are executed in, one after the other."""

    __slots__ = ()
    _destroy = "dnnl_stream_destroy"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.api, "dnnl_stream_create", engine, IN_ORDER_STREAM)


class MemoryDesc(Handle):
    """How a tensor lies in memory: its dtype, its sizes, and its strides or blocks. Equal ones are equal.

    Made by its class methods; a method that gives another one does not change this one.
    """

    __slots__ = ()
    _destroy = "dnnl_memory_desc_destroy"
    __hash__ = None  # type: ignore[assignment]  # equality is asked of the library

    @classmethod
    def strided(
        cls, engine: Engine, sizes: Sequence[int], strides: Sequence[int] | None = None, dtype: str = "float32"
    ) -> MemoryDesc:
        """Gives that of strides, in elements; without them of a row-major tensor without gaps."""
        sizes = tuple(sizes)
        steps = row_major_strides(sizes) if strides is None else tuple(strides)
        name = "dnnl_memory_desc_create_with_strides"
        return cls(engine.api, name, len(sizes), dims_array(sizes), DataType[dtype], dims_array(steps))

    @classmethod
    def any(cls, engine: Engine, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Gives one that leaves the layout to the primitive."""
        sizes = tuple(sizes)
        name = "dnnl_memory_desc_create_with_tag"
        return cls(engine.api, name, len(sizes), dims_array(sizes), DataType[dtype], FORMAT_ANY)

    @classmethod
    def copied(cls, api: Api, pointer: int) -> MemoryDesc:
        """Gives a copy of one that belongs to something else."""
        return cls(api, "dnnl_memory_desc_clone", pointer)

    def permuted(self, axes: Sequence[int]) -> MemoryDesc:
        """Gives the same memory with other axes: axis ``i`` of the result is ``axes[i]`` of this one."""
        if sorted(axes) != list(range(len(self.sizes))):
            problem = "cannot be permuted: the axes are not those of the tensor"
            raise ArtifactError(f"a tensor of the sizes {list(self.sizes)}", problem, got=list(axes))
        places = [0] * len(axes)
        for place, axis in enumerate(axes):
            places[axis] = place
        array = (ctypes.c_int * len(axes))(*places)
        return MemoryDesc(self.api, "dnnl_memory_desc_permute_axes", self, array)

    def cast(self, engine: Engine, dtype: str) -> MemoryDesc | None:
        """Gives the same layout for elements of another dtype; ``None`` where it has blocks."""
        if self.dtype == dtype:
            return self
        if self._number(Query.INNER_NBLKS):
            return None
        return MemoryDesc.strided(engine, self.sizes, self._dims(Query.STRIDES), dtype)

    def as_bytes(self, engine: Engine) -> MemoryDesc | None:
        """Gives the same elements of two bytes as bytes, on an axis more; ``None`` where that has no description."""
        if self._number(Query.INNER_NBLKS) or len(self.sizes) == MAX_NDIMS:
            return None
        strides = [2 * stride for stride in self._dims(Query.STRIDES)]
        return MemoryDesc.strided(engine, (*self.sizes, 2), (*strides, 1), "uint8")

    def reshaped(self, sizes: Sequence[int]) -> MemoryDesc | None:
        """Gives the same memory with other sizes; ``None`` where its layout does not permit that."""
        sizes = tuple(sizes)
        return self._other("dnnl_memory_desc_reshape", len(sizes), dims_array(sizes))

    def _other(self, name: str, *arguments: object) -> MemoryDesc | None:
        """Gives what a function makes of this one, or ``None`` where it cannot."""
        pointer = ctypes.c_void_p()
        status = self.api.attempt(name, ctypes.byref(pointer), self, *arguments)
        if status in (Status.INVALID_ARGUMENTS, Status.UNIMPLEMENTED):
            return None
        if status != Status.SUCCESS:
            raise failure(name, status)
        made = MemoryDesc.__new__(MemoryDesc)
        made._own(self.api, pointer)
        return made

    def part(self, starts: Sequence[int], sizes: Sequence[int]) -> MemoryDesc | None:
        """Gives a piece of the same memory; ``None`` where it would begin within a block."""
        where = dims_array(tuple(sizes)), dims_array(tuple(starts))
        return self._other("dnnl_memory_desc_create_submemory", *where)

    def plain_order(self) -> tuple[int, ...] | None:
        """Gives its axes from the outermost to the innermost; ``None`` where it has blocks or gaps."""
        strides, sizes = self._dims(Query.STRIDES), self.sizes
        order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], sizes[axis] > 1, axis)))
        return order if self.permuted(order).is_row_major() else None

    def without_blocks(self, engine: Engine) -> MemoryDesc | None:
        """Gives the same memory with the axis that lies in blocks as two: which block, and where in it.

        Returns:
            ``None`` where there is padding, two axes lie in blocks, or these are more axes than oneDNN knows.
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
        """Whether the strides say that axes go from the outermost to the innermost, axis 1 perhaps behind all others.

        Blocks may lie within. Axes of one element count too: oneDNN looks at their strides.
        """
        strides = self._dims(Query.STRIDES)
        orders = [strides] if self.is_blocked() else [strides, (*strides[:1], *strides[2:], *strides[1:2])]
        return any(list(order) == sorted(order, reverse=True) for order in orders)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self._dims(Query.DIMS)

    @property
    def dtype(self) -> str:
        """The name of its elements' dtype."""
        return DataType(self._number(Query.DATA_TYPE)).name

    @property
    def nbytes(self) -> int:
        """How much memory it takes, with padding."""
        return int(self.api.ask("dnnl_memory_desc_get_size", self))

    def with_plain_unit_axes(self) -> MemoryDesc:
        """Gives the same memory, with strides along axes of one element as in a tensor without gaps.

        Strides there mean nothing, but oneDNN looks at them where it tells layouts apart.
        """
        if self._number(Query.INNER_NBLKS):
            return self
        sizes, strides = self.sizes, list(self._dims(Query.STRIDES))
        for axis in reversed(range(len(sizes))):
            if sizes[axis] == 1:
                strides[axis] = max((strides[k] * sizes[k] for k in range(axis + 1, len(sizes))), default=1)
        name = "dnnl_memory_desc_create_with_strides"
        dtype = self._number(Query.DATA_TYPE)
        return MemoryDesc(self.api, name, len(sizes), dims_array(sizes), dtype, dims_array(tuple(strides)))

    def is_row_major(self) -> bool:
        """Whether it lies row-major, without gaps."""
        return self._number(Query.INNER_NBLKS) == 0 and self._steps() == self._steps_of(row_major_strides(self.sizes))

    def is_blocked(self) -> bool:
        """Whether its innermost elements are blocks of an axis, as in ``ABcd16b``."""
        return self._number(Query.INNER_NBLKS) != 0

    def is_padded(self) -> bool:
        """Whether the last block of an axis is longer than the axis."""
        return self._dims(Query.PADDED_DIMS) != self.sizes

    def identity(self) -> tuple[object, ...]:
        """Gives what is equal for equal descriptions, of those that have strides or leave the layout open."""
        kind = self._number(Query.FORMAT_KIND)
        known: tuple[object, ...] = (kind, self.dtype, self.sizes)
        if kind != FORMAT_KIND_BLOCKED:
            return known
        offset = ctypes.c_int64()
        self.api.call("dnnl_memory_desc_query", self, Query.SUBMEMORY_OFFSET, ctypes.byref(offset))
        count = self._number(Query.INNER_NBLKS)
        blocks = (self._dims(query, count) for query in (Query.INNER_BLKS, Query.INNER_IDXS))
        return (*known, offset.value, self._dims(Query.PADDED_DIMS), self._dims(Query.STRIDES), *blocks)

    def lies_like(self, other: MemoryDesc) -> bool:
        """Whether elements stand in the same order, as far as padding goes too; dtypes may differ."""
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
        """Its axes from the outermost to the innermost, as oneDNN's tags, and what is not float32: ``ABcd16b:int8``."""
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
        """Strides where they mean anything: along axes of more than one element."""
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
    """A primitive that can be created: its implementation is chosen, nothing is generated yet.

    Attributes:
        implementation: its name.
        recipe: what is equal for equal primitives, where one is to be kept (:mod:`byoc_dnnl.kept`).
    """

    __slots__ = ("implementation", "recipe")
    _destroy = "dnnl_primitive_desc_destroy"

    def __init__(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self._own(api, pointer)
        self.recipe: Hashable | None = None
        text = ctypes.c_char_p()
        api.call("dnnl_primitive_desc_query", pointer, Query.IMPL_INFO_STR, 0, ctypes.byref(text))
        self.implementation = (text.value or b"").decode()

    @property
    def is_reference(self) -> bool:
        """Whether the implementation, or one that it consists of, is the library's slow one for everything."""
        return any(part.startswith("ref") for part in self.implementation.split("+"))

    def memory_desc(self, query: Query, index: int = 0) -> MemoryDesc:
        """Gives how an argument is to lie."""
        return MemoryDesc.copied(self.api, self.api.ask("dnnl_primitive_desc_query_md", self, query, index))

    def argument_nbytes(self, argument: int) -> int:
        """Gives how much memory the primitive reads or writes as an argument."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.EXEC_ARG_MD, argument)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0

    @property
    def scratch_nbytes(self) -> int:
        """How much scratch memory the primitive needs."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.SCRATCHPAD_MD, 0)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0


class Primitive(Handle):
    """A primitive that can be executed, any number of times, in several threads at once."""

    __slots__ = ()
    _destroy = "dnnl_primitive_destroy"

    def __init__(self, desc: PrimitiveDesc) -> None:
        super().__init__(desc.api, "dnnl_primitive_create", desc)


class Memory(Handle):
    """A description together with the address of the memory, which belongs to somebody else."""

    __slots__ = ()
    _destroy = "dnnl_memory_destroy"

    def __init__(self, engine: Engine, desc: MemoryDesc, address: int) -> None:
        super().__init__(engine.api, "dnnl_memory_create", desc, engine, address or None)


def argument_block(arguments: Sequence[tuple[int, Memory]]) -> ctypes.Array[ExecArg]:
    """Gives arguments as a primitive takes them; the memories are held by the caller."""
    return (ExecArg * len(arguments))(*(ExecArg(argument, memory.pointer) for argument, memory in arguments))


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Gives the strides, in elements, of a row-major tensor without gaps."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, sizes[axis + 1])
    return tuple(strides)
