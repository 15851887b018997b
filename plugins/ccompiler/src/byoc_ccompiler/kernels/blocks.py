"""Blocks of rows times a panel of columns: C functions that all products of a source share.

A panel holds the columns that a register tile computes at a time: those of one step of the sums lie side by side, and
the steps follow one another. So a tile reads it front to back, whatever the matrix it was made of.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.tiles import multiply
from byoc_ccompiler.kernels.transposes import turn_function
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["block_function", "pack_function", "packed_panels", "panel_vectors"]

_ZERO = c.Size(0)


def panel_vectors(unit: VectorUnit, dtype: str, columns: Dim) -> tuple[int, int]:
    """Return the vectors in a row of a panel, and those of the last one where it is known to have fewer."""
    if not isinstance(columns, int):
        return unit.panel_vectors, 0
    needed = max(1, -(-columns // unit.lanes(dtype)))
    vectors = min(unit.panel_vectors, needed)
    return vectors, needed % vectors


def block_function(kernel: Kernel, dtype: str, vectors: int, num_rows: Collection[int], *, strided: bool) -> c.Callee:
    """Return a function that multiplies rows by a panel of ``vectors * lanes`` columns.

    C signature: ``(a, a_row_step, panel, [panel_step,] depth, num_rows, sums, pitch, adds, ahead, ahead_rows)``. It
    sets ``sums[j * pitch + n]``, or adds to it where ``adds`` is true. Meanwhile it fetches the memory ``ahead``
    elements behind the panel's beginning into the cache, as much as the panel takes over ``ahead_rows`` rows; 0: none.
    It is called with one of so many rows, with any number where there is none. The steps of a strided panel lie
    ``panel_step`` elements apart.
    """
    width, rows = vectors * kernel.unit.lanes(dtype), kernel.unit.panel_rows(vectors)
    counts = {count for number in num_rows for count in (number % rows, rows if number >= rows else 0)} - {0}
    counts = counts or set(range(1, rows + 1))
    a, panel = c.Buffer("a", dtype), c.Buffer("panel", dtype)
    sums, adds = c.Buffer("sums", dtype, c.MemoryAccess.WRITE), c.Variable("adds", c.BOOL)
    names = ("a_row_step", "panel_step", "depth", "num_rows", "pitch", "ahead", "ahead_rows", "whole", "row")
    a_row_step, panel_step, depth, given, pitch, ahead, ahead_rows, whole, row = map(c.Variable, names)

    def shared(size: c.Expression) -> c.Expression:
        return c.Select(ahead_rows.compare(">", 0), size // ahead_rows, _ZERO)

    def of_rows(count: int, first: c.Expression) -> c.Statement:
        left, panel_at = (c.Address(a, first * a_row_step), a_row_step), c.Address(panel, _ZERO)
        fetched = (panel_at, ahead + first * shared(depth * width), shared(c.Size(count * width) + ahead_rows))
        operands = ((count, vectors), left, panel_at, depth, c.Address(sums, first * pitch))
        step = panel_step if strided else None
        return multiply(kernel, *operands, pitch=pitch, adds=adds, ahead=fetched, panel_step=step)

    body = (
        c.Let(whole, given // rows * rows),
        *((c.For(row, _ZERO, whole, (of_rows(rows, row),), step=rows),) if rows in counts else ()),
        *(
            c.If((given - whole).compare("==", count), (of_rows(count, whole),))
            for count in sorted(counts - {rows}, reverse=True)
        ),
    )
    source = (panel_step, depth) if strided else (depth,)
    parameters = (a, a_row_step, panel, *source, given, sums, pitch, adds, ahead, ahead_rows)
    name = f"rows_{'strided_' if strided else ''}{c_suffix(dtype)}_{width}"
    return kernel.shared_function(c.Function(name, parameters, body))


def pack_function(kernel: Kernel, dtype: str, width: int) -> c.Callee:
    """Return a function that copies columns of a matrix into a panel of ``width``, zeros behind them.

    C signature: ``(from, row_step, column_step, depth, num_columns, panel)``.
    """
    lanes, turn = kernel.unit.lanes(dtype), kernel.shared_function(turn_function(kernel.unit, dtype))
    from_, panel = c.Buffer("from", dtype), c.Buffer("panel", dtype, c.MemoryAccess.WRITE)
    names = ("row_step", "column_step", "depth", "num_columns", "n", "j", "turned")
    row_step, column_step, depth, num_columns, n, j, turned = map(c.Variable, names)
    row, k, rest = c.Variable("k"), c.Variable("k"), c.Variable("k")
    copy = c.Copy(panel, row * width, from_, row * row_step, c.Size(width))
    is_whole = c.Binary("&&", column_step.compare("==", 1), num_columns.compare("==", width))
    turns = c.Binary("&&", row_step.compare("==", 1), (n + lanes).compare("<=", num_columns))
    square = (c.Address(from_, n * column_step + k), column_step, c.Address(panel, k * width + n), c.Size(width))
    element = from_[rest * row_step + j * column_step]
    padded = c.Select(j.compare("<", num_columns), element, c.Literal(0, element.type))
    columns = (
        c.Let(turned, c.Select(turns, depth // lanes * lanes, _ZERO)),
        c.For(k, _ZERO, turned, (c.Evaluate(c.Call(turn, square)),), step=lanes),
        c.For(rest, turned, depth, (c.For(j, n, n + lanes, (c.Store(panel, rest * width + j, padded),)),)),
    )
    body = (
        c.If(is_whole, (c.For(row, _ZERO, depth, (copy,)), c.Return())),
        c.For(n, _ZERO, c.Size(width), columns, step=lanes),
    )
    parameters = (from_, row_step, column_step, depth, num_columns, panel)
    return kernel.shared_function(c.Function(f"pack_{c_suffix(dtype)}_{width}", parameters, body))


def packed_panels(matrix: NDArray, width: int, lanes: int) -> NDArray:
    """Return a matrix ``(depth, columns)`` in panels, one after another; zeros fill the last one up to a vector."""
    steps = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % lanes)))
    panels = [steps[:, n : n + width].reshape(-1) for n in range(0, steps.shape[1], width)]
    return np.concatenate(panels) if panels else np.zeros(0, matrix.dtype)
