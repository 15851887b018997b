"""Pooling, NCHW: one pass per tap of the window over each row of outputs, so that the inner loop runs along a row.

In short rows whose windows all lie inside the image, each window is taken by itself.
"""

from __future__ import annotations

from byoc_core.authoring.c import (
    INDEX,
    Alias,
    Assign,
    Binary,
    Block,
    Buffer,
    Call,
    Callee,
    Declare,
    Expression,
    For,
    If,
    Let,
    LoopKind,
    MemoryAccess,
    Size,
    Store,
    Variable,
    index_max,
    index_min,
)
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
    plane, y, col = Variable("plane"), Variable("y"), Variable("col")
    x, to = kernel.source(step.operands[0]), Buffer("to", pooling.dtype, MemoryAccess.WRITE)
    is_narrow = isinstance(right.out_size, int) and right.out_size < _NARROW
    if is_narrow and down.is_inside and right.is_inside:
        body = _windows(pooling, x, to, plane, y)
    else:
        body = _passes(pooling, x, to, plane, y)
    if pooling.is_sum:
        window = pooling.window([y, col])
        divided = (*window.statements, Store(to, col, pooling.finish(to[col], window.divisor)))
        body += loops_over([col], [Size(right.out_size)], divided)
    body = (Alias(to, kernel.target(step.result), (plane * down.out_size + y) * right.out_size), *body)
    rows = loops_over([y], [Size(down.out_size)], body)
    round_ps = down.out_size * right.out_size * (down.window * right.window * _TAP_PS)
    count = Size(pooling.batch * pooling.channels)
    kernel.finish_block((For(plane, Size(0), count, rows, kind=LoopKind.PARALLEL, round_ps=round_ps),))


def _windows(pooling: Pooling, x: Buffer, to: Buffer, plane: Variable, y: Variable) -> Block:
    """Return the statements that take the windows of a row one by one."""
    down, right = pooling.axes
    col, ky, kx, row = (Variable(name) for name in ("col", "ky", "kx", "row"))
    total, line = Variable("total", pooling.type), Buffer("line", pooling.dtype)
    tap = (Assign(total, pooling.combine(total, line[kx * right.dilation])),)
    taps: Block = (
        Let(row, plane * down.size + y * down.stride + ky * down.dilation),
        Alias(line, x, row * right.size + col * right.stride),
        *loops_over([kx], [Size(right.window)], tap),
    )
    window = (Declare(total, pooling.start), *loops_over([ky], [Size(down.window)], taps), Store(to, col, total))
    return loops_over([col], [Size(right.out_size)], window)


def _passes(pooling: Pooling, x: Buffer, to: Buffer, plane: Variable, y: Variable) -> Block:
    """Return the statements that go over the windows of a row once for each tap."""
    down, right = pooling.axes
    col, begin, ky, kx, row, aside = (Variable(name) for name in ("col", "col", "ky", "kx", "row", "right"))
    first, last, end = (Variable(name) for name in ("begin", "last", "end"))
    line = Buffer("line", pooling.dtype)
    # The windows from the first to the end have this tap inside the image.
    taps: Block = (
        Let(aside, kx * right.dilation - right.begin),
        Alias(line, x, (plane * down.size + row) * right.size + aside),
        Let(first, index_max(Size(0), 0 - _floordiv(aside, right.stride))),
        Let(last, _floordiv(right.size - 1 - aside, right.stride)),
        Let(end, index_min(Size(right.out_size), last + 1)),
        For(col, first, end, (Store(to, col, pooling.combine(to[col], line[col * right.stride])),)),
    )
    is_inside = Binary("&&", row.compare(">=", 0), row.compare("<", Size(down.size)))
    rows: Block = (
        Let(row, y * down.stride + ky * down.dilation - down.begin),
        If(is_inside, loops_over([kx], [Size(right.window)], taps)),
    )
    cleared = loops_over([begin], [Size(right.out_size)], (Store(to, begin, pooling.start),))
    return (*cleared, *loops_over([ky], [Size(down.window)], rows))


def _floordiv(one: Expression, other: Dim) -> Expression:
    return Call(Callee("byoc_floordiv", lambda left, right: left // right), (one, Size(other)), INDEX)
