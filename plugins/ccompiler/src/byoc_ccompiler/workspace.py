"""Placement of the intermediate tensors of a call in a single block of memory, reusing dead buffers."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.runtime.plan_storage import Interval
from byoc_core.runtime.plan_storage import plan as plan_known
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_symbolic

__all__ = ["ALIGNMENT", "plan"]

ALIGNMENT = 64
"""Bytes: the alignment of each buffer, and of a workspace passed by the caller."""


def plan(buffers: Sequence[SymbolicInterval]) -> tuple[list[Dim], Dim]:
    """Return the offset of every buffer and the bytes of the whole block.

    If a size is symbolic, buffers with disjoint live ranges may share a slot (see
    :func:`~byoc_core.runtime.symbolic_storage.plan_symbolic`). All offsets, and the size of the block, are multiples of
    :data:`ALIGNMENT`.

    Args:
        buffers: the live ranges, from the kernel writing a buffer to the last kernel reading the buffer.

    Cost: that of :func:`byoc_core.runtime.plan_storage.plan`, or of ``plan_symbolic``.
    """
    intervals = [Interval(b.nbytes, b.start, b.end) for b in buffers if isinstance(b.nbytes, int)]
    if len(intervals) == len(buffers):
        offsets, nbytes = plan_known(intervals, ALIGNMENT)
        return list(offsets), -(-nbytes // ALIGNMENT) * ALIGNMENT
    slots, sizes = plan_symbolic(buffers)
    starts: list[Dim] = []
    total: Dim = 0
    for size in sizes:
        starts.append(total)
        total = total + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    return [starts[slot] for slot in slots], total
