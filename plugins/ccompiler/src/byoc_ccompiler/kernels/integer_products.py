"""Products of integers, which wrap around as numpy's do: row by row, whatever the strides."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.arithmetic import element_product, element_sum
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.product_geometry import Product

__all__ = ["write_integer_product"]

_COLUMNS = 64
_STEP_PS = 200
"""Estimated picoseconds of one product and sum."""

_ZERO = c.Size(0)


def write_integer_product(kernel: Kernel, p: Product) -> None:
    """Writes the kernel of a product of integers and of what follows it elementwise."""
    # Unsigned sums may wrap; narrow ones are those of wider numbers, cut.
    wide, own = c.CType("uint64" if dtype_info(p.dtype).itemsize == 8 else "uint32"), c.CType(p.dtype)
    item, m0, n0, n_count, k, j = map(c.Variable, ("item", "m0", "n0", "n_count", "k", "j"))
    position, indices = p.position(item // p.num_rows)
    left, right = c.Buffer("left", p.dtype), c.Buffer("right", p.dtype)
    totals = c.Buffer("totals", wide.dtype, c.MemoryAccess.WRITE, _COLUMNS)
    sums = c.Buffer("sums", p.dtype, c.MemoryAccess.WRITE, _COLUMNS)
    factor, column = c.Variable("factor", wide), c.Variable("j")
    other = c.Cast(right[k * p.right.row_step + (n0 + j) * p.right.column_step], wide)
    total = element_sum(totals[j], element_product(factor, other))
    step = (
        c.Let(factor, c.Cast(left[k * p.left.column_step], wide)),
        c.For(j, _ZERO, n_count, (c.Store(totals, j, total),)),
    )
    tile = SumsTile(sums, 0, m0, c.Size(1), n0, n_count, _COLUMNS, indices, has_columns=p.has_columns)
    columns = (
        c.Let(n_count, c.index_min(c.Size(_COLUMNS), c.Size(p.num_columns) - n0)),
        c.LocalArray(totals, is_zeroed=True),
        c.LocalArray(sums),
        c.For(k, _ZERO, c.Size(p.depth), step),
        c.For(column, _ZERO, c.Size(_COLUMNS), (c.Store(sums, column, c.Cast(totals[column], own)),)),
        *epilogue(kernel, tile),
    )
    x, y = kernel.source(p.left.value, "x"), kernel.source(p.right.value, "y")
    body = (
        c.Let(m0, item % p.num_rows),
        *position,
        c.Alias(left, x, p.left.place(p.batch, indices) + m0 * p.left.row_step),
        c.Alias(right, y, p.right.place(p.batch, indices)),
        c.For(n0, _ZERO, c.Size(p.num_columns), columns, step=_COLUMNS),
    )
    count, round_ps = c.Size(product(p.batch) * p.num_rows), p.num_columns * p.depth * _STEP_PS
    kernel.finish_block((c.For(item, _ZERO, count, body, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))
