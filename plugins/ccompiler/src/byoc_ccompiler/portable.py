"""Kernels in C11 for any compiler: serial loops, no prefetches, small stack frames.

Kernels without vectors come from :data:`~byoc_ccompiler.vector_unit.NO_VECTORS`. The functions of this module change
the rest of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, dim_max
from byoc_core.dtypes import dtype_info

__all__ = ["FETCHES", "PORTABLE", "has_large_arrays", "move_arrays", "plain_function"]

PORTABLE = replace(c.C11_KERNELS, name="c11-portable", doc="C11 for any compiler", has_vectors=False, has_threads=False)
"""The dialect: the macros of ``byoc_scalar.h`` are empty for unknown compilers."""

FETCHES = ("vec_fetch", "vec_fetch_line")
"""The names of C functions prefetching memory."""

_MAX_ARRAY_NBYTES = 256
"""Maximum bytes of a local array of a kernel left on the stack."""

_ALIGNMENT = 64
"""Alignment in bytes of arrays in scratch memory."""


def plain_function(function: c.Function) -> c.Function:
    """Return a function with the same results, without prefetches, parallel loops, and arrays of special alignment."""
    function = c.serialise(replace(function, body=_plain(function.body)))
    return c.simplify(function)


def _plain(block: c.Block) -> c.Block:
    statements = (item for item in block if not _is_fetch(item))
    aligned = (replace(item, alignment=None) if isinstance(item, c.LocalArray) else item for item in statements)
    return tuple(c.with_blocks(item, _plain) for item in aligned)


def has_large_arrays(block: c.Block) -> bool:
    """Return whether a block has local arrays for :func:`move_arrays`."""
    return any(isinstance(item, c.LocalArray) and _is_large(item) for item in c.statements_in(block))


def move_arrays(block: c.Block, scratch: c.Buffer, begin: Dim) -> tuple[c.Block, Dim]:
    """Return a block with large local arrays in scratch memory, and the number of elements of the scratch memory.

    Arrays of blocks not inside each other share memory. Arrays of pointers stay: they are small, and scratch memory
    holds numbers only.

    Args:
        block: the statements of a kernel.
        scratch: the scratch memory.
        begin: the elements of the scratch memory already in use.
    """
    return _Mover(scratch).block(block, begin)


class _Mover:
    def __init__(self, scratch: c.Buffer) -> None:
        self._scratch = scratch
        self._unit = _ALIGNMENT // dtype_info(scratch.dtype).itemsize

    def block(self, block: c.Block, begin: Dim) -> tuple[c.Block, Dim]:
        """Return the changed block, and the elements of the scratch memory up to the end of all arrays."""
        statements: list[c.Statement] = []
        end = most = begin
        for statement in block:
            if isinstance(statement, c.LocalArray) and _is_large(statement):
                first = ceildiv(end, self._unit) * self._unit
                end = first + _nbytes(statement.buffer) // dtype_info(self._scratch.dtype).itemsize
                statements.append(c.Alias(statement.buffer, self._scratch, c.Size(first)))
                if statement.is_zeroed:
                    size = statement.buffer.size
                    assert size is not None
                    statements.append(c.Clear(statement.buffer, c.Size(0), c.Size(size)))
            else:
                ends: list[Dim] = []
                statements.append(c.with_blocks(statement, self._inside(end, ends)))
                for inner_end in ends:
                    most = dim_max(most, inner_end)
            most = dim_max(most, end)
        return tuple(statements), most

    def _inside(self, begin: Dim, ends: list[Dim]) -> Callable[[c.Block], c.Block]:
        def change(block: c.Block) -> c.Block:
            changed, end = self.block(block, begin)
            ends.append(end)
            return changed

        return change


def _is_fetch(statement: c.Statement) -> bool:
    """Return whether a statement only prefetches memory."""
    call = statement.call if isinstance(statement, c.Evaluate) else None
    return isinstance(call, c.Call) and call.callee.name in FETCHES


def _is_large(array: c.LocalArray) -> bool:
    # A zeroed array without writes is static.
    is_static = array.is_zeroed and not array.buffer.is_writable
    return not isinstance(array.buffer, c.PointerArray) and not is_static and _nbytes(array.buffer) > _MAX_ARRAY_NBYTES


def _nbytes(buffer: c.Buffer) -> int:
    """Return the bytes of a local array, rounded up to the alignment."""
    assert isinstance(buffer.size, int)
    return -(-buffer.size * dtype_info(buffer.dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
