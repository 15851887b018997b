"""Derivations of constants: numpy transforms a constant before a program reads it, if oneDNN needs another form.

Derivations are compared: equal derivations of a constant share memory within a plan, and packed constants are shared
within the process (:mod:`byoc_dnnl.weights`). Fields have to determine the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = ["BlockSums", "Derivation", "Reordered", "ShiftedRows"]


@dataclass(frozen=True, slots=True)
class BlockSums:
    """The blocks of a constant in another order, or sums of blocks.

    Attributes:
        sizes: the sizes of the constant as three axes; the second axis counts the blocks.
        sums: for each block of the result, the numbers of the added blocks.
    """

    sizes: tuple[int, int, int]
    sums: tuple[tuple[int, ...], ...]

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of the result; the second axis has as many blocks as ``sums`` has entries."""
        first, _, last = self.sizes
        return first, len(self.sums), last

    def apply(self, array: NDArray) -> NDArray:
        """Return a new array of three axes."""
        blocks = array.reshape(self.sizes)
        result = np.empty(self.result_sizes, array.dtype)
        with np.errstate(all="ignore"):
            for index, numbers in enumerate(self.sums):
                np.sum(blocks[:, list(numbers)], axis=1, out=result[:, index])
        return result


@dataclass(frozen=True, slots=True)
class ShiftedRows:
    """Copies of the rows of a constant, each shifted further than the copy before, with zeros around the rows.

    Attributes:
        sizes: the sizes of the constant as two axes; the second axis counts the elements of a row.
        count: the number of copies.
        step: the shift of each copy relative to the copy before, in elements.
    """

    sizes: tuple[int, int]
    count: int
    step: int

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of the result: copies, rows, elements."""
        rows, length = self.sizes
        return self.count, rows, length + (self.count - 1) * self.step

    def apply(self, array: NDArray) -> NDArray:
        """Return a new array of three axes."""
        rows = array.reshape(self.sizes)
        result = np.zeros(self.result_sizes, array.dtype)
        for number, copy in enumerate(result):
            start = number * self.step
            copy[:, start : start + rows.shape[1]] = rows
        return result


@dataclass(frozen=True, slots=True)
class Reordered:
    """The elements of a constant with permuted axes.

    Attributes:
        sizes: the sizes of the constant.
        order: for each axis of the result, the axis of the constant.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of the result."""
        return tuple(self.sizes[axis] for axis in self.order)

    def apply(self, array: NDArray) -> NDArray:
        """Return a new array."""
        return array.reshape(self.sizes).transpose(self.order).copy()


Derivation = BlockSums | Reordered | ShiftedRows
"""A derivation of a constant, with the sizes of the constant as read and the sizes of the result."""
