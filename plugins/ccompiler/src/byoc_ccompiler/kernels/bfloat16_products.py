"""Matrix products of operands rounded to bfloat16; constant ones are rounded and packed when code is generated."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.dims import product
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_blocks import DEPTH
from byoc_ccompiler.kernels.bfloat16_loops import LOCALS, VARIABLES, BlockedRows, count_steps, panel_columns
from byoc_ccompiler.kernels.epilogue_text import TextTile
from byoc_ccompiler.kernels.product_geometry import Product

__all__ = ["is_suited", "pack_panels", "write"]

_FEW_ROWS = 16
"""Up to so many rows it does not pay to round and to rearrange a matrix that is no constant."""

_PACK_PS = 400
"""Estimated picoseconds to round and to move one number."""


def is_suited(kernel: Kernel, p: Product) -> bool:
    """Tells whether the option permits it and it pays: operands that are read once are not rounded first."""
    if kernel.options.precision != "bfloat16" or p.dtype != "float32" or p.depth == 0:
        return False
    return p.weights is not None or p.known_rows is None or p.known_rows > _FEW_ROWS


def pack_panels(matrix: NDArray, width: int) -> NDArray:
    """Gives a matrix, rounded to bfloat16, as the panels of :mod:`~byoc_ccompiler.kernels.bfloat16_blocks`.

    Args:
        matrix: runs x depth x columns; each run of factors begins with a step of its own.
        width: columns of a panel.

    Returns:
        The bits: panels x runs x steps x (columns / 16) x pairs x 16 x 2.
    """
    runs, depth, columns = matrix.shape
    steps, panels = int(str(count_steps(depth))), -(-columns // width)
    with np.errstate(over="ignore"):
        rounded = matrix.astype(to_numpy("bfloat16")).view(np.uint16)
    padded = np.zeros((runs, steps * DEPTH, panels * width), np.uint16)
    padded[:, :depth, :columns] = rounded
    apart = padded.reshape(runs, steps, DEPTH // 2, 2, panels, width // 16, 16)
    return np.ascontiguousarray(apart.transpose(4, 0, 1, 5, 2, 6, 3))


def write(kernel: Kernel, p: Product) -> None:
    """Writes the kernel of a product of float32 operands and of what follows it elementwise."""
    kernel.names.reserve([*LOCALS, "left", "right", "b", "row", "m0", "m_count", "n0", "n_count", "sums", *p.indices])
    rows = BlockedRows(kernel, p.num_rows, p.num_columns, count_steps(p.depth), panel_columns(p.num_columns))
    left = kernel.input(p.left.value, "x")
    kernel.scratch, kernel.scratch_dtype = rows.scratch, "uint16"
    body: list[str | ParallelLoop] = [f"  const int tiles = {rows.blocks.permit}();"]
    if not rows.is_near:
        body.append("  uint16_t *rounded = scratch;")
    pointers = [f"  const float *left = {_at(left, p.left.offset(p.batch, p.indices))};"]
    packing: list[str | ParallelLoop] = []
    if p.weights is not None:
        right = kernel.input(kernel.scope.constants.derive(_weights(kernel, p, rows.width)), "weights")
        body.append(f"  const uint16_t *panels = {right};")
    else:
        right = kernel.input(p.right.value, "y")
        body.append(f"  uint16_t *panels = scratch + {c_dim(kernel.scratch)};")
        kernel.scratch = kernel.scratch + rows.panels * rows.panel_size
        pointers.append(f"  const float *right = {_at(right, p.right.offset(p.batch, p.indices))};")
        packing = [_pack_loop(rows, p)]
    names = ("sums", str(rows.width), "m0", "m_count", "n0", "n_count")
    tile = TextTile(*names, rows.width, p.indices, has_columns=p.has_columns)
    step, depth = c_dim(p.left.row_step), c_dim(p.depth)
    round_lines = [
        "for (int64_t row = 0; row < m_count; ++row) {",
        f"  {rows.blocks.round}(left + (m0 + row) * {step}, {depth}, to + row * {DEPTH});",
        "}",
    ]
    lines = [*pointers, *packing, *rows.lines([], round_lines, tile)]
    if p.batch:
        positions = [f"  {declaration} = {value};" for declaration, value in p.positions]
        head = f"  for (int64_t b = 0; b < {c_dim(product(p.batch))}; ++b) {{"
        lines = [head, *positions, *lines, "  }"]
    indices = [f"int64_t {index}" for index in p.indices]
    kernel.finish([*body, *lines], variables=[*VARIABLES, "const float *left", "const float *right", *indices])


def _at(pointer: str, offset: str) -> str:
    return f"{pointer} + {offset}" if offset else pointer


def _weights(kernel: Kernel, p: Product, width: int) -> NDArray:
    assert p.weights is not None
    array = kernel.scope.constants.array(p.weights, kernel.scope.where)
    depth, columns = int(str(p.depth)), int(str(p.num_columns))
    matrix = array.reshape(columns, depth).T if p.is_transposed else array.reshape(depth, columns)
    return pack_panels(matrix[np.newaxis], width)


def _pack_loop(rows: BlockedRows, p: Product) -> ParallelLoop:
    """Gives the loop that rounds and rearranges the matrix on the right."""
    columns = c_dim(p.right.column_step)
    to = f"(uint32_t *)(panels + item * {c_dim(rows.panel_size)})"
    source = f"right + n0 * {columns}, {c_dim(p.right.row_step)}, {columns}, {c_dim(p.depth)}"
    lines = (
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"    const int64_t n0 = item * {rows.width};",
        f"    {rows.blocks.pack}({source}, {c_dim(p.num_columns)} - n0, {to});",
        "  }",
    )
    return ParallelLoop(lines, rows.panels, rows.panel_size * _PACK_PS)
