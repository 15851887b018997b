"""Derivations of constants: numpy transforms a constant before a program reads it, if oneDNN needs another form.

Derivations are compared: equal derivations of a constant share memory within a plan, and packed constants are shared
within the process (:mod:`byoc_dnnl.weights`). Fields have to determine the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = ["PANEL_COLUMNS", "BlockSums", "Derivation", "ParameterPanels", "Reordered", "ShiftedRows", "WeightPanels"]

PANEL_COLUMNS = 32
"""Columns of a panel of packed weights; the extension reads the same number (``csrc/weights.c``)."""


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


@dataclass(frozen=True, slots=True)
class WeightPanels:
    """Integers of 4 or 8 bits packed in words, in the order of reading by the extension.

    The numbers of a column of a block fill the bits of words, lowest bits first; each block begins with a new word.
    Columns beyond the last are 0.

    Attributes:
        sizes: the sizes of the matrix of weights.
        depth_axis: the axis along the sums of a product, 0 or 1.
        num_bits: the bits of a weight, 4 or 8.
        centre: subtracted from each weight: half of the range of numbers without a sign, else 0.
        block_size: steps of a block; the last block may be shorter.
    """

    sizes: tuple[int, int]
    depth_axis: int
    num_bits: int
    centre: int
    block_size: int

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of the result, int32: panels, blocks, words of a block, columns of a panel."""
        depth, columns = self.sizes[self.depth_axis], self.sizes[1 - self.depth_axis]
        per_word = 32 // self.num_bits
        return (
            -(-columns // PANEL_COLUMNS),
            -(-depth // self.block_size),
            -(-self.block_size // per_word),
            PANEL_COLUMNS,
        )

    def apply(self, array: NDArray) -> NDArray:
        """Return a new array of four axes."""
        panels, blocks, words, width = self.result_sizes
        numbers = np.moveaxis(array.reshape(self.sizes), self.depth_axis, 0).astype(np.int16) - self.centre
        (depth, columns), per_word = numbers.shape, 32 // self.num_bits
        filled = np.zeros((blocks * self.block_size, panels * width), np.uint8)
        filled[:depth, :columns] = numbers.astype(np.int8).view(np.uint8) & (2**self.num_bits - 1)
        steps = np.zeros((blocks, words * per_word, panels * width), np.uint8)
        steps[:, : self.block_size] = filled.reshape(blocks, self.block_size, -1)
        result = np.zeros((blocks, words, panels * width), np.uint32)
        for step in range(per_word):
            result |= steps[:, step::per_word].astype(np.uint32) << np.uint32(step * self.num_bits)
        in_panels = result.reshape(blocks, words, panels, width).transpose(2, 0, 1, 3)
        return np.ascontiguousarray(in_panels).view(np.int32)


@dataclass(frozen=True, slots=True)
class ParameterPanels:
    """The scales or zero points of blocks of weights, in the order of reading by the extension.

    Attributes:
        sizes: the sizes of the constant: of a matrix with blocks in place of steps, or of a value for each column, or
            none for a single value.
        depth_axis: the axis of the blocks, 0 or 1.
        columns: the columns of the matrix of weights.
        centre: subtracted from each zero point, as from each weight.
    """

    sizes: tuple[int, ...]
    depth_axis: int
    columns: int
    centre: int = 0

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """The sizes of the result: panels, blocks, columns of a panel."""
        blocks = self.sizes[self.depth_axis] if len(self.sizes) == 2 else 1
        return -(-self.columns // PANEL_COLUMNS), blocks, PANEL_COLUMNS

    def apply(self, array: NDArray) -> NDArray:
        """Return a new array of three axes: float32, or int8 for zero points; 0 beyond the last column."""
        panels, blocks, width = self.result_sizes
        values = np.moveaxis(array.reshape(self.sizes), self.depth_axis, 0) if len(self.sizes) == 2 else array
        is_scale = values.dtype == np.float32
        filled = np.zeros((blocks, panels * width), np.float32 if is_scale else np.int8)
        filled[:, : self.columns] = values if is_scale else values.astype(np.int16) - self.centre
        return np.ascontiguousarray(filled.reshape(blocks, panels, width).transpose(1, 0, 2))


Derivation = BlockSums | ParameterPanels | Reordered | ShiftedRows | WeightPanels
"""A derivation of a constant, with the sizes of the constant as read and the sizes of the result."""
