"""Products of float32 rows by weights of 4 or 8 bits with scales, with elementwise epilogues.

The weights are packed during code generation, panel by panel, in the order of reading. A product of few rows takes as
long as reading the weights, so the numbers are unpacked in registers: no weight is ever written. With more rows, a part
of a panel is unpacked into an array in the nearest cache, and multiplied by all rows as a panel of floats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.attributes import int_of
from byoc_ccompiler.family import KernelFamily, rows_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import epilogue
from byoc_ccompiler.kernels.number_words import BlockFormat, pack_blocks
from byoc_ccompiler.kernels.product_schedules import SizedSchedule, even_part
from byoc_ccompiler.kernels.quantised_tiles import ZEROS_IN_WORD, direct_tile, unpack_function
from byoc_ccompiler.kernels.words import Blocks
from byoc_ccompiler.quantised_weights import QUANTISED_DENSE
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "QuantisedSchedule", "choose"]

_DIRECT_ROWS, _UNPACKED_STEPS, _MOST_ROWS = 4, 64, 192
"""Rows with sums in registers beside unpacked numbers; steps of a panel unpacked at a time; rows with sums held."""

_FLOAT = "float32"
_ZERO = c.Size(0)


@dataclass(frozen=True, slots=True)
class QuantisedSchedule(SizedSchedule):
    """The schedule of a product by weights with scales.

    Attributes:
        vectors: vectors in a row of a panel; columns without vectors.
        direct_rows: maximum number of rows multiplied by numbers in registers; more rows meet unpacked panels.
        chunk: rows with sums held at a time.
        part: steps of a panel unpacked at a time.
    """

    vectors: int
    direct_rows: int
    chunk: int
    part: int


def choose(num_rows: Dim, columns: int, form: BlockFormat, unit: VectorUnit) -> QuantisedSchedule:
    """Return the schedule of a non-empty product."""
    needed = -(-columns // unit.lanes(_FLOAT))
    vectors = -(-needed // -(-needed // unit.panel_vectors)) if unit.has_vectors else unit.panel_vectors
    chunk = _MOST_ROWS
    if isinstance(num_rows, int):
        chunk = even_part(max(1, num_rows), _MOST_ROWS, unit.panel_rows(vectors))
    # Whole blocks, or whole words of a block.
    whole_blocks = max(1, _UNPACKED_STEPS // form.block_size) * form.block_size
    return QuantisedSchedule(vectors, _DIRECT_ROWS, chunk, min(whole_blocks, max(_UNPACKED_STEPS, form.per_word)))


def _in_panels(array: NDArray, width: int) -> NDArray:
    """Return rows ``(S, N)`` as ``(panels, S, width)``, with zeros beyond the last column."""
    padded = np.pad(array, ((0, 0), (0, -array.shape[1] % width)))
    return np.ascontiguousarray(padded.reshape(len(array), -1, width).transpose(1, 0, 2))


class _Writer:
    """The writer of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        step = kernel.group.steps[0]
        x, *weights = step.operands
        arrays = [self._array(kernel, operand) for operand in weights]
        matrix, scale, zeros = arrays[0], arrays[1], arrays[2:]
        self.kernel = kernel
        self.depth, self.num_columns = matrix.shape
        self.num_rows = product(shape_of(step.result)[:-1])
        self.form = BlockFormat(int_of(step.binding, "num_bits"), int_of(step.binding, "block_size"), bool(zeros))
        self.schedule = choose(self.num_rows, self.num_columns, self.form, kernel.unit)
        kernel.schedule = self.schedule
        self.width = self.schedule.vectors * kernel.unit.lanes(_FLOAT)
        self.num_blocks = len(scale)
        derive = kernel.scope.constants.derive
        self.x = kernel.source(x, "x")
        self.words = kernel.source(derive(pack_blocks(matrix, self.form, self.width)), "weights")
        self.scales = kernel.source(derive(_in_panels(scale, self.width)), "scales")
        zero_form = BlockFormat(32 // ZEROS_IN_WORD, self.num_blocks, has_zeros=False)
        self.zeros = [kernel.source(derive(pack_blocks(array, zero_form, self.width)), "zeros") for array in zeros]

    @staticmethod
    def _array(kernel: Kernel, operand: object) -> NDArray:
        assert isinstance(operand, Constant)
        return kernel.scope.constants.array(operand, kernel.scope.where)

    def write(self) -> None:
        """Write the loop over panels and chunks of rows."""
        blocks = Blocks(self.num_rows, self.num_columns, self.schedule.chunk, self.width)
        item = c.Variable("item")
        sums = c.Buffer("sums", _FLOAT, c.MemoryAccess.WRITE, self.schedule.chunk * self.width)
        body = (
            c.Let(blocks.panel, item % blocks.panels),
            *blocks.lets(item // blocks.panels * self.schedule.chunk, blocks.panel),
            c.LocalArray(sums, alignment=64),
            *self._products(blocks, sums),
            *epilogue(self.kernel, blocks.tile(sums)),
        )
        self.kernel.finish_block(loops_around(body, (item,), (blocks.count * blocks.panels,), part=0))

    def _products(self, blocks: Blocks, sums: c.Buffer) -> c.Block:
        """Return the statements multiplying a chunk of rows by a panel."""
        most = self.schedule.direct_rows
        if not isinstance(self.num_rows, int):
            unpacked = self._unpacked(blocks, sums, ())
            return (c.If(blocks.m_count.compare("<=", most), self._direct(blocks, sums, range(1, most + 1)), unpacked),)
        counts = {self.schedule.chunk, self.num_rows % self.schedule.chunk} - {0}
        if max(counts) <= most:
            return self._direct(blocks, sums, counts)
        return self._unpacked(blocks, sums, counts)

    def _panel(self, blocks: Blocks) -> tuple[c.Expression, list[c.Address]]:
        """Return the offset of the words of a panel, and the addresses of scales and zero points."""
        words = self.num_blocks * self.form.block_words * self.width
        zero_words = -(-self.num_blocks // ZEROS_IN_WORD) * self.width
        scales = c.Address(self.scales, blocks.panel * (self.num_blocks * self.width))
        return blocks.panel * words, [scales, *(c.Address(zeros, blocks.panel * zero_words) for zeros in self.zeros)]

    def _direct(self, blocks: Blocks, sums: c.Buffer, counts: Collection[int]) -> c.Block:
        """Return the product of few rows, with numbers unpacked in registers."""
        first, parameters = self._panel(blocks)
        numbers = sorted(counts)

        def multiply(rows: int) -> c.Block:
            tile = direct_tile(self.kernel.unit, self.form, rows, self.width)
            left = (c.Address(self.x, blocks.m0 * self.depth), c.Size(self.depth))
            target = (c.Size(self.depth), c.Address(sums, _ZERO), c.Size(self.width))
            return (self.kernel.call(tile, *left, c.Address(self.words, first), *parameters, *target),)

        if len(numbers) == 1:
            return multiply(numbers[0])
        return tuple(c.If(blocks.m_count.compare("==", rows), multiply(rows)) for rows in numbers)

    def _unpacked(self, blocks: Blocks, sums: c.Buffer, counts: Collection[int]) -> c.Block:
        """Return the product of more rows, with a part of a panel unpacked at a time."""
        form, width, part = self.form, self.width, self.schedule.part
        first_word, parameters = self._panel(blocks)
        panel = c.Buffer("unpacked", _FLOAT, c.MemoryAccess.WRITE, (part + form.per_word) * width)
        unpack = unpack_function(self.kernel.unit, form, width)
        multiply = block_function(self.kernel, _FLOAT, self.schedule.vectors, counts, strided=False)
        depth, b, k, count, end = c.Size(self.depth), *c.variables("b k count end")

        def unpacked(block: c.Expression, word: c.Expression, steps: c.Expression, to: c.Expression) -> c.Statement:
            words = c.Address(self.words, first_word + (block * form.block_words + word) * width)
            num_words = (steps + (form.per_word - 1)) // form.per_word
            return self.kernel.call(unpack, words, *parameters, block, num_words, c.Address(panel, to))

        def multiplied(begin: c.Expression, steps: c.Expression) -> c.Statement:
            left = (c.Address(self.x, blocks.m0 * self.depth + begin), depth)
            target = (c.Address(sums, _ZERO), c.Size(width), begin.compare(">", 0))
            operands = (c.Address(panel, _ZERO), steps, blocks.m_count)
            return c.Evaluate(c.Call(multiply, (*left, *operands, *target)))

        first = b * form.block_size
        if part >= form.block_size:
            of_block = unpacked(b, _ZERO, c.index_min(c.Size(form.block_size), end - first), (first - k) * width)
            last = (end + (form.block_size - 1)) // form.block_size
            of_part: c.Block = (
                c.Let(end, c.index_min(depth, k + part)),
                c.For(b, k // form.block_size, last, (of_block,)),
                multiplied(k, end - k),
            )
            loop = c.For(k, _ZERO, depth, of_part, step=part)
        else:
            of_part = (
                c.Let(count, c.index_min(c.Size(part), end - k)),
                unpacked(b, (k - first) // form.per_word, count, _ZERO),
                multiplied(k, count),
            )
            parts = c.For(k, first, end, of_part, step=part)
            end_of_block = c.Let(end, c.index_min(depth, first + form.block_size))
            loop = c.For(b, _ZERO, c.Size(self.num_blocks), (end_of_block, parts))
        return (c.LocalArray(panel, alignment=64), loop)


def _write(kernel: Kernel) -> None:
    if 0 in shape_of(kernel.group.steps[0].result):
        kernel.finish_block(())
        return
    _Writer(kernel).write()


FAMILY = KernelFamily(
    frozenset({QUANTISED_DENSE.name}), reject_nothing, _write, takes_epilogue=True, writes=rows_access
)
"""Products by weights with scales, introduced by rewrites of regions."""
