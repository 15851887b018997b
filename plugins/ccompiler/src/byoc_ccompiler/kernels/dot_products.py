"""Products whose operands both run along the sums: tiles of dot products, nothing rearranged.

For few rows, or one or two columns: each element of the larger operand is read once, in the order in which it lies.
"""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_suffix, c_type
from byoc_core.dims import Dim, product

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.declarations import declared
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, dot_tile
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["prefers_dots", "write_dot_product"]

_FEW_ROWS, _FEW_COLUMNS = 8, 2
_ROWS, _COLUMNS = 64, 64
"""Rows and columns of the result that are summed up before what follows is computed."""


def prefers_dots(p: Product) -> bool:
    """Tells whether a product is computed best as dot products: both operands lie along the sums, and one is small."""
    if p.right.row_step != 1 or p.left.column_step != 1:
        return False
    if p.known_columns is not None and p.known_columns <= _FEW_COLUMNS:
        return True
    return p.weights is None and p.known_rows is not None and p.known_rows <= _FEW_ROWS


def write_dot_product(kernel: Kernel, p: Product) -> None:
    """Writes the kernel of such a product of floats and of what follows it elementwise."""
    ctype = c_type(p.dtype)
    left, right = kernel.input(p.left.value, "x"), kernel.input(p.right.value, "y")
    rows, columns = (_bound(size, limit) for size, limit in ((p.num_rows, _ROWS), (p.num_columns, _COLUMNS)))
    across, down = (p.num_columns + (columns - 1)) // columns, (p.num_rows + (rows - 1)) // rows
    places = []
    for pointer, matrix, first, step in (
        (left, p.left, "m0", p.left.row_step),
        (right, p.right, "n0", p.right.column_step),
    ):
        offset = [matrix.offset(p.batch, p.indices), "" if step == 0 else f"{first} * {c_dim(step)}"]
        places.append(" + ".join([pointer, *(term for term in offset if term)]))
    steps = f"{c_dim(p.left.row_step)}, {places[1]}, {c_dim(p.right.column_step)}, {c_dim(p.depth)}"
    names = ("sums", str(columns), "m0", "m_count", "n0", "n_count")
    tile = TextTile(*names, columns, p.indices, has_columns=p.has_columns)
    body = [
        f"    {ctype} sums[{rows * columns}];",
        f"    {_dots_function(kernel, p)}({places[0]}, {steps}, m_count, n_count, sums, {columns});",
        *epilogue_lines(kernel, tile, "    "),
    ]
    integer = "const int64_t"
    variables = [
        (f"{integer} n0", f"item % {c_dim(across)} * {columns}"),
        (f"{integer} n_count", f"byoc_min({columns}, {c_dim(p.num_columns)} - n0)"),
        (f"{integer} m0", f"item / {c_dim(across)} % {c_dim(down)} * {rows}"),
        (f"{integer} m_count", f"byoc_min({rows}, {c_dim(p.num_rows)} - m0)"),
        (f"{integer} b", f"item / {c_dim(across * down)}"),
        *p.positions,
    ]
    head = f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{"
    item_ps = rows * columns * p.depth * multiply_add_ps(kernel.unit, p.dtype)
    loop = (head, *declared(variables, body, "    "), "  }")
    kernel.finish([ParallelLoop(loop, product(p.batch) * across * down, item_ps)])


def _bound(size: Dim, limit: int) -> int:
    return max(1, min(size, limit)) if isinstance(size, int) else limit


def _dots_function(kernel: Kernel, p: Product) -> str:
    """Gives the name of a function of any number of rows and columns, which sums up long products in parts."""
    unit, ctype, suffix = kernel.unit, c_type(p.dtype), c_suffix(p.dtype)
    side = 4 if unit.registers >= 32 else 2
    rows = _bound(p.num_rows, side)
    columns = _bound(p.num_columns, 8 if rows == 1 else side)
    rows = _bound(p.num_rows, 8) if columns == 1 else rows
    shapes = [(r, c) for r in dict.fromkeys((rows, 1)) for c in dict.fromkeys((columns, 1))]
    names = {(r, c): kernel.helper(f"dot_{suffix}_{r}x{c}", dot_tile("{name}", unit, p.dtype, r, c)) for r, c in shapes}

    def call(r: int, c: int) -> str:
        source = "x + m * x_step + begin, x_step, w + n * w_step + begin, w_step"
        return f"{names[r, c]}({source}, end - begin, sums + m * pitch + n, pitch, begin > 0);"

    # Where the rest begins is computed from the count, so that a compiler sees where there is none.
    def across(r: int) -> list[str]:
        loops = [f"      for (int64_t n = 0; n + {columns} <= num_columns; n += {columns}) {call(r, columns)}"]
        if columns > 1:
            loops.append(
                f"      for (int64_t n = num_columns / {columns} * {columns}; n < num_columns; ++n) {call(r, 1)}"
            )
        return loops

    rest = [f"    for (int64_t m = num_rows / {rows} * {rows}; m < num_rows; ++m) {{", *across(1), "    }"]
    chunk = DEPTH_CHUNK * unit.lanes(p.dtype)
    lines = [
        f"static void {{name}}(const {ctype} *x, int64_t x_step, const {ctype} *w, int64_t w_step, int64_t depth,",
        f"    int64_t num_rows, int64_t num_columns, {ctype} *restrict sums, int64_t pitch) {{",
        "  int64_t begin = 0;",
        "  do {",
        f"    const int64_t end = depth - begin > {chunk} ? begin + {chunk} : depth;",
        f"    for (int64_t m = 0; m + {rows} <= num_rows; m += {rows}) {{",
        *across(rows),
        "    }",
        *(rest if rows > 1 else []),
        "    begin = end;",
        "  } while (begin < depth);",
        "}",
    ]
    return kernel.helper(f"dots_{suffix}_{rows}x{columns}", "\n".join(lines))
