"""Rotary position embedding."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import product

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_PAIR_PS = 400
"""Estimated picoseconds of turning one pair of elements."""


def _write(kernel: Kernel) -> None:
    """Write the kernel: one row of each head and step after another."""
    (step,) = kernel.group.steps
    x, cos, sin = step.operands
    (batch, heads, steps, size), half = shape_of(x), shape_of(cos)[2]
    source, out, dtype = kernel.source(x), kernel.target(step.result), kernel.source(x).dtype
    row, angle, k = map(c.Variable, ("row", "angle", "k"))
    left, right = (c.Variable(name, c.CType(dtype)) for name in ("left", "right"))
    come, across, along = (c.Buffer(name, dtype) for name in ("from", "across", "along"))
    to, rest = c.Buffer("to", dtype, c.MemoryAccess.WRITE), c.Size(2 * half)
    near, far = (k * 2, k * 2 + 1) if flag_of(step.binding, "interleaved") else (k, k + half)
    turned = (
        c.Let(left, come[near]),
        c.Let(right, come[far]),
        c.Store(to, near, across[k] * left - along[k] * right),
        c.Store(to, far, along[k] * left + across[k] * right),
    )
    rows = (
        c.Alias(come, source, row * size),
        c.Alias(to, out, row * size),
        c.Let(angle, (row // (heads * steps) * steps + row % steps) * half),
        c.Alias(across, kernel.source(cos, "cos_"), angle),
        c.Alias(along, kernel.source(sin, "sin_"), angle),
        c.For(k, c.Size(0), c.Size(half), turned),
        c.Copy(to, rest, come, rest, c.Size(size - 2 * half)),
    )
    count = c.Size(product((batch, heads, steps)))
    kernel.finish_block((c.For(row, c.Size(0), count, rows, kind=c.LoopKind.PARALLEL, round_ps=size * _PAIR_PS),))


def _require(scope: FunctionScope, step: Step) -> None:
    """Have sizes checked that symbols hide from the type rules."""
    x, cos, _ = map(shape_of, step.operands)
    for index in (1, 2):
        require_equal_sizes(scope, step, index, shape_of(step.operands[index]), (x[0], x[2], cos[2]))
    scope.require_at_least(step.op, "operand `x`", x, [0, 0, 0, 2 * cos[2]])


FAMILY = KernelFamily(frozenset({"nn.rotary_embedding"}), reject_nothing, _write, require=_require)
"""Rotary position embedding."""
