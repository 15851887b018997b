"""Places the intermediate tensors of one call in one block of memory, reusing what is no longer read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim, is_nonnegative
from byoc_core.runtime.plan_storage import Interval
from byoc_core.runtime.plan_storage import plan as plan_known

__all__ = ["ALIGNMENT", "Request", "plan"]

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Request:
    """Memory wanted from one kernel to another, both included.

    Attributes:
        nbytes: how much.
        first: index of the kernel that writes it.
        last: index of the last kernel that reads it.
    """

    nbytes: Dim
    first: int
    last: int


def plan(requests: Sequence[Request]) -> tuple[list[Dim], Dim]:
    """Gives the offset of every request and the bytes of the whole block.

    Where all sizes are known the core plans them. Else requests whose times do not overlap may share a slot, which
    grows where its new size is provably larger. All offsets, and the size of the block, are multiples of
    :data:`ALIGNMENT`.

    Args:
        requests: ordered by ``first``.

    Cost: that of :func:`byoc_core.lower.plan`, or O(requests * slots).
    """
    known = [Interval(r.nbytes, r.first, r.last) for r in requests if isinstance(r.nbytes, int)]
    if len(known) == len(requests):
        offsets, nbytes = plan_known(known, ALIGNMENT)
        return list(offsets), -(-nbytes // ALIGNMENT) * ALIGNMENT
    return _plan_slots(requests)


def _plan_slots(requests: Sequence[Request]) -> tuple[list[Dim], Dim]:
    sizes: list[Dim] = []
    busy_until: list[int] = []
    slots: list[int] = []
    for request in requests:
        slot = _choose(request, sizes, busy_until)
        if slot is None:
            slot = len(sizes)
            sizes.append(request.nbytes)
            busy_until.append(request.last)
        else:
            if is_nonnegative(request.nbytes - sizes[slot]):
                sizes[slot] = request.nbytes
            busy_until[slot] = request.last
        slots.append(slot)
    starts: list[Dim] = []
    total: Dim = 0
    for size in sizes:
        starts.append(total)
        total = total + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    return [starts[slot] for slot in slots], total


def _choose(request: Request, sizes: Sequence[Dim], busy_until: Sequence[int]) -> int | None:
    """Gives the free slot that wastes least, or the largest one that is too small, or ``None``."""
    fitting: list[tuple[Dim, int]] = []
    growing: list[tuple[Dim, int]] = []
    for slot, size in enumerate(sizes):
        if busy_until[slot] >= request.first:
            continue
        if is_nonnegative(size - request.nbytes):
            fitting.append((size - request.nbytes, slot))
        elif is_nonnegative(request.nbytes - size):
            growing.append((request.nbytes - size, slot))
    for candidates in (fitting, growing):
        best: tuple[Dim, int] | None = None
        for candidate in candidates:
            if best is None or is_nonnegative(best[0] - candidate[0] - 1):
                best = candidate
        if best is not None:
            return best[1]
    return None
