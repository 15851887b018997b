"""The facts of a memory description, as numbers: asked from oneDNN once, or known from the request."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from byoc_dnnl.capi import DATA_TYPE_UNDEF, FORMAT_KIND_BLOCKED, MAX_NDIMS, Api, DataType, Query
from byoc_dnnl.extension import extension

__all__ = ["Facts", "query_facts", "query_facts_singly", "row_major_strides"]

_DTYPES = {DATA_TYPE_UNDEF: "", **{int(dtype): dtype.name for dtype in DataType}}


class Facts(NamedTuple):
    """The facts of a description with strides or blocks; other descriptions have a kind, a dtype and sizes only.

    Attributes:
        kind: the kind of the layout, ``dnnl_format_kind_t``.
        dtype: the name of the elements' dtype.
        sizes: the sizes of the axes.
        padded_sizes: the sizes with whole blocks.
        strides: the strides, in elements; of a blocked axis, the stride from block to block.
        offset: the first element, counted in elements from the beginning of the memory.
        blocks: the sizes of the blocks, from the outermost to the innermost.
        block_axes: the axes of the blocks.
    """

    kind: int
    dtype: str
    sizes: tuple[int, ...]
    padded_sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    blocks: tuple[int, ...] = ()
    block_axes: tuple[int, ...] = ()

    @classmethod
    def of_strides(cls, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Facts:
        """Return the facts of a description with strides, without blocks and padding."""
        return cls(FORMAT_KIND_BLOCKED, dtype, sizes, sizes, strides)

    @property
    def layout(self) -> tuple[tuple[int, ...], ...]:
        """The order of the elements, with padding, for elements of any dtype."""
        return self.sizes, self.padded_sizes, self.strides, self.blocks, self.block_axes

    @property
    def is_strided(self) -> bool:
        """Whether strides describe the whole layout: no blocks, no padding, no elements in front."""
        return (
            self.kind == FORMAT_KIND_BLOCKED and not self.blocks and not self.offset and self.padded_sizes == self.sizes
        )


def query_facts(api: Api, pointer: ctypes.c_void_p | int) -> Facts:
    """Return the facts of a description of oneDNN; the description of no tensor has no axes and no dtype."""
    native, address = extension(), pointer.value if isinstance(pointer, ctypes.c_void_p) else pointer
    if native is None or not address:
        return query_facts_singly(api, pointer)
    kind, dtype, *numbers = native.describe(*api.desc_queries, address)
    return Facts(kind, _DTYPES[dtype], *numbers)


def query_facts_singly(api: Api, desc: object) -> Facts:
    """Return the same facts without the extension, by a call of oneDNN for each fact."""
    rank, kind = _number(api, desc, Query.NDIMS), _number(api, desc, Query.FORMAT_KIND)
    if rank == 0:
        return Facts(kind, "", ())
    dtype, sizes = DataType(_number(api, desc, Query.DATA_TYPE)).name, _dims(api, desc, Query.DIMS, rank)
    if kind != FORMAT_KIND_BLOCKED:
        return Facts(kind, dtype, sizes)
    padded_sizes, strides = (_dims(api, desc, query, rank) for query in (Query.PADDED_DIMS, Query.STRIDES))
    offset = ctypes.c_int64()
    api.call("dnnl_memory_desc_query", desc, Query.SUBMEMORY_OFFSET, ctypes.byref(offset))
    count = _number(api, desc, Query.INNER_NBLKS)
    if count == 0:
        return Facts(kind, dtype, sizes, padded_sizes, strides, offset.value)
    blocks, axes = (_dims(api, desc, query, count) for query in (Query.INNER_BLKS, Query.INNER_IDXS))
    return Facts(kind, dtype, sizes, padded_sizes, strides, offset.value, blocks, axes)


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major tensor without gaps."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, sizes[axis + 1])
    return tuple(strides)


def _number(api: Api, desc: object, query: Query) -> int:
    found = ctypes.c_int()
    api.call("dnnl_memory_desc_query", desc, query, ctypes.byref(found))
    return found.value


def _dims(api: Api, desc: object, query: Query, count: int) -> tuple[int, ...]:
    found = ctypes.POINTER(ctypes.c_int64 * MAX_NDIMS)()
    api.call("dnnl_memory_desc_query", desc, query, ctypes.byref(found))
    return tuple(found.contents[:count])
