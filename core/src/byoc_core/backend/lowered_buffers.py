"""Buffers of a lowered function, and the parts of buffers passed to extern calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from byoc_core.dims import Dim, DimExpr, product
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant

__all__ = ["Access", "Buffer", "BufferPart", "BufferRole"]


class Access(Enum):
    """The access of a call to a part of a buffer; the value is the word in messages."""

    READ = "reads"
    WRITE = "writes"
    """Every element of the part is written; the earlier content does not matter."""
    UPDATE = "updates"
    """The part is read and written."""


class BufferRole(Enum):
    """The owner of a buffer's memory; the value is the word in messages."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    INTERMEDIATE = "intermediate"
    """Memory in the planned workspace."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory of a lowered function, compared by identity; the elements are C-contiguous.

    Passed to a call, a buffer is read as a whole. The methods return other accesses, and parts.

    Attributes:
        name: the name in messages and in the C text.
        dtype: the dtype of the elements.
        shape: the sizes, over the symbols of the function.
        role: the owner of the memory.
        constant: the array behind a constant buffer.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    role: BufferRole
    constant: Constant | None = field(default=None, repr=False)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    def part(self, offset: Dim, size: Dim | None = None) -> BufferPart:
        """Return the elements from an offset on.

        Args:
            offset: elements before the part; may contain indexes of surrounding loops.
            size: the number of elements; by default, all elements behind the offset.

        Raises:
            CodegenError: offset or size is neither an integer nor a symbolic size.
        """
        for dim in (offset,) if size is None else (offset, size):
            if isinstance(dim, bool) or not isinstance(dim, int | DimExpr):
                raise CodegenError(
                    f"buffer `{self.name}`",
                    "has a part of an impossible offset or size",
                    got=repr(dim),
                    expected="a size",
                )
        return BufferPart(self, offset, self.size - offset if size is None else size)

    def written(self) -> BufferPart:
        """Return the whole buffer as an argument written by a call."""
        return self.part(0).written()

    def updated(self) -> BufferPart:
        """Return the whole buffer as an argument read and written by a call."""
        return self.part(0).updated()


@dataclass(frozen=True, slots=True)
class BufferPart:
    """Consecutive elements of a buffer, and the access of a call to these elements.

    Attributes:
        buffer: the buffer.
        offset: elements of the buffer before the part.
        size: the number of elements.
        access: the access of the call.
    """

    buffer: Buffer
    offset: Dim
    size: Dim
    access: Access = Access.READ

    def written(self) -> BufferPart:
        """Return the part as an argument written by a call."""
        return replace(self, access=Access.WRITE)

    def updated(self) -> BufferPart:
        """Return the part as an argument read and written by a call."""
        return replace(self, access=Access.UPDATE)
