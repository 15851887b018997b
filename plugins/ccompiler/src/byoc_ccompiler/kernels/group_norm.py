"""Group normalisation: two sums over each group of channels, which lies side by side, and one pass that scales it."""

from __future__ import annotations

from byoc_core.authoring.csource import FunctionScope
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim, c_literal
from byoc_core.dims import product

from byoc_ccompiler.attributes import float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 500
"""Estimated picoseconds of one element in all three passes."""

_SUM = """\
/* The sum of differences from a shift, or of their squares; elements that stand 16 apart are added up together. */
static inline CTYPE {name}_sum(const CTYPE *from, int64_t count, CTYPE shift, int squared) {
  CTYPE part[16] = {0}, total = 0;
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) {
      const CTYPE apart = from[k + lane] - shift;
      part[lane] += squared ? apart * apart : apart;
    }
  }
  for (int64_t lane = 0; lane < 16; ++lane) total += part[lane];
  for (; k < count; ++k) total += squared ? (from[k] - shift) * (from[k] - shift) : from[k] - shift;
  return total;
}
"""


def _write(kernel: Kernel) -> None:
    """Writes the kernel: a row is one group of one image."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "place", "mean", "scale", "channel", "total", "factor", "added")
    x, gamma, beta = step.operands
    batch, channels, *rest = shape_of(x)
    groups, inner = int_of(step.binding, "groups"), product(rest)
    members, dtype, ctype = channels // groups, dtype_of(x), kernel.ctype(x)
    length, root = c_dim(members * inner), "sqrtf" if dtype == "float32" else "sqrt"
    epsilon = c_literal(float_of(step.binding, "epsilon"), dtype)
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {ctype} *const from = {kernel.input(x)} + row * {length};",
        f"    {ctype} *const to = {kernel.output(step.result)} + row * {length};",
        f"    const {ctype} mean = {{name}}_sum(from, {length}, 0, 0) / ({ctype}){length};",
        f"    const {ctype} total = {{name}}_sum(from, {length}, mean, 1);",
        f"    const {ctype} scale = 1 / {root}(total / ({ctype}){length} + {epsilon});",
        f"    for (int64_t place = 0; place < {c_dim(members)}; ++place) {{",
        f"      const int64_t channel = row % {groups} * {c_dim(members)} + place;",
        f"      const {ctype} factor = scale * {kernel.input(gamma, 'gamma')}[channel];",
        f"      const {ctype} added = {kernel.input(beta, 'beta')}[channel];",
        f"      for (int64_t k = place * {c_dim(inner)}; k < (place + 1) * {c_dim(inner)}; ++k) {{",
        "        to[k] = (from[k] - mean) * factor + added;",
        "      }",
        "    }",
        "  }",
    )
    loop = ParallelLoop(lines, batch * groups, members * inner * _ELEMENT_PS)
    kernel.finish([loop], _SUM.replace("CTYPE", ctype))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    channels, groups = shape_of(step.operands[0])[1], int_of(step.binding, "groups")
    require_equal_sizes(scope, step, 0, [channels], [channels // groups * groups])
    for index in (1, 2):
        require_equal_sizes(scope, step, index, shape_of(step.operands[index]), [channels])


FAMILY = KernelFamily(frozenset({"nn.group_norm"}), reject_non_floats, _write, require=_require)
"""Group normalisation."""
