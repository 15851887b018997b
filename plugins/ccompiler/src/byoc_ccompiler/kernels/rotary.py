"""Rotary position embedding."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim
from byoc_core.dims import product

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_PAIR_PS = 400
"""Estimated picoseconds of turning one pair of elements."""


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.rotary_embedding``: one row of each head and step after another."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "across", "along", "angle", "left", "right")
    x, cos, sin = step.operands
    batch, heads, steps, size = shape_of(x)
    half = shape_of(cos)[2]
    source, out, ctype = kernel.input(x), kernel.output(step.result), kernel.ctype(x)
    near, far = ("2 * k", "2 * k + 1") if flag_of(step.binding, "interleaved") else ("k", f"k + {c_dim(half)}")
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {ctype} *const from = {source} + row * {c_dim(size)};",
        f"    {ctype} *const to = {out} + row * {c_dim(size)};",
        (
            f"    const int64_t angle = (row / {c_dim(heads * steps)} * {c_dim(steps)} + row % {c_dim(steps)}) * "
            f"{c_dim(half)};"
        ),
        f"    const {ctype} *const across = {kernel.input(cos, 'cos_')} + angle;",
        f"    const {ctype} *const along = {kernel.input(sin, 'sin_')} + angle;",
        f"    for (int64_t k = 0; k < {c_dim(half)}; ++k) {{",
        f"      const {ctype} left = from[{near}], right = from[{far}];",
        f"      to[{near}] = across[k] * left - along[k] * right;",
        f"      to[{far}] = along[k] * left + across[k] * right;",
        "    }",
        (
            f"    memcpy(to + {c_dim(2 * half)}, from + {c_dim(2 * half)}, "
            f"(size_t)({c_dim(size - 2 * half)}) * sizeof(*to));"
        ),
        "  }",
    )
    kernel.finish([ParallelLoop(lines, product((batch, heads, steps)), size * _PAIR_PS)])


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    x, cos, sin = (shape_of(operand) for operand in step.operands)
    for index, angle in ((1, cos), (2, sin)):
        require_equal_sizes(scope, step, index, angle, (x[0], x[2], cos[2]))
    scope.require_at_least(step.op, "operand `x`", x, [0, 0, 0, 2 * cos[2]])


FAMILY = KernelFamily(frozenset({"nn.rotary_embedding"}), reject_nothing, _write, require=_require)
"""Rotary position embedding."""
