"""The gaps between occupied byte ranges."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["highest_gap", "lowest_gap"]


def lowest_gap(occupied: Iterable[tuple[int, int]], size: int) -> int:
    """Return the lowest offset of ``size`` free bytes.

    Args:
        occupied: the occupied ranges (start, stop) in ascending order; ranges may overlap.
        size: bytes.
    """
    offset = 0
    for start, stop in occupied:
        if start - offset >= size:
            break
        # Occupied ranges may overlap: buffers live together with the new buffer need not be live together.
        offset = max(offset, stop)
    return offset


def highest_gap(occupied: Iterable[tuple[int, int]], size: int, ceiling: int) -> int | None:
    """Return the highest offset of ``size`` free bytes below a ceiling; ``None`` without enough free bytes.

    Args:
        occupied: the occupied ranges (start, stop) in ascending order; ranges may overlap.
        size: bytes.
        ceiling: the end of the free bytes.
    """
    found, offset = None, 0
    for start, stop in occupied:
        if min(start, ceiling) - offset >= size:
            # Gaps come in ascending order: a later gap replaces an earlier gap.
            found = min(start, ceiling) - size
        offset = max(offset, stop)
    return ceiling - size if ceiling - offset >= size else found
