"""Planned memory of a graph function: which parts of its workspace its values lie in, and its kernels' scratch memory.

Storages are collected while the function is planned, each for one array; they share memory where they are not needed at
once. Those of known sizes have offsets in one part, those of symbolic sizes parts of their own.
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

_LEAST_NBYTES = 4096
"""What is smaller is left to numpy, which has such memory at hand in less time than a view of other memory takes."""


class PlacedArray(NamedTuple):
    """An array for the sizes of a call: what makes it from the workspace."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    def within(self, workspace: NDArray) -> NDArray:
        """Gives the array."""
        return np.ndarray(self.shape, self.dtype, workspace, self.offset)


@dataclass(frozen=True, slots=True)
class _PlannedArray:
    """An array, the part of the workspace it lies in, and its offset there."""

    shape: tuple[Dim, ...]
    dtype: np.dtype[Any]
    part: int
    offset: int


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """Where the arrays of a function lie.

    Attributes:
        arrays: in the order in which their storages were collected.
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
        """Whether sizes depend on those of a call."""
        return any(not isinstance(part, int) for part in self.parts)

    def place(self, sizes: Mapping[str, int]) -> tuple[PlacedArray | None, ...]:
        """Gives each array for the sizes of a call; ``None`` for one that is too small to be worth it.

        None is placed where sizes do not fit one another: the op that cannot take them says so when it runs.
        """
        try:
            return self._place(sizes)
        except IRTypeError:
            return (None,) * len(self.arrays)

    def _place(self, sizes: Mapping[str, int]) -> tuple[PlacedArray | None, ...]:
        starts, end = [], 0
        for part in self.parts:
            starts.append(end)
            end += max(0, -(-evaluate(part, sizes) // _ALIGNMENT) * _ALIGNMENT)
        placed: list[PlacedArray | None] = []
        for array in self.arrays:
            shape = tuple([evaluate(dim, sizes) for dim in array.shape])
            is_worth_it = min(shape) >= 0 and math.prod(shape) * array.dtype.itemsize >= _LEAST_NBYTES
            offset = starts[array.part] + array.offset
            placed.append(PlacedArray(shape, array.dtype, offset) if is_worth_it else None)
        return tuple(placed)


class Storages:
    """The storages of a function while it is planned.

    Args:
        symbols: those whose sizes are known when the function is called.
    """

    def __init__(self, symbols: frozenset[str]) -> None:
        self._symbols = symbols
        self._arrays: list[tuple[tuple[Dim, ...], np.dtype[Any]]] = []
        self._spans: list[tuple[int, int]] = []

    def add(self, shape: Sequence[Dim], dtype: np.dtype[Any], index: int) -> int | None:
        """Gives the number of a new storage that is needed from a node on; ``None`` where there is no use in one."""
        nbytes = product(shape) * dtype.itemsize
        if (isinstance(nbytes, int) and nbytes < _LEAST_NBYTES) or not shape_symbols(shape) <= self._symbols:
            return None
        self._arrays.append((tuple(shape), dtype))
        self._spans.append((index, index))
        return len(self._arrays) - 1

    def keep(self, storages: Iterable[int], index: int) -> None:
        """Makes storages last until a node has run."""
        for storage in storages:
            start, end = self._spans[storage]
            self._spans[storage] = start, max(end, index)

    def plan(self) -> WorkspacePlan:
        """Gives the plan of all storages."""
        sizes = [product(shape) * dtype.itemsize for shape, dtype in self._arrays]
        known = {n: Interval(size, *self._spans[n]) for n, size in enumerate(sizes) if isinstance(size, int)}
        unknown = {n: SymbolicInterval(size, *self._spans[n]) for n, size in enumerate(sizes) if n not in known}
        offsets, total = plan_once(tuple(known.values()), _ALIGNMENT)
        chosen, parts = plan_symbolic(tuple(unknown.values()))
        places = {n: (0, offset) for n, offset in zip(known, offsets, strict=True)}
        places |= {n: (1 + part, 0) for n, part in zip(unknown, chosen, strict=True)}
        return WorkspacePlan(
            tuple(_PlannedArray(*array, *places[n]) for n, array in enumerate(self._arrays)), (total, *parts)
        )
