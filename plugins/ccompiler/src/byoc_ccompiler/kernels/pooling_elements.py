"""Pooling, channels first, in any number of axes: one window after another."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring import c
from byoc_core.dims import product

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import offset_along
from byoc_ccompiler.kernels.pooling_windows import Pooling, loops_over

__all__ = ["write"]

_TAP_PS = 1000
"""Estimated picoseconds of one tap of one window."""


def write(kernel: Kernel) -> None:
    """Writes the kernel of a pooling op whose layout has the channels first."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    sizes, out_sizes = [axis.size for axis in pooling.axes], [axis.out_size for axis in pooling.axes]
    plane, indices = c.Variable("plane"), [c.Variable(f"o_{name}") for name in pooling.names]
    image, out = c.Buffer("from", pooling.dtype), c.Buffer("to", pooling.dtype, c.MemoryAccess.WRITE)
    window, total = _window(pooling, indices, image)
    result = c.Store(out, offset_along(indices, compact_strides(out_sizes)), total)
    body: c.Block = (
        c.Alias(image, kernel.source(step.operands[0]), plane * product(sizes)),
        c.Alias(out, kernel.target(step.result), plane * product(out_sizes)),
        *loops_over(indices, [c.Size(size) for size in out_sizes], (*window, result)),
    )
    round_ps = product(out_sizes) * pooling.num_taps * _TAP_PS
    count = c.Size(pooling.batch * pooling.channels)
    kernel.finish_block((c.For(plane, c.Size(0), count, body, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))


def _window(pooling: Pooling, indices: Sequence[c.Expression], image: c.Buffer) -> tuple[c.Block, c.Expression]:
    """Return the statements that go through one window, and its result. Sums are added up row by row first."""
    window, line = pooling.window(indices), c.Buffer("line", pooling.dtype)
    total, part = c.Variable("total", pooling.type), c.Variable("part", pooling.type)
    row = offset_along(window.places[:-1], compact_strides([axis.size for axis in pooling.axes])[:-1])
    so_far = part if pooling.is_sum else total
    collect = (c.Assign(so_far, pooling.combine(so_far, line[window.places[-1]])),)
    taps: c.Block = (c.Alias(line, image, row), *loops_over(window.taps[-1:], window.counts[-1:], collect))
    if pooling.is_sum:
        taps = (c.Declare(part, pooling.start), *taps, c.Assign(total, total + part))
    rows = loops_over(window.taps[:-1], window.counts[:-1], taps)
    return (*window.statements, c.Declare(total, pooling.start), *rows), pooling.finish(total, window.divisor)
