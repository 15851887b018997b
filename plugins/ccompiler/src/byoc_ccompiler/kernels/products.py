"""Matrix products, ``nn.dense`` and ``matmul``: the family, and the kernels by dot products, or row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope, c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import ceildiv, product
from byoc_core.ir import Binding, Value

from byoc_ccompiler.family import Access, KernelFamily, rows_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_products import suits_product, write_product
from byoc_ccompiler.kernels.blocks import PanelKernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.kernels.product_schedules import (
    DotSchedule,
    PanelSchedule,
    StretchSchedule,
    check_laws,
    choose,
    offered,
)
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, in_lanes, in_parts
from byoc_ccompiler.rejections import FLOATS, operand_shape, reject_sizes
from byoc_ccompiler.size_checks import require_broadcast
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "read_as_matrices"]

_OPS, _ZERO = frozenset({"nn.dense", "matmul"}), c.Size(0)


def read_as_matrices(steps: Sequence[Step], results: Sequence[Value]) -> frozenset[Value]:
    """Return the values read once, as the matrix on the right of a product, and nowhere else."""
    reads = Counter(operand for step in steps for operand in step.operands)
    reads.update(results)
    products = [step for step in steps if step.op in _OPS]
    matrices = {step.operands[1] for step in products if len(shape_of(step.operands[1])) == 2}
    return frozenset(value for value in matrices if reads[value] == 1)


def _write(kernel: Kernel) -> None:
    geometry = Product.of_kernel(kernel)
    if 0 in shape_of(kernel.group.steps[0].result):
        kernel.finish_block(())
        return
    schedule = choose(geometry, kernel.unit)
    if isinstance(schedule, PanelSchedule) and suits_product(kernel, geometry):
        write_product(kernel, geometry)
        return
    step, default = kernel.group.steps[0], schedule
    schedule = schedule_as_chosen(kernel, step, default, lambda: offered(geometry, kernel.unit, default))
    kernel.schedule = schedule
    match schedule:
        case PanelSchedule():
            kernel.finish_block(PanelKernel(kernel, geometry, schedule).block())
        case DotSchedule():
            _write_dots(kernel, geometry, schedule)
        case StretchSchedule():
            _write_rows(kernel, geometry, schedule)


def _reads(step: Step, index: int) -> Access:
    """Return any strides for a matrix on the right, to be rearranged; all else is read along rows."""
    is_matrix = step.op in _OPS and index == 1 and len(shape_of(step.operands[1])) > 1
    return Access.ANY if is_matrix else Access.ROWS


def _reject(binding: Binding) -> Rejection | None:
    left, right = (operand_shape(binding, k) for k in (0, 1))
    along = 1 if binding.op.name == "nn.dense" else max(0, len(right) - 2)
    return reject_sizes(binding) if left[-1] != right[along] else None


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the axes before the matrices to broadcast."""
    require_broadcast(scope, step, skip=2, of_result=sum(len(shape_of(operand)) > 1 for operand in step.operands))


def _write_dots(kernel: Kernel, p: Product, schedule: DotSchedule) -> None:
    """Write the kernel of a product of floats by dot products, with an elementwise epilogue."""
    runs_along = p.right.row_step == 1 and p.left.column_step == 1
    check_laws(
        {"dot products have float operands": p.dtype in FLOATS, "operands are contiguous along the sums": runs_along}
    )
    left, right = kernel.source(p.left.value, "x"), kernel.source(p.right.value, "y")
    rows, columns = schedule.rows, schedule.columns
    across, down = ceildiv(p.num_columns, columns), ceildiv(p.num_rows, rows)
    item, m0, m_count, n0, n_count = c.variables("item m0 m_count n0 n_count")
    position, indices = p.position(item // (across * down))
    sums = c.Buffer("sums", p.dtype, c.MemoryAccess.WRITE, rows * columns)
    x, w = (c.Buffer(name, p.dtype) for name in ("x", "w"))
    fewer = None if p.known_columns is None else p.known_columns % columns
    tile = SumsTile(sums, columns, m0, m_count, n0, n_count, columns, fewer, indices, p.has_columns)
    x_step, w_step = c.Size(p.left.row_step), c.Size(p.right.column_step)

    def dots(tile_rows: int, m: c.Expression, tile_columns: int, n: c.Expression) -> c.Block:
        function = kernel.shared_function(_dot_tile(kernel.unit, p.dtype, tile_rows, tile_columns))
        factors = (c.Address(x, m * x_step), x_step, c.Address(w, n * w_step), w_step, c.Size(p.depth))
        return (c.Evaluate(c.Call(function, (*factors, c.Address(sums, m * columns + n), c.Size(columns)))),)

    parts = partial(in_parts, "n", n_count, schedule.tile_columns)
    body = (
        c.Let(n0, item % across * columns),
        c.Let(n_count, c.index_min(c.Size(columns), c.Size(p.num_columns) - n0)),
        c.Let(m0, item // across % down * rows),
        c.Let(m_count, c.index_min(c.Size(rows), c.Size(p.num_rows) - m0)),
        *position,
        c.Alias(x, left, p.left.offset(p.batch, indices) + m0 * x_step),
        c.Alias(w, right, p.right.offset(p.batch, indices) + n0 * w_step),
        c.LocalArray(sums),
        *in_parts("m", m_count, schedule.tile_rows, lambda count, m: parts(partial(dots, count, m))),
        *epilogue(kernel, tile),
    )
    count = product(p.batch) * across * down
    kernel.finish_block(loops_around(body, (item,), (count,), part=0))


def _dot_tile(unit: VectorUnit, dtype: str, rows: int, columns: int) -> c.Function:
    """Return a function computing ``rows`` times ``columns`` dot products of ``depth`` neighbouring elements.

    C signature: ``(x, x_step, w, w_step, depth, sums, pitch)``; rows of sums lie ``pitch`` elements apart.
    """
    lanes, type_ = unit.lanes(dtype), c.CType(dtype)
    vector = type_.with_lanes(lanes)
    x, w, sums = c.Buffer("x", dtype), c.Buffer("w", dtype), c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    totals = c.Buffer("totals", dtype, c.MemoryAccess.WRITE, rows * columns)
    x_step, w_step, depth, pitch = c.variables("x_step w_step depth pitch")
    begin, end, vector_end, i, j, k, rest = c.variables("begin end vector_end i j k rest")
    lefts = [c.Variable("left", vector) for _ in range(rows)]
    rights = [c.Variable("right", vector) for _ in range(columns)]
    values = [c.Variable("value", vector) for _ in range(rows * columns)]
    terms = [left * right for left in lefts for right in rights]
    step = (
        *(c.Let(left, c.Load(x, x_step * i + k, lanes)) for i, left in enumerate(lefts)),
        *(c.Let(right, c.Load(w, w_step * j + k, lanes)) for j, right in enumerate(rights)),
        *(c.Assign(value, value + term) for value, term in zip(values, terms, strict=True)),
    )
    total = c.Variable("total", type_)
    old, term = sums[i * pitch + j], x[i * x_step + rest] * w[j * w_step + rest]
    finish = (
        c.Declare(total, totals[i * columns + j]),
        c.For(rest, vector_end, end, (c.Assign(total, total + term),)),
        c.Store(sums, old.index, c.Select(begin.compare(">", 0), old + total, total)),
    )
    chunk = DEPTH_CHUNK * lanes
    part = (
        c.Let(end, c.index_min(depth, begin + chunk)),
        c.Let(vector_end, begin + (end - begin) // lanes * lanes),
        *(c.Declare(value, in_lanes(c.Literal(0, type_), lanes)) for value in values),
        c.For(k, begin, vector_end, step, step=lanes),
        *(item for number, value in enumerate(values) for item in _lane_sum(value, totals, c.Size(number))),
        *loops_around(finish, (i, j), (rows, columns)),
    )
    body = (c.LocalArray(totals), c.For(begin, _ZERO, c.index_max(depth, 1), part, step=chunk))
    parameters = (x, x_step, w, w_step, depth, sums, pitch)
    return c.Function(f"dot_{c_suffix(dtype)}_{rows}x{columns}", parameters, body, is_contracted=True)


def _lane_sum(vector: c.Expression, to: c.Buffer, index: c.Expression) -> c.Block:
    """Return the statements storing the sum of a vector's lanes, repeatedly adding the upper half to the lower."""
    size, block = vector.type.lanes // 2, list[c.Statement]()
    while size:
        part = c.Variable("part", vector.type)
        block.append(c.Let(part, vector))
        vector = part + c.Shuffle(part, part, tuple(lane % size + size for lane in range(part.type.lanes)))
        size //= 2
    return (*block, c.Store(to, index, c.Lane(vector, _ZERO) if vector.type.lanes > 1 else vector))


def _write_rows(kernel: Kernel, p: Product, schedule: StretchSchedule) -> None:
    """Write the kernel of a product row by row, with an elementwise epilogue; integers wrap around."""
    (item, m0, n0, n_count, k, j), size = c.variables("item m0 n0 n_count k j"), schedule.columns
    position, indices = p.position(item // p.num_rows)
    left, right = c.Buffer("left", p.dtype), c.Buffer("right", p.dtype)
    sums, factor = c.Buffer("sums", p.dtype, c.MemoryAccess.WRITE, size), c.Variable("factor", c.CType(p.dtype))
    term = element_product(factor, right[k * p.right.row_step + (n0 + j) * p.right.column_step])
    add = c.For(j, _ZERO, n_count, (c.Store(sums, j, element_sum(sums[j], term)),))
    tile = SumsTile(sums, 0, m0, c.Size(1), n0, n_count, size, None, indices, p.has_columns)
    columns = (
        c.Let(n_count, c.index_min(c.Size(size), c.Size(p.num_columns) - n0)),
        c.LocalArray(sums, is_zeroed=True),
        *loops_around((c.Let(factor, left[k * p.left.column_step]), add), (k,), (p.depth,)),
        *epilogue(kernel, tile),
    )
    x, y = kernel.source(p.left.value, "x"), kernel.source(p.right.value, "y")
    body = (
        *(c.Let(m0, item % p.num_rows), *position),
        c.Alias(left, x, p.left.offset(p.batch, indices) + m0 * p.left.row_step),
        c.Alias(right, y, p.right.offset(p.batch, indices)),
        c.For(n0, _ZERO, c.Size(p.num_columns), columns, step=size),
    )
    count = product(p.batch) * p.num_rows
    kernel.finish_block(loops_around(body, (item,), (count,), part=0))


FAMILY = KernelFamily(_OPS, _reject, _write, takes_epilogue=True, require=_require, reads=_reads, writes=rows_access)
"""Matrix products."""
