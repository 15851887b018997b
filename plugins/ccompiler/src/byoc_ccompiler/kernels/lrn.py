"""Local response normalisation across channels."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import product

from byoc_ccompiler.attributes import float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]

_POWER_PS = 10_000
"""Estimated picoseconds of one power."""


def _write(kernel: Kernel) -> None:
    """Write the kernel: channel by channel, the squares of its neighbours added up in the result itself."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    shape, source, out = shape_of(x), kernel.source(x), kernel.target(step.result)
    channels, inner, type_ = shape[1], product(shape[2:]), c.CType(source.dtype)
    size = int_of(step.binding, "size")
    beta, bias = (c.Literal(float_of(step.binding, name), type_) for name in ("beta", "bias"))
    alpha = c.Literal(float_of(step.binding, "alpha") / size, type_)
    power = c.Callee("powf" if type_.dtype == "float32" else "pow", np.power, flops=1)
    row, first, end, near, k = map(c.Variable, ("row", "first", "end", "near", "k"))
    come, to = c.Buffer("from", type_.dtype), c.Buffer("to", type_.dtype, c.MemoryAccess.WRITE)
    base, neighbour, number = c.Variable("base", type_), come[near * inner + k], row % channels

    def every(*body: c.Statement) -> c.For:
        return c.For(k, c.Size(0), c.Size(inner), body)

    rows: c.Block = (
        c.Alias(come, source, row * inner),
        c.Alias(to, out, row * inner),
        c.Let(first, c.index_max(c.Size(-((size - 1) // 2)), c.Size(0) - number)),
        c.Let(end, c.index_min(c.Size(size // 2), channels - 1 - number) + 1),
        every(c.Store(to, k, c.Literal(0, type_))),
        c.For(near, first, end, (every(c.Store(to, k, to[k] + neighbour * neighbour)),)),
        every(c.Let(base, bias + alpha * to[k]), c.Store(to, k, come[k] / c.Call(power, (base, beta), type_))),
    )
    count, round_ps = c.Size(product(shape[:2])), inner * _POWER_PS
    kernel.finish_block((c.For(row, c.Size(0), count, rows, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))


FAMILY = KernelFamily(frozenset({"nn.lrn"}), reject_non_floats, _write)
"""Local response normalisation."""
