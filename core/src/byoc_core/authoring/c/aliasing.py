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
        self._sources = {item.buffer: item.sources for item in statements_in(block) if isinstance(item, Alias)}

    def may_overlap(self, one: Buffer, other: Buffer) -> bool:
        """Return whether two buffers may reach the same memory, so that a store to one may change the other."""
        return any(
            left is right or MemoryAccess.WRITE not in (left.access, right.access)
            for left in self._roots(one)
            for right in self._roots(other)
        )

    def _roots(self, buffer: Buffer) -> list[Buffer]:
        """Return the buffers that are no pointers into others, and into which a buffer may point."""
        if buffer not in self._sources:
            return [buffer]
        return [root for source in self._sources[buffer] for root in self._roots(source)]
