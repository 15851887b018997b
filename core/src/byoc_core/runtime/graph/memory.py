"""Planned memory of a graph function: the locations of values in the workspace, and the kernels' scratch memory.

Storages are collected while the function is planned, each for one array; storages with disjoint live ranges share
memory. Storages of known sizes have offsets in a common part; storages of symbolic sizes have separate parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from byoc_core.dims import Dim, evaluate, exact_div, product, shape_symbols
from byoc_core.errors import IRTypeError
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.plan_storage import Interval, plan_once
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_symbolic

__all__ = ["PlacedArray", "Storages", "WorkspacePlan"]

_ALIGNMENT = 64

_MIN_NBYTES = 4096
"""Smaller arrays are left to numpy: numpy allocates such memory faster than a view of other memory is made."""


class PlacedArray(NamedTuple):
    """An array for the sizes of a call, as a view of the workspace."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    def within(self, workspace: NDArray) -> NDArray:
        """Return the array as a view of a call's workspace."""
        return np.ndarray(self.shape, self.dtype, workspace, self.offset)


@dataclass(frozen=True, slots=True)
class _PlannedArray:
    """An array, with part and offset in the workspace."""

    shape: tuple[Dim, ...]
    dtype: np.dtype[Any]
    part: int
    offset: int


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """The locations of the arrays of a function.

    Attributes:
        arrays: in the order of collection of their storages.
        parts: the bytes of each part, one behind the other, each aligned.
    """

    arrays: tuple[_PlannedArray, ...]
    parts: tuple[Dim, ...]

    @property
    def nbytes(self) -> Dim:
        """The bytes of the workspace."""
        total: Dim = 0
        for part in self.parts:
            is_aligned = exact_div(part, _ALIGNMENT) is not None
            total = total + (part if is_aligned else part + _ALIGNMENT - 1)
        return total

    @property
    def is_symbolic(self) -> bool:
        """Whether sizes depend on the sizes of a call."""
        return any(not isinstance(part, int) for part in self.parts)

    def place_arrays(self, sizes: Mapping[str, int]) -> tuple[PlacedArray | None, ...]:
        """Return each array for the sizes of a call; ``None`` for an array too small to be worth a view.

        No array is placed if sizes do not fit each other: the op with such operands reports the error during the run.
        """
        try:
            return self._place_arrays(sizes)
        except IRTypeError:
            return (None,) * len(self.arrays)

    def _place_arrays(self, sizes: Mapping[str, int]) -> tuple[PlacedArray | None, ...]:
        starts, end = [], 0
        for part in self.parts:
            starts.append(end)
            end += max(0, -(-evaluate(part, sizes) // _ALIGNMENT) * _ALIGNMENT)
        placed: list[PlacedArray | None] = []
        for array in self.arrays:
            shape = tuple([evaluate(dim, sizes) for dim in array.shape])
            is_large = min(shape) >= 0 and math.prod(shape) * array.dtype.itemsize >= _MIN_NBYTES
            offset = starts[array.part] + array.offset
            placed.append(PlacedArray(shape, array.dtype, offset) if is_large else None)
        return tuple(placed)


class Storages:
    """The storages of a function while the function is planned.

    Args:
        symbols: the symbols with known sizes at the call of the function.
    """

    def __init__(self, symbols: frozenset[str]) -> None:
        self._symbols = symbols
        self._arrays: list[tuple[tuple[Dim, ...], np.dtype[Any]]] = []
        self._spans: list[tuple[int, int]] = []

    def add(self, shape: Sequence[Dim], dtype: np.dtype[Any], index: int) -> int | None:
        """Return the number of a new storage, live from a node on; ``None`` if a storage would be of no use."""
        nbytes = product(shape) * dtype.itemsize
        if (isinstance(nbytes, int) and nbytes < _MIN_NBYTES) or not shape_symbols(shape) <= self._symbols:
            return None
        self._arrays.append((tuple(shape), dtype))
        self._spans.append((index, index))
        return len(self._arrays) - 1

    def keep(self, storages: Iterable[int], index: int) -> None:
        """Extend the live ranges of storages to the end of a node's run."""
        for storage in storages:
            start, end = self._spans[storage]
            self._spans[storage] = start, max(end, index)

    def plan(self) -> WorkspacePlan:
        """Return the plan of all storages."""
        sizes = [product(shape) * dtype.itemsize for shape, dtype in self._arrays]
        static = {n: Interval(size, *self._spans[n]) for n, size in enumerate(sizes) if isinstance(size, int)}
        symbolic = {n: SymbolicInterval(size, *self._spans[n]) for n, size in enumerate(sizes) if n not in static}
        offsets, total = plan_once(tuple(static.values()), _ALIGNMENT)
        storages, parts = plan_symbolic(tuple(symbolic.values()))
        locations = {n: (0, offset) for n, offset in zip(static, offsets, strict=True)}
        locations |= {n: (1 + part, 0) for n, part in zip(symbolic, storages, strict=True)}
        return WorkspacePlan(
            tuple(_PlannedArray(*array, *locations[n]) for n, array in enumerate(self._arrays)), (total, *parts)
        )
