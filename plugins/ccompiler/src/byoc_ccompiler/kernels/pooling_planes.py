"""Pooling, NCHW: one pass per tap of the window over each row of outputs, so that the inner loop runs along a row.

In short rows whose windows all lie inside the image, each window is taken by itself.
"""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pooling_windows import Pooling, loops_over

__all__ = ["write"]

# Rows shorter than this are not worth a pass per tap.
_NARROW = 16
_TAP_PS = 200
"""Estimated picoseconds of one tap of one window."""


def write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.max_pool2d`` or ``nn.avg_pool2d``, channels first."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    down, right = pooling.axes
    plane, y, col = c.Variable("plane"), c.Variable("y"), c.Variable("col")
    x, to = kernel.source(step.operands[0]), c.Buffer("to", pooling.dtype, c.MemoryAccess.WRITE)
    is_narrow = isinstance(right.out_size, int) and right.out_size < _NARROW
    if is_narrow and down.is_inside and right.is_inside:
        body = _windows(pooling, x, to, plane, y)
    else:
        body = _passes(pooling, x, to, plane, y)
    if pooling.is_sum:
        window = pooling.window([y, col])
        divided = (*window.statements, c.Store(to, col, pooling.finish(to[col], window.divisor)))
        body += loops_over([col], [c.Size(right.out_size)], divided)
    body = (c.Alias(to, kernel.target(step.result), (plane * down.out_size + y) * right.out_size), *body)
    rows = loops_over([y], [c.Size(down.out_size)], body)
    round_ps = down.out_size * right.out_size * (down.window * right.window * _TAP_PS)
    count = c.Size(pooling.batch * pooling.channels)
    kernel.finish_block((c.For(plane, c.Size(0), count, rows, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))


def _windows(pooling: Pooling, x: c.Buffer, to: c.Buffer, plane: c.Variable, y: c.Variable) -> c.Block:
    """Return the statements that take the windows of a row one by one."""
    down, right = pooling.axes
    col, ky, kx, row = (c.Variable(name) for name in ("col", "ky", "kx", "row"))
    total, line = c.Variable("total", pooling.type), c.Buffer("line", pooling.dtype)
    tap = (c.Assign(total, pooling.combine(total, line[kx * right.dilation])),)
    taps: c.Block = (
        c.Let(row, plane * down.size + y * down.stride + ky * down.dilation),
        c.Alias(line, x, row * right.size + col * right.stride),
        *loops_over([kx], [c.Size(right.window)], tap),
    )
    window = (c.Declare(total, pooling.start), *loops_over([ky], [c.Size(down.window)], taps), c.Store(to, col, total))
    return loops_over([col], [c.Size(right.out_size)], window)


def _passes(pooling: Pooling, x: c.Buffer, to: c.Buffer, plane: c.Variable, y: c.Variable) -> c.Block:
    """Return the statements that go over the windows of a row once for each tap."""
    down, right = pooling.axes
    col, begin, ky, kx, row, aside = (c.Variable(name) for name in ("col", "col", "ky", "kx", "row", "right"))
    first, last, end = (c.Variable(name) for name in ("begin", "last", "end"))
    line = c.Buffer("line", pooling.dtype)
    # The windows from the first to the end have this tap inside the image.
    taps: c.Block = (
        c.Let(aside, kx * right.dilation - right.begin),
        c.Alias(line, x, (plane * down.size + row) * right.size + aside),
        c.Let(first, c.index_max(c.Size(0), 0 - _floordiv(aside, right.stride))),
        c.Let(last, _floordiv(right.size - 1 - aside, right.stride)),
        c.Let(end, c.index_min(c.Size(right.out_size), last + 1)),
        c.For(col, first, end, (c.Store(to, col, pooling.combine(to[col], line[col * right.stride])),)),
    )
    is_inside = c.Binary("&&", row.compare(">=", 0), row.compare("<", c.Size(down.size)))
    rows: c.Block = (
        c.Let(row, y * down.stride + ky * down.dilation - down.begin),
        c.If(is_inside, loops_over([kx], [c.Size(right.window)], taps)),
    )
    cleared = loops_over([begin], [c.Size(right.out_size)], (c.Store(to, begin, pooling.start),))
    return (*cleared, *loops_over([ky], [c.Size(down.window)], rows))


def _floordiv(one: c.Expression, other: Dim) -> c.Expression:
    return c.Call(c.Callee("byoc_floordiv", lambda left, right: left // right), (one, c.Size(other)), c.INDEX)
