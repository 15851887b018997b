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
    source, out = kernel.source(x), kernel.target(step.result)
    across, along = kernel.source(cos, "cos_"), kernel.source(sin, "sin_")
    row, angle, k = map(c.Variable, ("row", "angle", "k"))
    left, right = (c.Variable(name, c.CType(source.dtype)) for name in ("left", "right"))
    near, far = (k * 2, k * 2 + 1) if flag_of(step.binding, "interleaved") else (k, k + half)
    near, far, rest = row * size + near, row * size + far, row * size + 2 * half
    turned = (
        c.Let(left, source[near]),
        c.Let(right, source[far]),
        c.Store(out, near, across[angle + k] * left - along[angle + k] * right),
        c.Store(out, far, along[angle + k] * left + across[angle + k] * right),
    )
    rows = (
        c.Let(angle, (row // (heads * steps) * steps + row % steps) * half),
        c.For(k, c.Size(0), c.Size(half), turned),
        c.Copy(out, rest, source, rest, c.Size(size - 2 * half)),
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
