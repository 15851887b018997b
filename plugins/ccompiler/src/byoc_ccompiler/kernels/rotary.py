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
    """Writes the kernel of ``nn.rotary_embedding``: one row of each head and step after another."""
    (step,) = kernel.group.steps
    x, cos, sin = step.operands
    batch, heads, steps, size = shape_of(x)
    half = shape_of(cos)[2]
    source, out, dtype = kernel.source(x), kernel.target(step.result), kernel.source(x).dtype
    row, angle, k = c.Variable("row"), c.Variable("angle"), c.Variable("k")
    left, right = c.Variable("left", c.CType(dtype)), c.Variable("right", c.CType(dtype))
    come, to = c.Buffer("from", dtype), c.Buffer("to", dtype, c.MemoryAccess.WRITE)
    across, along = c.Buffer("across", dtype), c.Buffer("along", dtype)
    near, far = (k * 2, k * 2 + 1) if flag_of(step.binding, "interleaved") else (k, k + half)
    turned = (
        c.Let(left, come[near]),
        c.Let(right, come[far]),
        c.Store(to, near, across[k] * left - along[k] * right),
        c.Store(to, far, along[k] * left + across[k] * right),
    )
    rest = c.Size(2 * half)
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
    """Has sizes checked that symbols hide from the type rules."""
    x, cos, sin = (shape_of(operand) for operand in step.operands)
    for index, angle in ((1, cos), (2, sin)):
        require_equal_sizes(scope, step, index, angle, (x[0], x[2], cos[2]))
    scope.require_at_least(step.op, "operand `x`", x, [0, 0, 0, 2 * cos[2]])


FAMILY = KernelFamily(frozenset({"nn.rotary_embedding"}), reject_nothing, _write, require=_require)
"""Rotary position embedding."""
