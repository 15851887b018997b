"""Descriptions of tensors in memory. Recent descriptions are found by request, derived descriptions too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError, ExecutionError

from byoc_dnnl.capi import (
    FORMAT_ANY,
    FORMAT_KIND_ANY,
    FORMAT_KIND_BLOCKED,
    MAX_NDIMS,
    DataType,
    Status,
    dims_array,
    failure,
)
from byoc_dnnl.desc_facts import Facts, query_facts, row_major_strides
from byoc_dnnl.handle import Handle

if TYPE_CHECKING:
    from byoc_dnnl.capi import Api
    from byoc_dnnl.handles import Engine

__all__ = ["MemoryDesc"]

_TOKENS = count()
"""The tokens of descriptions: a counter is the same in all threads."""

_MISSING = object()


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
        desc = cls.__new__(cls)
        desc._own(api, pointer, facts)
        return desc

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
            name, dims, rank = "dnnl_memory_desc_create_with_tag", dims_array(sizes), len(sizes)
            pointer = ctypes.c_void_p()
            engine.api.call(name, ctypes.byref(pointer), rank, dims, DataType[dtype], FORMAT_ANY)
            facts = Facts(FORMAT_KIND_ANY, dtype, tuple(dims[:rank]))
            found = recent.put(key, cls._owned(engine.api, pointer, facts))
        assert isinstance(found, MemoryDesc)
        return found

    @classmethod
    def copied(cls, api: Api, pointer: int) -> MemoryDesc:
        """Return the description owned by another object: an equal recent description, or a copy."""
        facts = query_facts(api, pointer)
        recent = cls._recent_equal(api, pointer, facts)
        if recent is not None:
            return recent
        copy = ctypes.c_void_p()
        api.call("dnnl_memory_desc_clone", ctypes.byref(copy), pointer)
        return cls._owned(api, copy, facts)._remember()

    @classmethod
    def _recent_equal(cls, api: Api, pointer: object, facts: Facts) -> MemoryDesc | None:
        """Return a recent description equal in all respects.

        Facts do not tell everything: weights of bytes may have room for sums behind the elements. The library compares
        the rest, but not the strides along axes of size 1.
        """
        recent = api.descs.get(facts, None)
        if facts.is_strided:
            with suppress(ExecutionError):  # strides of axes of size 1 that oneDNN makes but does not take
                recent = cls._strided(api, facts.sizes, facts.strides, facts.dtype)
        is_equal = isinstance(recent, MemoryDesc) and api.ask("dnnl_memory_desc_equal", recent, pointer)
        return recent if isinstance(recent, MemoryDesc) and is_equal else None

    def _remember(self) -> MemoryDesc:
        """Keep this description for later requests, unless the facts have a description already; return it."""
        if self.api.descs.get(self.facts, None) is None:
            self.api.descs.put(self.facts, self)
        return self

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
            desc = self._owned(self.api, pointer)
            found = self.api.descs.put(key, self._recent_equal(self.api, desc, desc.facts) or desc._remember())
        assert found is None or isinstance(found, MemoryDesc)
        return found

    def permuted(self, axes: Sequence[int]) -> MemoryDesc:
        """Return the same memory with permuted axes: axis ``i`` of the result is ``axes[i]`` of this description."""
        key = self.token, "axes", tuple(axes)
        found = self.api.descs.get(key, None)
        if found is None:
            found = self.api.descs.put(key, self._permuted(axes))
        assert isinstance(found, MemoryDesc)
        return found

    def _permuted(self, axes: Sequence[int]) -> MemoryDesc:
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
        if facts.blocks or (1 not in facts.sizes and facts.is_strided):
            return self
        key = self.token, "plain axes"
        found = self.api.descs.get(key, None)
        if found is None:
            found = self.api.descs.put(key, self._found_with_plain_unit_axes())
        assert isinstance(found, MemoryDesc)
        return found

    def _found_with_plain_unit_axes(self) -> MemoryDesc:
        facts = self.facts
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
        return self.facts.layout == other.facts.layout

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        if self.sizes != other.sizes or self.dtype != other.dtype:
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
