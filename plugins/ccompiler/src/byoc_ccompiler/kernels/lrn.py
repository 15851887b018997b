"""Local response normalisation across channels."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.c import (
    Alias,
    Block,
    Buffer,
    Call,
    Callee,
    CType,
    For,
    Let,
    Literal,
    LoopKind,
    MemoryAccess,
    Size,
    Statement,
    Store,
    Variable,
    index_max,
    index_min,
)
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]

_POWER_PS = 10_000
"""Estimated picoseconds of one power."""


def _write(kernel: Kernel) -> None:
    """Writes the kernel: channel by channel, the squares of its neighbours added up in the result itself."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    shape, source, out = shape_of(x), kernel.source(x), kernel.target(step.result)
    channels, inner, type_ = shape[1], product(shape[2:]), CType(source.dtype)
    size = int_of(step.binding, "size")
    alpha, beta, bias = (float_of(step.binding, name) for name in ("alpha", "beta", "bias"))
    power = Callee("powf" if type_.dtype == "float32" else "pow", np.power, flops=1)
    row, first, end, near, k = (Variable(name) for name in ("row", "first", "end", "near", "k"))
    come, to = Buffer("from", type_.dtype), Buffer("to", type_.dtype, MemoryAccess.WRITE)
    base = Variable("base", type_)

    def every(*body: Statement) -> For:
        return For(k, Size(0), Size(inner), body)

    neighbour = come[near * inner + k]
    rows: Block = (
        Alias(come, source, row * inner),
        Alias(to, out, row * inner),
        Let(first, index_max(Size(-((size - 1) // 2)), Size(0) - row % channels)),
        Let(end, index_min(Size(size // 2), channels - 1 - row % channels) + 1),
        every(Store(to, k, Literal(0, type_))),
        For(near, first, end, (every(Store(to, k, to[k] + neighbour * neighbour)),)),
        every(
            Let(base, Literal(bias, type_) + Literal(alpha / size, type_) * to[k]),
            Store(to, k, come[k] / Call(power, (base, Literal(beta, type_)), type_)),
        ),
    )
    kernel.finish_block(
        (For(row, Size(0), Size(product(shape[:2])), rows, kind=LoopKind.PARALLEL, round_ps=inner * _POWER_PS),)
    )


def _reject(binding: Binding) -> Rejection | None:
    return reject_non_floats(binding)


FAMILY = KernelFamily(frozenset({"nn.lrn"}), _reject, _write)
"""Local response normalisation."""
