"""Products of integers, which wrap around as numpy's do: row by row, whatever the strides."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.kernels.product_geometry import Product

__all__ = ["write_integer_product"]

_COLUMNS, _STEP_PS = 64, 200
"""Columns whose sums are held at a time, and estimated picoseconds of one product and sum."""


def write_integer_product(kernel: Kernel, p: Product) -> None:
    """Write the kernel of a product of integers and of what follows it elementwise."""
    # Unsigned sums may wrap; narrow ones are those of wider numbers, cut.
    wide, own, zero = c.CType("uint64" if dtype_info(p.dtype).itemsize == 8 else "uint32"), c.CType(p.dtype), c.Size(0)
    item, m0, n0, n_count, k, j = map(c.Variable, ("item", "m0", "n0", "n_count", "k", "j"))
    position, indices = p.position(item // p.num_rows)
    left, right = c.Buffer("left", p.dtype), c.Buffer("right", p.dtype)
    totals, sums = (
        c.Buffer(name, type_.dtype, c.MemoryAccess.WRITE, _COLUMNS) for name, type_ in (("totals", wide), ("sums", own))
    )
    factor, column = c.Variable("factor", wide), c.Variable("j")
    other = c.Cast(right[k * p.right.row_step + (n0 + j) * p.right.column_step], wide)
    add = c.Store(totals, j, element_sum(totals[j], element_product(factor, other)))
    step = (c.Let(factor, c.Cast(left[k * p.left.column_step], wide)), c.For(j, zero, n_count, (add,)))
    tile = SumsTile(sums, 0, m0, c.Size(1), n0, n_count, _COLUMNS, indices, p.has_columns)
    columns = (
        c.Let(n_count, c.index_min(c.Size(_COLUMNS), c.Size(p.num_columns) - n0)),
        *(c.LocalArray(totals, is_zeroed=True), c.LocalArray(sums)),
        *loops_around(step, (k,), (p.depth,)),
        *loops_around((c.Store(sums, column, c.Cast(totals[column], own)),), (column,), (_COLUMNS,)),
        *epilogue(kernel, tile),
    )
    x, y = kernel.source(p.left.value, "x"), kernel.source(p.right.value, "y")
    body = (
        *(c.Let(m0, item % p.num_rows), *position),
        c.Alias(left, x, p.left.place(p.batch, indices) + m0 * p.left.row_step),
        c.Alias(right, y, p.right.place(p.batch, indices)),
        c.For(n0, zero, c.Size(p.num_columns), columns, step=_COLUMNS),
    )
    count, round_ps = product(p.batch) * p.num_rows, p.num_columns * p.depth * _STEP_PS
    kernel.finish_block(loops_around(body, (item,), (count,), part=0, round_ps=round_ps))
