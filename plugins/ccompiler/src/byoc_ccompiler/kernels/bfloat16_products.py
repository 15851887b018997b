"""Matrix products of operands rounded to bfloat16; constant ones are rounded and packed when code is generated."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import product
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_loops import RoundedProduct
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.kernels.word_rows import gather_rows, rounded
from byoc_ccompiler.kernels.word_tiles import PAIRS, STEP_DEPTH, STEP_WORDS

__all__ = ["is_suited", "write"]

_FEW_ROWS = 16
"""Up to so many rows it does not pay to round and to rearrange a matrix that is no constant."""

_PACK_PS = 800
"""Estimated picoseconds to round and to move a pair of numbers."""

_PAIR = """\
/* Rounds two numbers to bfloat16, as one word. */
static inline uint32_t {name}(float low, float high) {
  return byoc_f32_to_bf16(low).bits | (uint32_t)byoc_f32_to_bf16(high).bits << 16;
}
"""


def _pair(low: np.float32, high: np.float32) -> NDArray:
    return rounded(np.asarray([low, high])).view(np.uint32)[0]  # type: ignore[no-any-return]


_ROUND_PAIR = c.Callee("vec_round_pair", _pair, definition=_PAIR)


def is_suited(kernel: Kernel, p: Product) -> bool:
    """Return whether the option permits it and it pays: operands that are read once are not rounded first."""
    if kernel.options.precision != "bfloat16" or p.dtype != "float32" or p.depth == 0:
        return False
    return p.weights is not None or p.known_rows is None or p.known_rows > _FEW_ROWS


def write(kernel: Kernel, p: Product) -> None:
    """Writes the kernel of a product of float32 operands and of what follows it elementwise."""
    left, x = c.Buffer("left", "float32"), kernel.source(p.left.value, "x")
    weights = p.weight_matrix(kernel) if p.weights is not None else None
    b = c.Variable("b")
    lets, indices = p.position(b)
    sizes = (p.num_columns, p.depth, p.depth)
    whole = RoundedProduct(kernel, p.num_rows, weights, *sizes, leading=indices, has_columns=p.has_columns)
    first, count = left[whole.blocks.m0 * p.left.row_step], whole.blocks.m_count
    loops = whole.loops(lambda writer: gather_rows(first, p.left.row_step, p.depth, count, writer))
    body: c.Block = (c.Alias(left, x, p.left.place(p.batch, indices)), *loops)
    if weights is None:
        right, y = c.Buffer("right", "float32"), kernel.source(p.right.value, "y")
        body = (c.Alias(right, y, p.right.place(p.batch, indices)), _packing(whole, p, right), *body)
    if p.batch:
        body = (c.For(b, c.Size(0), c.Size(product(p.batch)), (*lets, *body)),)
    kernel.finish_block((*whole.set_up, *body))


def _packing(whole: RoundedProduct, p: Product, right: c.Buffer) -> c.For:
    """Return the loop that rounds and rearranges the matrix on the right, step by step of each panel."""
    width, depth, zero = whole.blocks.width, c.Size(p.depth), c.Literal(0, c.CType("float32"))
    item, k, w, n, n0 = map(c.Variable, ("item", "k", "w", "n", "n0"))
    row, column = k * STEP_DEPTH + w * 2, n0 + n

    def number(which: int, *, checked: bool) -> c.Expression:
        value = right[(row + which) * p.right.row_step + column * p.right.column_step]
        is_there = ((row + which).compare("<", depth), column.compare("<", p.num_columns))
        return c.Select(c.Binary("&&", *is_there), value, zero) if checked else value

    def step(*, checked: bool) -> c.Block:
        pair = c.Call(_ROUND_PAIR, tuple(number(which, checked=checked) for which in (0, 1)), c.CType(PAIRS.dtype))
        at = item * whole.panel_size + (k * STEP_WORDS + w) * width + n
        body: c.Block = (c.Store(whole.panels, at, pair),)
        # Inside goes what lies side by side in the matrix.
        for index, count in ((w, STEP_WORDS), (n, width))[:: 1 if p.right.row_step == 1 else -1]:
            body = (c.For(index, c.Size(0), c.Size(count), body),)
        return body

    ends = (((k + 1) * STEP_DEPTH).compare("<=", depth), (n0 + width).compare("<=", p.num_columns))
    steps = c.If(c.Binary("&&", *ends), step(checked=False), step(checked=True))
    panel = (c.Let(n0, item * width), c.For(k, c.Size(0), c.Size(whole.num_steps), (steps,)))
    round_ps = whole.panel_size * _PACK_PS
    kind = c.LoopKind.PARALLEL
    return c.For(item, c.Size(0), c.Size(whole.blocks.panels), panel, kind=kind, round_ps=round_ps)
