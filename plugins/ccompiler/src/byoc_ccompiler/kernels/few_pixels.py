"""Convolution of few pixels by a large filter, channels last: the filter passes once from memory to the nearest cache.

The second half of a network has few pixels, and filters that no cache keeps from call to call. All pixels are
multiplied by one piece of a panel after another, small enough for the first-level cache, while the next one is
fetched; the sums of all pixels and one panel wait in that cache too. Rows are found through pointers, as in
:mod:`~byoc_ccompiler.kernels.implicit_gemm`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_panels import packed_constant, panel_size
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.implicit_gemm import window_line
from byoc_ccompiler.kernels.implicit_gemm_plan import MAX_POINTERS, ImplicitGemm
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, chunk_function
from byoc_ccompiler.kernels.window_rows import rows_function, zeros
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["is_suited", "write"]

_MOST_PIXELS = 64
"""With more pixels, a panel's way from memory is short beside the time that it is used."""

_LEAST_PANELS = 4
"""With fewer panels, threads would have too few parts."""

_PIECE_NBYTES = 1 << 15
"""A piece of a panel, in the first-level cache beside the sums and some rows."""

_MOST_ROWS = 10
"""Rows of a tile, at most: their pointers stay in registers."""

_VECTORS = 2

_LOCALS = (
    *("rows", "window", "panel", "tap", "c0", "c_count", "block", "n0", "n_count", "j"),
    *("packed", "factors", "ahead", "next"),
)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How the convolution is cut: the plan of its tiles, and the channels of one piece."""

    plan: ImplicitGemm
    pixels: int
    channels: int

    @property
    def blocks(self) -> int:
        """Tiles that the pixels take."""
        return -(-self.pixels // self.plan.rows)


def is_suited(kernel: Kernel) -> bool:
    """Tells whether a convolution, channels last, has few pixels and a large filter."""
    return isinstance(kernel.group.steps[0].operands[1], Constant) and _cut(kernel) is not None


def _cut(kernel: Kernel) -> _Cut | None:
    plan = ImplicitGemm.of(kernel)
    pixels = plan.num_pixels
    if plan.copies or plan.shape.groups > 1 or not isinstance(pixels, int) or not 1 < pixels <= _MOST_PIXELS:
        return None
    blocks = -(-pixels // min(_MOST_ROWS, kernel.unit.rows_for(_VECTORS)))
    columns = _VECTORS * kernel.unit.lanes(plan.shape.dtype)
    plan = replace(plan, rows=-(-pixels // blocks), vectors=_VECTORS, columns=columns)
    has_room = blocks * plan.runs * plan.rows <= MAX_POINTERS
    if not has_room or not plan.panels_outside or plan.panels < _LEAST_PANELS:
        return None
    room = min(DEPTH_CHUNK, _PIECE_NBYTES // (columns * dtype_info(plan.shape.dtype).itemsize))
    pieces = -(-plan.depth // room)
    return _Cut(plan, pixels, -(-plan.depth // pieces))


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    kernel.names.reserve(_LOCALS)
    anchor, cut = kernel.group.steps[0], _cut(kernel)
    weight = anchor.operands[1]
    assert cut is not None
    assert isinstance(weight, Constant)
    image = kernel.input(anchor.operands[0], "x")
    packed = kernel.input(packed_constant(kernel, cut.plan.shape, weight, cut.plan.columns), "weights")
    kernel.finish([_panel_loop(kernel, cut, image, packed)])


def _panel_loop(kernel: Kernel, cut: _Cut, image: str, packed: str) -> ParallelLoop:
    plan, shape, columns = cut.plan, cut.plan.shape, cut.plan.columns
    ctype, size = c_type(shape.dtype), panel_size(shape, columns)
    multiply = chunk_function(kernel, shape.dtype, plan.rows, plan.vectors)
    is_whole = shape.out_channels % columns == 0
    tile = TextTile(
        "sums",
        row_step=str(columns),
        first_row="0",
        num_rows=str(cut.pixels),
        first_column="n0",
        num_columns=str(columns) if is_whole else "n_count",
        full_columns=None if is_whole else columns,
    )
    share = -(-columns // cut.blocks)
    last = plan.panels * size - cut.channels * columns
    lines = (
        f"  const {ctype} *rows[{cut.blocks * plan.runs * plan.rows}];",
        *_pointer_lines(kernel, cut, image),
        f"  for (int64_t panel = {FIRST_ITEM}; panel < {END_ITEM}; ++panel) {{",
        f"    const int64_t n0 = panel * {columns};",
        *([] if is_whole else [f"    const int64_t n_count = byoc_min({columns}, {shape.out_channels} - n0);"]),
        f"    {ctype} sums[{cut.blocks * plan.rows * columns}];",
        f"    const {ctype} *factors = {packed} + panel * {size};",
        f"    for (int64_t tap = 0; tap < {plan.runs}; ++tap) {{",
        f"      for (int64_t c0 = 0; c0 < {plan.depth}; c0 += {cut.channels}) {{",
        f"        const int64_t c_count = byoc_min({cut.channels}, {plan.depth} - c0);",
        f"        const int64_t next = byoc_min(factors - {packed} + c_count * {columns}, {last});",
        f"        for (int64_t block = 0; block < {cut.blocks}; ++block) {{",
        f"          {multiply}(rows + (block * {plan.runs} + tap) * {plan.rows}, c0, c_count, factors,",
        f"              {packed} + next + block * {cut.channels * columns // cut.blocks}, {share},",
        f"              sums + block * {plan.rows * columns}, tap > 0 || c0 > 0);",
        "        }",
        f"        factors += c_count * {columns};",
        "      }",
        "    }",
        *epilogue_lines(kernel, tile, "    "),
        "  }",
    )
    item_ps = cut.pixels * plan.runs * plan.depth * columns * multiply_add_ps(kernel.unit, shape.dtype)
    return ParallelLoop(lines, plan.panels, item_ps)


def _pointer_lines(kernel: Kernel, cut: _Cut, image: str) -> list[str]:
    """Gives the lines that find the runs of all pixels."""
    plan, shape = cut.plan, cut.plan.shape
    if not plan.has_pointers:
        step = c_dim(plan.steps[3])
        return [
            f"  for (int64_t j = 0; j < {cut.blocks * plan.rows}; ++j) {{",
            f"    rows[j] = {image} + byoc_min(j, {cut.pixels - 1}) * {step};",
            "  }",
        ]
    find = rows_function(kernel, shape.dtype, plan.rows)
    outside = zeros(kernel, shape.dtype, plan.depth) if shape.is_padded else image
    return [
        window_line(kernel, plan),
        f"  for (int64_t block = 0; block < {cut.blocks}; ++block) {{",
        f"    {find}(rows + block * {plan.runs * plan.rows}, {image}, {outside}, &window, block * {plan.rows});",
        "  }",
    ]
