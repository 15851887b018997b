"""Storages for buffers of symbolic sizes: two buffers share a storage if provably large enough for both.

Lowering and the workspace of the numpy host use these plans. Proofs hold for all sizes of the symbols
(:func:`byoc_core.dims.is_nonnegative`): a buffer beyond the end of the storage would overwrite other memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from byoc_core.dims import Dim, is_nonnegative
from byoc_core.runtime.plan_storage import Interval, plan

__all__ = ["BlockPlan", "SymbolicInterval", "SymbolicPlan", "plan_block", "plan_symbolic"]


@dataclass(frozen=True, slots=True)
class SymbolicInterval:
    """A buffer of symbolic size, live at every point from ``start`` to ``end``, both included."""

    nbytes: Dim
    start: int
    end: int


class SymbolicPlan(NamedTuple):
    """The storage of each buffer, and the sizes of the storages."""

    storages: tuple[int, ...]
    sizes: tuple[Dim, ...]


def plan_symbolic(intervals: Sequence[SymbolicInterval]) -> SymbolicPlan:
    """Return a storage for each buffer, exclusive during the buffer's live range.

    In order of first use, a buffer takes a free storage of equal size; else the storage with the least waste among the
    provably not smaller storages; else the storage with the least growth among the provably not larger storages; else a
    new storage. If neither of two storages is provably better, the older storage is taken.

    Cost: for each buffer the number of different free sizes, and ``O(log n)``.
    """
    storages = [0] * len(intervals)
    sizes: list[Dim] = []
    free: dict[Dim, list[int]] = {}
    busy: list[tuple[int, int]] = []
    for number in sorted(range(len(intervals)), key=lambda i: (intervals[i].start, i)):
        interval = intervals[number]
        while busy and busy[0][0] < interval.start:
            _, storage = heappop(busy)
            heappush(free.setdefault(sizes[storage], []), storage)
        size = _fitting_size(interval.nbytes, sorted(free, key=lambda size: free[size][0]))
        if size is None:
            storage = len(sizes)
            sizes.append(interval.nbytes)
        else:
            storage = heappop(free[size])
            if not free[size]:
                del free[size]
            if not is_nonnegative(size - interval.nbytes):
                sizes[storage] = interval.nbytes
        storages[number] = storage
        heappush(busy, (interval.end, storage))
    return SymbolicPlan(tuple(storages), tuple(sizes))


class BlockPlan(NamedTuple):
    """The offset of each buffer in a block of memory, and the bytes of the block."""

    offsets: tuple[Dim, ...]
    nbytes: Dim


def plan_block(intervals: Sequence[SymbolicInterval], alignment: int) -> BlockPlan:
    """Return offsets for buffers of known or symbolic sizes in a single block; live buffers are disjoint.

    If all sizes are known, :func:`~byoc_core.runtime.plan_storage.plan` places the buffers; else buffers share the
    storages of :func:`plan_symbolic`.

    Args:
        intervals: the buffers.
        alignment: every offset, and the size of the block, is a multiple of the alignment.

    Cost: that of the planner.
    """
    sized = [Interval(item.nbytes, item.start, item.end) for item in intervals if isinstance(item.nbytes, int)]
    if len(sized) == len(intervals):
        offsets, nbytes = plan(sized, alignment)
        return BlockPlan(offsets, -(-nbytes // alignment) * alignment)
    storages, sizes = plan_symbolic(intervals)
    starts: list[Dim] = []
    total: Dim = 0
    for size in sizes:
        starts.append(total)
        total = total + (size + (alignment - 1)) // alignment * alignment
    return BlockPlan(tuple(starts[storage] for storage in storages), total)


def _fitting_size(nbytes: Dim, sizes: Sequence[Dim]) -> Dim | None:
    """Return the best of some sizes, by the rule of :func:`plan_symbolic`."""
    if nbytes in sizes:
        return nbytes
    larger: Dim | None = None
    smaller: Dim | None = None
    for size in sizes:
        if is_nonnegative(size - nbytes):
            if larger is None or is_nonnegative(larger - size - 1):
                larger = size
        elif is_nonnegative(nbytes - size) and (smaller is None or is_nonnegative(size - smaller - 1)):
            smaller = size
    return smaller if larger is None else larger
