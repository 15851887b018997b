"""Products of integers, which wrap around as numpy's do: row by row, whatever the strides."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.declarations import declared
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.product_geometry import Product

__all__ = ["write_integer_product"]

_COLUMNS = 64
_STEP_PS = 200
"""Estimated picoseconds of one product and sum."""


def write_integer_product(kernel: Kernel, p: Product) -> None:
    """Writes the kernel of a product of integers and of what follows it elementwise."""
    ctype = c_type(p.dtype)
    # Unsigned sums may wrap; narrow ones are those of wider numbers, cut.
    wide = "uint64_t" if dtype_info(p.dtype).itemsize == 8 else "uint32_t"
    left, right = kernel.input(p.left.value, "x"), kernel.input(p.right.value, "y")
    row = f"m0 * {c_dim(p.left.row_step)}" if p.left.row_step != 0 else ""
    first = " + ".join(term for term in (left, p.left.offset(p.batch, p.indices), row) if term)
    matrix = " + ".join(term for term in (right, p.right.offset(p.batch, p.indices)) if term)
    place = f"k * {c_dim(p.right.row_step)} + (n0 + j) * {c_dim(p.right.column_step)}"
    tile = TextTile("sums", "0", "m0", "1", "n0", "n_count", _COLUMNS, p.indices, has_columns=p.has_columns)
    body = [
        f"    const {ctype} *left = {first};",
        f"    const {ctype} *right = {matrix};",
        f"    for (int64_t n0 = 0; n0 < {c_dim(p.num_columns)}; n0 += {_COLUMNS}) {{",
        f"      const int64_t n_count = byoc_min({_COLUMNS}, {c_dim(p.num_columns)} - n0);",
        f"      {wide} totals[{_COLUMNS}] = {{0}};",
        f"      {ctype} sums[{_COLUMNS}];",
        f"      for (int64_t k = 0; k < {c_dim(p.depth)}; ++k) {{",
        f"        const {wide} factor = ({wide})left[k * {c_dim(p.left.column_step)}];",
        f"        for (int64_t j = 0; j < n_count; ++j) totals[j] += factor * ({wide})right[{place}];",
        "      }",
        f"      for (int64_t j = 0; j < {_COLUMNS}; ++j) sums[j] = ({ctype})totals[j];",
        *epilogue_lines(kernel, tile, "      "),
        "    }",
    ]
    integer = "const int64_t"
    variables = [
        (f"{integer} m0", f"item % {c_dim(p.num_rows)}"),
        (f"{integer} b", f"item / {c_dim(p.num_rows)}"),
        *p.positions,
    ]
    head = f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{"
    lines = [head, *declared(variables, body, "    "), "  }"]
    count = product(p.batch) * p.num_rows
    kernel.finish([ParallelLoop(tuple(lines), count, p.num_columns * p.depth * _STEP_PS)])
