"""Objects of oneDNN with an owner: each is freed exactly once, when nothing in Python holds its handle any more."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.capi import (
    CPU_ENGINE,
    FLOAT32,
    FORMAT_ANY,
    FORMAT_KIND_BLOCKED,
    IN_ORDER_STREAM,
    MAX_NDIMS,
    SCRATCHPAD_USER,
    Algorithm,
    Api,
    CpuRuntime,
    Query,
    Status,
    dims_array,
    failure,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from byoc_dnnl.library import Library

__all__ = ["Attributes", "Engine", "Memory", "MemoryDesc", "PostOp", "Primitive", "PrimitiveDesc", "Stream"]


class _Handle:
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


class Engine(_Handle):
    """The engine of the CPU, in which all else is made."""

    __slots__ = ("_library",)
    _destroy = "dnnl_engine_destroy"

    def __init__(self, library: Library) -> None:
        self._library = library
        super().__init__(library.api, "dnnl_engine_create", CPU_ENGINE, 0)

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        """Has what is created in this thread meanwhile use so many threads."""
        if self._library.runtime is CpuRuntime.SEQUENTIAL:
            yield
            return
        handle = self._library.handle  # its lookup reaches the OpenMP library that it is linked with
        before = handle.omp_get_max_threads()
        handle.omp_set_num_threads(number)
        try:
            yield
        finally:
            handle.omp_set_num_threads(before)


class Stream(_Handle):
    """What primitives are executed in, one after the other."""

    __slots__ = ()
    _destroy = "dnnl_stream_destroy"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.api, "dnnl_stream_create", engine, IN_ORDER_STREAM)


class MemoryDesc(_Handle):
    """How a float32 tensor lies in memory: its sizes, and its strides or blocks. Equal ones are equal.

    Made by its class methods; a method that gives another one does not change this one.
    """

    __slots__ = ()
    _destroy = "dnnl_memory_desc_destroy"
    __hash__ = None  # type: ignore[assignment]  # equality is asked of the library

    @classmethod
    def strided(cls, engine: Engine, sizes: Sequence[int], strides: Sequence[int] | None = None) -> MemoryDesc:
        """Gives that of strides, in elements; without them of a row-major tensor without gaps."""
        sizes = tuple(sizes)
        steps = row_major_strides(sizes) if strides is None else tuple(strides)
        name = "dnnl_memory_desc_create_with_strides"
        return cls(engine.api, name, len(sizes), dims_array(sizes), FLOAT32, dims_array(steps))

    @classmethod
    def any(cls, engine: Engine, sizes: Sequence[int]) -> MemoryDesc:
        """Gives one that leaves the layout to the primitive."""
        sizes = tuple(sizes)
        name = "dnnl_memory_desc_create_with_tag"
        return cls(engine.api, name, len(sizes), dims_array(sizes), FLOAT32, FORMAT_ANY)

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

    def reshaped(self, sizes: Sequence[int]) -> MemoryDesc | None:
        """Gives the same memory with other sizes; ``None`` where its layout does not permit that."""
        pointer = ctypes.c_void_p()
        sizes = tuple(sizes)
        name = "dnnl_memory_desc_reshape"
        status = self.api.attempt(name, ctypes.byref(pointer), self, len(sizes), dims_array(sizes))
        if status == Status.INVALID_ARGUMENTS:
            return None
        if status != Status.SUCCESS:
            raise failure(name, status)
        made = MemoryDesc.__new__(MemoryDesc)
        made._own(self.api, pointer)
        return made

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self._dims(Query.DIMS)

    @property
    def nbytes(self) -> int:
        """How much memory it takes, with padding."""
        return int(self.api.ask("dnnl_memory_desc_get_size", self))

    def is_row_major(self) -> bool:
        """Whether it lies row-major, without gaps."""
        return self._number(Query.INNER_NBLKS) == 0 and self._steps() == self._steps_of(row_major_strides(self.sizes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return bool(self.api.ask("dnnl_memory_desc_equal", self, other))

    def __str__(self) -> str:
        """Its axes from the outermost to the innermost, as oneDNN's tags: ``acdb``, ``ABcd16b``."""
        if self._number(Query.FORMAT_KIND) != FORMAT_KIND_BLOCKED:
            return "other" if self._size_is_known() else "any"
        count = self._number(Query.INNER_NBLKS)
        blocks, indices = (self._dims(query, count) for query in (Query.INNER_BLKS, Query.INNER_IDXS))
        strides, sizes = self._dims(Query.STRIDES), self._dims(Query.PADDED_DIMS)
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


class PostOp:
    """What a primitive does with each element of its result: a function of one operand, or a second operand.

    Args:
        algorithm: what is computed.
        alpha: the first parameter of a function.
        operand: the second operand's description, of an operation of two.
    """

    __slots__ = ("algorithm", "alpha", "operand")

    def __init__(self, algorithm: Algorithm, alpha: float = 0.0, operand: MemoryDesc | None = None) -> None:
        self.algorithm, self.alpha, self.operand = algorithm, alpha, operand


class _PostOps(_Handle):
    __slots__ = ()
    _destroy = "dnnl_post_ops_destroy"


class Attributes(_Handle):
    """How primitives are made: with scratch memory from outside, and post-ops."""

    __slots__ = ()
    _destroy = "dnnl_primitive_attr_destroy"

    def __init__(self, engine: Engine, post_ops: Iterable[PostOp] = ()) -> None:
        api = engine.api
        super().__init__(api, "dnnl_primitive_attr_create")
        api.call("dnnl_primitive_attr_set_scratchpad_mode", self, SCRATCHPAD_USER)
        chain = _PostOps(api, "dnnl_post_ops_create")
        for post_op in post_ops:
            if post_op.operand is None:
                name = "dnnl_post_ops_append_eltwise"
                api.call(name, chain, post_op.algorithm, post_op.alpha, 0.0)
            else:
                name = "dnnl_post_ops_append_binary"
                api.call(name, chain, post_op.algorithm, post_op.operand)
        api.call("dnnl_primitive_attr_set_post_ops", self, chain)


class PrimitiveDesc(_Handle):
    """A primitive that can be created: its implementation is chosen, nothing is generated yet."""

    __slots__ = ("implementation",)
    _destroy = "dnnl_primitive_desc_destroy"

    def __init__(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self._own(api, pointer)
        text = ctypes.c_char_p()
        api.call("dnnl_primitive_desc_query", pointer, Query.IMPL_INFO_STR, 0, ctypes.byref(text))
        self.implementation = (text.value or b"").decode()

    @property
    def is_reference(self) -> bool:
        """Whether the implementation is the library's slow one, that it has for everything."""
        return self.implementation.startswith("ref")

    def memory_desc(self, query: Query) -> MemoryDesc:
        """Gives how an argument is to lie."""
        return MemoryDesc.copied(self.api, self.api.ask("dnnl_primitive_desc_query_md", self, query, 0))

    def argument_nbytes(self, argument: int) -> int:
        """Gives how much memory the primitive reads or writes as an argument."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.EXEC_ARG_MD, argument)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0

    @property
    def scratch_nbytes(self) -> int:
        """How much scratch memory the primitive needs."""
        pointer = self.api.ask("dnnl_primitive_desc_query_md", self, Query.SCRATCHPAD_MD, 0)
        return int(self.api.ask("dnnl_memory_desc_get_size", pointer)) if pointer else 0


class Primitive(_Handle):
    """A primitive that can be executed, any number of times, in several threads at once."""

    __slots__ = ()
    _destroy = "dnnl_primitive_destroy"

    def __init__(self, desc: PrimitiveDesc) -> None:
        super().__init__(desc.api, "dnnl_primitive_create", desc)


class Memory(_Handle):
    """A description together with the address of the memory, which belongs to somebody else."""

    __slots__ = ()
    _destroy = "dnnl_memory_destroy"

    def __init__(self, engine: Engine, desc: MemoryDesc, address: int) -> None:
        super().__init__(engine.api, "dnnl_memory_create", desc, engine, address or None)


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Gives the strides, in elements, of a row-major tensor without gaps."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, sizes[axis + 1])
    return tuple(strides)
