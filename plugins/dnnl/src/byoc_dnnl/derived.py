"""What is made of constants by numpy before a program reads them, where oneDNN would not read them as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = ["BlockSums", "Derivation", "Reordered", "ShiftedRows"]


@dataclass(frozen=True, slots=True)
class BlockSums:
    """The blocks of a constant in another order, or sums of blocks.

    Attributes:
        sizes: the constant's as three axes, of which the second counts the blocks.
        sums: which blocks are added, for each block of the result.
    """

    sizes: tuple[int, int, int]
    sums: tuple[tuple[int, ...], ...]

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of what is made: of the second axis so many blocks."""
        first, _, last = self.sizes
        return first, len(self.sums), last

    def apply(self, array: NDArray) -> NDArray:
        """Gives an array of its own, of three axes."""
        blocks = array.reshape(self.sizes)
        result = np.empty(self.result_sizes, array.dtype)
        with np.errstate(all="ignore"):
            for index, numbers in enumerate(self.sums):
                np.sum(blocks[:, list(numbers)], axis=1, out=result[:, index])
        return result


@dataclass(frozen=True, slots=True)
class ShiftedRows:
    """Copies of the rows of a constant, each shifted further than the one before, with zeros around them.

    Attributes:
        sizes: the constant's as two axes, of which the second counts the elements of a row.
        count: how many copies there are.
        step: how many places a copy lies behind the one before.
    """

    sizes: tuple[int, int]
    count: int
    step: int

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of what is made: copies, rows, places."""
        rows, length = self.sizes
        return self.count, rows, length + (self.count - 1) * self.step

    def apply(self, array: NDArray) -> NDArray:
        """Gives an array of its own, of three axes."""
        rows = array.reshape(self.sizes)
        result = np.zeros(self.result_sizes, array.dtype)
        for number, copy in enumerate(result):
            start = number * self.step
            copy[:, start : start + rows.shape[1]] = rows
        return result


@dataclass(frozen=True, slots=True)
class Reordered:
    """The elements of a constant with its axes in another order.

    Attributes:
        sizes: the constant's.
        order: which of the constant's axes each axis of the result is.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of what is made."""
        return tuple(self.sizes[axis] for axis in self.order)

    def apply(self, array: NDArray) -> NDArray:
        """Gives an array of its own."""
        return array.reshape(self.sizes).transpose(self.order).copy()


Derivation = BlockSums | Reordered | ShiftedRows
"""What can be made: it has the sizes that the constant is seen with, and those of the result."""
