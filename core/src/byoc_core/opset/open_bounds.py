"""Bounds of slices standing for the end of an axis of any size.

Models write the largest or smallest int64, or a similar number, for an open end. Type rule, kernel and backends must
agree on the limit.
"""

from __future__ import annotations

from byoc_core.dims import Dim

__all__ = ["is_open_bound"]

_LEAST = 1 << 62


def is_open_bound(bound: Dim) -> bool:
    """Return whether a bound of `strided_slice` stands for the end of the axis, for any size."""
    return isinstance(bound, int) and abs(bound) >= _LEAST
