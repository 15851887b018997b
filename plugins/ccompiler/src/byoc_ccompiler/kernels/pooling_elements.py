"""Pooling, channels first, in any number of axes: one window after another."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.c import (
    Alias,
    Assign,
    Block,
    Buffer,
    Declare,
    Expression,
    For,
    LoopKind,
    MemoryAccess,
    Size,
    Store,
    Variable,
)
from byoc_core.dims import product

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.pooling_windows import Pooling, loops_over, position

__all__ = ["write"]

_TAP_PS = 1000
"""Estimated picoseconds of one tap of one window."""


def write(kernel: Kernel) -> None:
    """Writes the kernel of a pooling op whose layout has the channels first."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    sizes, out_sizes = [axis.size for axis in pooling.axes], [axis.out_size for axis in pooling.axes]
    plane, indices = Variable("plane"), [Variable(f"o_{name}") for name in pooling.names]
    image, out = Buffer("from", pooling.dtype), Buffer("to", pooling.dtype, MemoryAccess.WRITE)
    window, total = _window(pooling, indices, image)
    result = Store(out, position(compact_strides(out_sizes), indices), total)
    body: Block = (
        Alias(image, kernel.source(step.operands[0]), plane * product(sizes)),
        Alias(out, kernel.target(step.result), plane * product(out_sizes)),
        *loops_over(indices, [Size(size) for size in out_sizes], (*window, result)),
    )
    round_ps = product(out_sizes) * pooling.num_taps * _TAP_PS
    count = Size(pooling.batch * pooling.channels)
    kernel.finish_block((For(plane, Size(0), count, body, kind=LoopKind.PARALLEL, round_ps=round_ps),))


def _window(pooling: Pooling, indices: Sequence[Expression], image: Buffer) -> tuple[Block, Expression]:
    """Return the statements that go through one window, and its result. Sums are added up row by row first."""
    window, line = pooling.window(indices), Buffer("line", pooling.dtype)
    total, part = Variable("total", pooling.type), Variable("part", pooling.type)
    row = position(compact_strides([axis.size for axis in pooling.axes])[:-1], window.places[:-1])
    so_far = part if pooling.is_sum else total
    collect = (Assign(so_far, pooling.combine(so_far, line[window.places[-1]])),)
    taps: Block = (Alias(line, image, row), *loops_over(window.taps[-1:], window.counts[-1:], collect))
    if pooling.is_sum:
        taps = (Declare(part, pooling.start), *taps, Assign(total, total + part))
    rows = loops_over(window.taps[:-1], window.counts[:-1], taps)
    return (*window.statements, Declare(total, pooling.start), *rows), pooling.finish(total, window.divisor)
