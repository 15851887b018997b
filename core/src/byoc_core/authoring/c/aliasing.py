"""Aliasing: buffers with possibly overlapping memory.

:func:`hoist`, :func:`scalarise` and :func:`map_to_grid` move, repeat or split loads only if :class:`Aliases` shows no
store able to change the loaded value. A missed overlap gives wrong results without an error.
"""

from __future__ import annotations

from byoc_core.authoring.c.expressions import Address, Buffer, MemoryAccess, PointerArray
from byoc_core.authoring.c.statements import Alias, Block
from byoc_core.authoring.c.traversal import expressions_in, statements_in

__all__ = ["Aliases"]


class Aliases:
    """The pointers of a function, and the buffers pointed into.

    Args:
        block: the body of the function.
    """

    def __init__(self, block: Block) -> None:
        aliases = [item for item in statements_in(block) if isinstance(item, Alias)]
        self._sources = {item.buffer: item.sources for item in aliases}
        pointers = {item.buffer: item.source for item in aliases if item.reads_pointer}
        # A pointer of an array may point into any buffer whose address is taken.
        addressed = {item.buffer for item in expressions_in(block) if isinstance(item, Address)} if pointers else set()
        for buffer, source in pointers.items():
            self._sources[buffer] = (source, *(item for item in addressed if not isinstance(item, PointerArray)))

    def may_overlap(self, first: Buffer, second: Buffer) -> bool:
        """Return whether two buffers may reach the same memory: a store to one may then change the other."""
        return any(
            left is right or MemoryAccess.WRITE not in (left.access, right.access)
            for left in self._roots(first)
            for right in self._roots(second)
        )

    def _roots(self, buffer: Buffer) -> list[Buffer]:
        """Return the buffers reached by following all pointers from a buffer; the buffer itself if it is no pointer."""
        reached = dict.fromkeys([buffer])
        pending = [buffer]
        while pending:
            new = [source for source in self._sources.get(pending.pop(), ()) if source not in reached]
            reached |= dict.fromkeys(new)
            pending += new
        return [item for item in reached if item not in self._sources]
