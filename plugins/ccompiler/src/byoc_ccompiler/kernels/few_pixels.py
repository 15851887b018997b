"""Convolution of few pixels by a large filter, channels last: the filter passes once from memory to the nearest cache.

The second half of a network has few pixels, and filters that no cache keeps from call to call. All pixels are
multiplied by one piece of a panel after another, small enough for the first-level cache, while the next one is
fetched; the sums of all pixels and one panel wait in that cache too. Rows are found through pointers, as in
:mod:`~byoc_ccompiler.kernels.implicit_gemm`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.authoring import c
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_panels import packed_constant, panel_size
from byoc_ccompiler.kernels.implicit_gemm_plan import MAX_POINTERS, ImplicitGemm
from byoc_ccompiler.kernels.pixel_tiles import PixelTile
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, multiply
from byoc_ccompiler.kernels.window_rows import WindowRows
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
    """Write the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    (x, weight), cut = kernel.group.steps[0].operands, _cut(kernel)
    assert cut is not None
    assert isinstance(weight, Constant)
    plan, dtype = cut.plan, cut.plan.shape.dtype
    image = kernel.source(x)
    packed = kernel.source(packed_constant(kernel, plan.shape, weight, plan.columns), "weights")
    rows = WindowRows.of(kernel, plan, image, cut.blocks * plan.rows)
    first, end, panel = map(c.Variable, ("first", "end", "panel"))
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE, cut.blocks * plan.rows * plan.columns)
    body: c.Block = (
        c.LocalArray(sums),
        *_products(kernel, cut, rows.rows, packed, panel, sums),
        *PixelTile(kernel, plan, c.Size(0), c.Size(cut.pixels), panel).rest(sums),
    )
    loop = c.For(panel, first, end, body)
    item_ps = cut.pixels * plan.runs * plan.depth * plan.columns * multiply_add_ps(kernel.unit, dtype)
    part = (*_pointers(cut, rows), loop)
    kernel.finish_block((c.Dispatch(first, end, part, plan.panels, 1, plan.panels * item_ps),))


def _products(
    kernel: Kernel, cut: _Cut, rows: c.PointerArray, packed: c.Buffer, panel: c.Expression, sums: c.Buffer
) -> c.Block:
    """Return the loops that multiply all pixels by a panel, a piece of it after another."""
    plan, columns = cut.plan, cut.plan.columns
    size, tile = panel_size(plan.shape, columns), plan.rows * columns
    tap, c0, c_count, block, at, ahead = map(c.Variable, ("tap", "c0", "c_count", "block", "at", "ahead"))
    last = plan.panels * size - cut.channels * columns
    left = (c.Address(rows, (block * plan.runs + tap) * plan.rows), c.Size(1), c0)
    fetched = ahead + block * (cut.channels * columns // cut.blocks)
    product = multiply(
        *(kernel, (plan.rows, plan.vectors), left, c.Address(packed, at), c_count, c.Address(sums, block * tile)),
        adds=c.Binary("||", tap.compare(">", 0), c0.compare(">", 0)),
        ahead=(c.Address(packed, c.Size(0)), fetched, c.Size(-(-columns // cut.blocks))),
    )
    pieces: c.Block = (
        c.Let(c_count, c.index_min(plan.depth - c0, cut.channels)),
        c.Let(at, panel * size + (tap * plan.depth + c0) * columns),
        c.Let(ahead, c.index_min(at + c_count * columns, last)),
        c.For(block, c.Size(0), c.Size(cut.blocks), (product,)),
    )
    chunks = c.For(c0, c.Size(0), c.Size(plan.depth), pieces, step=cut.channels)
    return (c.For(tap, c.Size(0), c.Size(plan.runs), (chunks,)),)


def _pointers(cut: _Cut, rows: WindowRows) -> c.Block:
    """Return the statements that find the runs of all pixels."""
    plan, block, j = cut.plan, c.Variable("block"), c.Variable("j")
    if not plan.has_pointers:
        pixel = c.Address(rows.image, c.index_min(j, cut.pixels - 1) * plan.steps[3])
        loop = c.For(j, c.Size(0), c.Size(cut.blocks * plan.rows), (c.Store(rows.rows, j, pixel),))
        return (c.LocalArray(rows.rows), loop)
    find = rows.find(block * plan.rows, plan.rows, c.Size(0), block * (plan.runs * plan.rows))
    return (*rows.declarations(), c.For(block, c.Size(0), c.Size(cut.blocks), (find,)))
