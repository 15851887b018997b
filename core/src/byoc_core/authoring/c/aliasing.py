"""Which buffers may reach the same memory."""

from __future__ import annotations

from byoc_core.authoring.c.expressions import Buffer, MemoryAccess
from byoc_core.authoring.c.statements import Alias, Block
from byoc_core.authoring.c.traversal import statements_in

__all__ = ["Aliases"]


class Aliases:
    """The pointers of a function, and the buffers that they point into.

    Args:
        block: the body of the function.
    """

    def __init__(self, block: Block) -> None:
        self._sources = {item.buffer: item.source for item in statements_in(block) if isinstance(item, Alias)}

    def may_overlap(self, one: Buffer, other: Buffer) -> bool:
        """Return whether two buffers may reach the same memory, so that a store to one may change the other."""
        one, other = self._root(one), self._root(other)
        return one is other or MemoryAccess.WRITE not in (one.access, other.access)

    def _root(self, buffer: Buffer) -> Buffer:
        while buffer in self._sources:
            buffer = self._sources[buffer]
        return buffer
