"""Bounds of slices that stand for the end of an axis, whatever its size."""

from __future__ import annotations

from byoc_core.dims import Dim

__all__ = ["is_open_bound"]

_LEAST = 1 << 62


def is_open_bound(bound: Dim) -> bool:
    """Return whether a bound of `strided_slice` stands for the end of its axis, whatever the size."""
    return isinstance(bound, int) and abs(bound) >= _LEAST
