"""Local response normalisation across channels."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_literal
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILY"]

_POWER_PS = 10_000
"""Estimated picoseconds of one power."""


def _write(kernel: Kernel) -> None:
    """Writes the kernel: channel by channel, the squares of its neighbours added up in the result itself."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "first", "last", "near", "base")
    (x,) = step.operands
    shape, dtype, ctype = shape_of(x), dtype_of(x), kernel.ctype(x)
    channels, inner = c_dim(shape[1]), product(shape[2:])
    size = int_of(step.binding, "size")
    alpha, beta, bias = (float_of(step.binding, name) for name in ("alpha", "beta", "bias"))
    power = "powf" if dtype == "float32" else "pow"
    every = f"for (int64_t k = 0; k < {c_dim(inner)}; ++k)"
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {ctype} *const from = {kernel.input(x)} + row * {c_dim(inner)};",
        f"    {ctype} *const to = {kernel.output(step.result)} + row * {c_dim(inner)};",
        f"    const int64_t first = byoc_max(-{(size - 1) // 2}, -(row % {channels}));",
        f"    const int64_t last = byoc_min({size // 2}, {channels} - 1 - row % {channels});",
        f"    {every} to[k] = 0;",
        "    for (int64_t near = first; near <= last; ++near) {",
        f"      {every} to[k] += from[near * {c_dim(inner)} + k] * from[near * {c_dim(inner)} + k];",
        "    }",
        f"    {every} {{",
        f"      const {ctype} base = {c_literal(bias, dtype)} + {c_literal(alpha / size, dtype)} * to[k];",
        f"      to[k] = from[k] / {power}(base, {c_literal(beta, dtype)});",
        "    }",
        "  }",
    )
    kernel.finish([ParallelLoop(lines, product(shape[:2]), inner * _POWER_PS)])


def _reject(binding: Binding) -> Rejection | None:
    return reject_non_floats(binding)


FAMILY = KernelFamily(frozenset({"nn.lrn"}), _reject, _write)
"""Local response normalisation."""
