"""Places for few buffers: a hill climb over the order of greedy placement.

Source: the hill climb of TVM's unified static memory planner (RFC 0009). There, a step swaps two neighbours of a buffer
at the arena's top, and some steps to larger arenas are kept. Here, a step swaps the buffer at the top, and keeps the
places of all buffers before the first swapped buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.runtime.storage_gaps import lowest_gap

__all__ = ["climb"]


def climb(
    spans: Sequence[tuple[int, int]], sizes: Sequence[int], order: Sequence[int], goal: int, num_steps: int
) -> tuple[int, ...]:
    """Return the offset of each buffer from the smallest arena of a hill climb.

    Buffers go to the lowest sufficient gap, in order. A step swaps a random buffer at the arena's top with a random
    earlier buffer, either live at the same time as the first or as a neighbour of the first, and places again. A step
    to a larger arena is undone. The random numbers are the same in each run.

    Args:
        spans: the first and the last point of each buffer's live range.
        sizes: of the buffers, in bytes.
        order: the order to begin with.
        goal: the climb stops at an arena of this size.
        num_steps: the limit of steps.

    Cost: for each step, the pairs of simultaneously live buffers; for all steps, a list of these pairs.
    """
    conflicts = _find_conflicts(spans)
    order = list(order)
    offsets = [0] * len(spans)
    _assign_offsets(conflicts, sizes, order, offsets, 0, sum(sizes))
    total = _top(offsets, sizes)
    state = 1
    for _ in range(num_steps):
        if total <= goal:
            break
        rank = {number: index for index, number in enumerate(order)}
        highest = [number for number in order if offsets[number] + sizes[number] == total]
        state, number = _draw(state, highest)
        earlier = [n for n in conflicts[number] if rank[n] < rank[number]]
        nearby = dict.fromkeys(earlier)
        for other in earlier:
            nearby |= dict.fromkeys(n for n in conflicts[other] if rank[n] < rank[number])
        if not nearby:
            break
        state, other = _draw(state, list(nearby))
        first, second = rank[other], rank[number]
        candidate = offsets.copy()
        order[first], order[second] = order[second], order[first]
        if _assign_offsets(conflicts, sizes, order, candidate, first, total):
            offsets, total = candidate, _top(candidate, sizes)
        else:
            order[first], order[second] = order[second], order[first]
    return tuple(offsets)


def _draw(state: int, numbers: Sequence[int]) -> tuple[int, int]:
    """Return the next state of a linear congruential generator (Knuth's MMIX), and one of the numbers."""
    state = (6364136223846793005 * state + 1442695040888963407) % (1 << 64)
    return state, numbers[(state >> 32) * len(numbers) >> 32]


def _find_conflicts(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return for each buffer the other buffers live at the same time, by start."""
    conflicts: list[list[int]] = [[] for _ in spans]
    live: list[int] = []
    for number in sorted(range(len(spans)), key=lambda n: (spans[n], n)):
        live = [other for other in live if spans[other][1] >= spans[number][0]]
        for other in live:
            conflicts[other].append(number)
            conflicts[number].append(other)
        live.append(number)
    return conflicts


def _assign_offsets(
    conflicts: Sequence[Sequence[int]],
    sizes: Sequence[int],
    order: Sequence[int],
    offsets: list[int],
    first: int,
    limit: int,
) -> bool:
    """Place the buffers from an index of the order on; earlier buffers keep their places.

    Return whether all buffers lie below the limit; the placement stops at the first other buffer.
    """
    is_placed = [False] * len(order)
    for number in order[:first]:
        is_placed[number] = True
    for number in order[first:]:
        occupied = sorted((offsets[n], offsets[n] + sizes[n]) for n in conflicts[number] if is_placed[n])
        offsets[number] = lowest_gap(occupied, sizes[number])
        if offsets[number] + sizes[number] > limit:
            return False
        is_placed[number] = True
    return True


def _top(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
