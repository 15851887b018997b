"""Matrix products: ``nn.dense`` as tiles of dot products, ``matmul`` as tiles of outer products.

Constant weights are rearranged when the code is generated. Others are read as they are: in ``x @ w.T`` both operands
run along the sum; in ``x @ y`` the columns of ``y`` lie side by side, and only those left over at the end are copied,
padded with zeros. What follows elementwise is computed when a tile's sums are complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from byoc_core.authoring.csource import FunctionScope
from byoc_core.authoring.csource_loops import align, offset_expression
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim
from byoc_core.backend.info import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, Constant, TensorType, Value

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pointwise import pointwise_lines, store_lines
from byoc_ccompiler.kernels.tiles import dot_tile, outer_tile
from byoc_ccompiler.rejections import operand_shape, reject_non_floats, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit, multiply_add_ps

__all__ = ["FAMILIES"]

# With fewer rows the weights of ``x @ w.T`` are read once anyway, and dot products run along them.
_FEW_ROWS = 4

_LOCALS = (
    "m",
    "m0",
    "n",
    "n0",
    "i",
    "j",
    "k",
    "left",
    "right",
    "panel",
    "from",
    "step",
    "b",
    "item",
    "b0",
    "b1",
    "b2",
    "b3",
    "b4",
)


def _dtype(step: Step) -> str:
    assert isinstance(step.result.type, TensorType)
    return step.result.type.dtype


def _row_tail(num_rows: Dim, rows: int) -> int:
    """Gives how many rows a tile at the end has: what is left over, or one where that is not known."""
    return num_rows % rows if isinstance(num_rows, int) else (1 if rows > 1 else 0)


def _dense_kernel(kernel: Kernel, unit: VectorUnit) -> None:
    """Writes the kernel of ``x @ w.T`` and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    kernel.names.reserve(_LOCALS)
    x, weight = kernel.input(anchor.operands[0], "x"), kernel.input(anchor.operands[1], "weight")
    *lead, depth = shape_of(anchor.operands[0])
    width, num_rows, dtype = shape_of(anchor.operands[1])[0], product(lead), _dtype(anchor)
    side = 4 if unit.registers >= 32 else 3
    rows = min(side, num_rows) if isinstance(num_rows, int) and num_rows else side
    columns = 8 if rows == 1 else side
    columns = min(columns, width) if isinstance(width, int) and width else columns
    row_tail, column_tail = _row_tail(num_rows, rows), _row_tail(width, columns)
    shapes = [(r, c) for r in (rows, row_tail) for c in (columns, column_tail) if r and c]
    helpers = "".join(dot_tile(f"{{name}}_{r}x{c}", unit, dtype, r, c) for r, c in dict.fromkeys(shapes))
    arguments = f"{x} + m0 * {c_dim(depth)}, {weight} + n0 * {c_dim(depth)}, {c_dim(depth)}, sums"
    whole, rest = width // columns, width % columns
    n0, n_count = f"item * {columns}", str(columns)
    if column_tail:
        is_whole = f"item < {c_dim(whole)}"
        n0 = f"{is_whole} ? {n0} : {c_dim(whole * columns)} + (item - {c_dim(whole)}) * {column_tail}"
        n_count = f"{is_whole} ? {columns} : {column_tail}"
    lines = [
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"    const int64_t n0 = {n0}, n_count = {n_count};",
        *_blocks("m", num_rows, rows, row_tail, "    "),
        f"      {kernel.ctype(anchor.result)} sums[{rows * columns}];",
        *_dispatch(shapes, arguments),
        *_epilogue(kernel, rows_before=[], lead=lead, stride="n_count"),
        "    }",
        "  }",
    ]
    # The tail is all that is left where the width is known, and one column otherwise.
    num_blocks = whole + (rest // column_tail if column_tail else 0)
    item_ps = columns * num_rows * depth * multiply_add_ps(unit, dtype)
    kernel.finish([ParallelLoop(tuple(lines), num_blocks, item_ps)], helpers)


def _blocks(name: str, size: Dim, block: int, tail: int, indent: str) -> list[str]:
    """Gives the head of a loop over blocks: ``<name>0`` is where one starts, ``<name>_count`` how many it has."""
    count = f"{name}0 + {block} <= {c_dim(size)} ? {block} : {tail}" if tail else str(block)
    return [
        f"{indent}for (int64_t {name}0 = 0, {name}_count = 0; {name}0 < {c_dim(size)}; {name}0 += {name}_count) {{",
        f"{indent}  {name}_count = {count};",
    ]


def _dispatch(shapes: Sequence[tuple[int, int]], arguments: str) -> list[str]:
    """Gives the call of the tile of the right shape."""
    lines = []
    for index, (rows, columns) in enumerate(shapes):
        condition = "" if index == len(shapes) - 1 else f"if (m_count == {rows} && n_count == {columns}) "
        lines.append(f"      {'else ' if index else ''}{condition}{{name}}_{rows}x{columns}({arguments});")
    return lines


def _epilogue(kernel: Kernel, *, rows_before: Sequence[str], lead: Sequence[Dim], stride: str) -> list[str]:
    """Gives the loops over a tile's sums.

    Args:
        kernel: the kernel.
        rows_before: C indices of the batch axes, outermost.
        lead: the axes that the row index ``m`` runs over.
        stride: elements from row to row of ``sums``.
    """
    anchor, *rest = kernel.group.steps
    space = shape_of(anchor.result)
    indices = (*rows_before, *_unravel("m", lead), "n")

    def position(dims: tuple[Dim, ...]) -> str:
        split = len(rows_before)
        rows, sizes = dims[split:-1], space[split:-1]
        if len(rows) > 1 and (tuple(rows) == tuple(sizes) or all(dim == 1 for dim in rows)):
            merged_dims = (*dims[:split], product(rows), dims[-1])
            merged_space = (*space[:split], product(sizes), space[-1])
            return offset_expression(merged_dims, merged_space, (*rows_before, "m", "n"))
        return offset_expression(dims, space, indices)

    known: dict[Value, str] = {anchor.result: "sum"}
    lines = pointwise_lines(kernel, rest, position, known)
    lines += store_lines(kernel, kernel.stored, position, known)
    words = set(re.findall(r"\w+", " ".join(lines)))
    return [
        "      for (int64_t i = 0; i < m_count; ++i) {",
        *(["        const int64_t m = m0 + i;"] if "m" in words else []),
        "        for (int64_t j = 0; j < n_count; ++j) {",
        *(["          const int64_t n = n0 + j;"] if "n" in words else []),
        f"          const {kernel.ctype(anchor.result)} sum = sums[i * {stride} + j];",
        *(f"          {line}" for line in lines),
        "        }",
        "      }",
    ]


def _unravel(index: str, sizes: Sequence[Dim]) -> list[str]:
    """Gives the position along each axis from a row-major index."""
    expressions = []
    for axis in range(len(sizes)):
        inner = product(sizes[axis + 1 :])
        text = index if inner == 1 else f"{index} / {c_dim(inner)}"
        expressions.append(
            text if axis == 0 and inner == 1 else f"({text})" if axis == 0 else f"({text} % {c_dim(sizes[axis])})"
        )
    return expressions


def _panel_kernel(kernel: Kernel, unit: VectorUnit) -> None:
    """Writes the kernel of a product with constant weights, rearranged here once and for all.

    The weights become panels of as many columns as a tile has, padded with zeros, in which the columns of one step of
    the sum lie side by side and the steps follow one another: what the tile reads, in the order in which it reads.
    """
    anchor = kernel.group.steps[0]
    kernel.names.reserve(_LOCALS)
    x, weights = anchor.operands
    assert isinstance(weights, Constant)
    array = kernel.scope.constants.array(weights, kernel.scope.where)
    matrix = array.T if anchor.op == "nn.dense" else array.reshape(array.shape[-2:])
    depth, width = matrix.shape
    dtype, lead = _dtype(anchor), shape_of(anchor.result)[:-1]
    num_rows = product(lead)
    rows, vectors = unit.outer_shape(num_rows if isinstance(num_rows, int) else None, width, dtype)
    tile = vectors * unit.lanes(dtype)
    panels = np.zeros((-(-width // tile), depth, tile), matrix.dtype)
    for index in range(len(panels)):
        part = matrix[:, index * tile : (index + 1) * tile]
        panels[index, :, : part.shape[1]] = part
    source = kernel.input(x, "x")
    packed = kernel.input(kernel.scope.constants.derive(panels), "weights")
    row_tail = _row_tail(num_rows, rows)
    ctype = kernel.ctype(anchor.result)
    arguments = f"panel, {tile}, {source} + m0 * {depth}, {depth}, {depth}, sums"
    lines = [
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"    const int64_t n0 = item * {tile}, n_count = byoc_min({tile}, {width} - n0);",
        f"    const {ctype} *panel = {packed} + n0 * {depth};",
        *_blocks("m", num_rows, rows, row_tail, "    "),
        f"      {ctype} sums[{rows} * {tile}];",
        *_row_dispatch(rows, row_tail, arguments),
        *_epilogue(kernel, rows_before=[], lead=lead, stride=str(tile)),
        "    }",
        "  }",
    ]
    loop = ParallelLoop(tuple(lines), len(panels), num_rows * depth * tile * multiply_add_ps(unit, dtype))
    kernel.finish([loop], _outer_tiles(unit, dtype, rows, row_tail, vectors))


def _prefers_panels(step: Step) -> bool:
    """Tells whether rearranged weights pay: they are constant, and more than a few rows are multiplied by them."""
    weights = step.operands[1]
    if not isinstance(weights, Constant) or 0 in shape_of(weights):
        return False
    if any(dim != 1 for dim in shape_of(weights)[:-2]):
        return False
    num_rows = product(shape_of(step.result)[:-1])
    return step.op == "matmul" or not isinstance(num_rows, int) or num_rows >= _FEW_ROWS


def _outer_tiles(unit: VectorUnit, dtype: str, rows: int, row_tail: int, vectors: int) -> str:
    counts = [count for count in dict.fromkeys((rows, row_tail)) if count]
    return "".join(outer_tile(f"{{name}}_{count}", unit, dtype, (count, vectors)) for count in counts)


def _row_dispatch(rows: int, row_tail: int, arguments: str) -> list[str]:
    if not row_tail:
        return [f"      {{name}}_{rows}({arguments});"]
    return [
        f"      if (m_count == {rows}) {{name}}_{rows}({arguments});",
        f"      else {{name}}_{row_tail}({arguments});",
    ]


def _matmul_kernel(kernel: Kernel, unit: VectorUnit) -> None:
    """Writes the kernel of a (batched) matrix product and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    kernel.names.reserve(_LOCALS)
    left, right = kernel.input(anchor.operands[0], "x"), kernel.input(anchor.operands[1], "y")
    left_shape, right_shape, space = shape_of(anchor.operands[0]), shape_of(anchor.operands[1]), shape_of(anchor.result)
    depth, width, dtype = left_shape[-1], space[-1], _dtype(anchor)
    # One matrix on the right serves all rows on the left: the batch is only more rows.
    is_flat = all(dim == 1 for dim in right_shape[:-2])
    batch, lead = ((), space[:-1]) if is_flat else (space[:-2], space[-2:-1])
    num_rows = product(lead)
    known_rows = num_rows if isinstance(num_rows, int) and num_rows else None
    rows, vectors = unit.outer_shape(known_rows, width if isinstance(width, int) else None, dtype)
    tile = vectors * unit.lanes(dtype)
    row_tail = _row_tail(num_rows, rows)
    helpers = _outer_tiles(unit, dtype, rows, row_tail, vectors)
    packs = not isinstance(width, int) or width % tile != 0
    if packs:
        kernel.scratch = depth * tile if depth != 0 else tile
    ctype = kernel.ctype(anchor.result)
    indices = [f"b{axis}" for axis in range(len(batch))]
    steps = []
    for matrix_shape, name, matrix in (
        (left_shape, "left", product(left_shape[-2:])),
        (right_shape, "right", product(right_shape[-2:])),
    ):
        dims = align(matrix_shape[:-2], len(batch)) if batch else ()
        offset = offset_expression(dims, batch, indices)
        pointer = left if name == "left" else right
        steps.append(
            f"  const {ctype} *{name} = {pointer}" + ("" if offset == "0" else f" + ({offset}) * {c_dim(matrix)}") + ";"
        )
    source = "from, step, left + m0 * " + f"{c_dim(depth)}, {c_dim(depth)}, {c_dim(depth)}, sums"
    num_tiles = (width + (tile - 1)) // tile
    inner = [
        f"    const int64_t n_count = byoc_min({tile}, {c_dim(width)} - n0);",
        f"    const {ctype} *from = right + n0;",
        f"    int64_t step = {c_dim(width)};",
    ]
    if packs:
        inner += [
            f"    if (n_count < {tile}) {{",
            f"      for (int64_t k = 0; k < {c_dim(depth)}; ++k) {{",
            f"        for (int64_t j = 0; j < {tile}; ++j) {{",
            f"          scratch[k * {tile} + j] = j < n_count ? from[k * step + j] : 0;",
            "        }",
            "      }",
            "      from = scratch;",
            f"      step = {tile};",
            "    }",
        ]
    inner += [
        *_blocks("m", num_rows, rows, row_tail, "    "),
        f"      {ctype} sums[{rows} * {tile}];",
        *_row_dispatch(rows, row_tail, source),
        *_epilogue(kernel, rows_before=indices, lead=lead, stride=str(tile)),
        "    }",
        "  }",
    ]
    item_ps = num_rows * depth * tile * multiply_add_ps(unit, dtype)
    head = f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{"
    if not packs:
        place = [f"    const int64_t n0 = item % {c_dim(num_tiles)} * {tile};"]
        if batch:
            place.append(f"    const int64_t b = item / {c_dim(num_tiles)};")
            axes = zip(indices, _unravel("b", batch), strict=True)
            place += [f"    const int64_t {index} = {expression};" for index, expression in axes]
        lines = [head, *place, *(f"  {line}" for line in steps), *inner]
        kernel.finish([ParallelLoop(tuple(lines), product(batch) * num_tiles, item_ps)], helpers)
        return
    # There is one place for a padded panel, and one item of each matrix needs it.
    loop = ParallelLoop((head, f"    const int64_t n0 = item * {tile};", *inner), num_tiles, item_ps)
    loops = [f"  for (int64_t {i} = 0; {i} < {c_dim(n)}; ++{i}) {{" for i, n in zip(indices, batch, strict=True)]
    variables = [f"const {ctype} *left", f"const {ctype} *right", *(f"int64_t {index}" for index in indices)]
    kernel.finish([*loops, *steps, loop, *("  }" for _ in batch)], helpers, variables=variables)


def _write(kernel: Kernel) -> None:
    step = kernel.group.steps[0]
    if _prefers_panels(step):
        _panel_kernel(kernel, kernel.unit)
    elif step.op == "nn.dense":
        _dense_kernel(kernel, kernel.unit)
    else:
        _matmul_kernel(kernel, kernel.unit)


def _reject_matmul(binding: Binding) -> Rejection | None:
    left, right = (operand_shape(binding, k) for k in (0, 1))
    if min(len(left), len(right)) < 2:
        return Rejection("rank", "matmul is compiled for operands of two or more axes")
    return reject_sizes(binding) if left[-1] != right[-2] else reject_non_floats(binding)


def _reject_dense(binding: Binding) -> Rejection | None:
    if operand_shape(binding, 0)[-1] != operand_shape(binding, 1)[1]:
        return reject_sizes(binding)
    return reject_non_floats(binding)


def _require_matmul(scope: FunctionScope, step: Step) -> None:
    require_broadcast(scope, step, skip=2)


FAMILIES = (
    KernelFamily(frozenset({"nn.dense"}), _reject_dense, _write, takes_epilogue=True),
    KernelFamily(frozenset({"matmul"}), _reject_matmul, _write, takes_epilogue=True, require=_require_matmul),
)
"""Matrix products."""
