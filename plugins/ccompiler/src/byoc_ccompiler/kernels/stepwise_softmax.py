"""Softmax whose steps are each rounded to the dtype: a line at a time, by a function of the core's header."""

from __future__ import annotations

from byoc_core.authoring.csource import c_dim, c_suffix

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop_text as line_loop
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILY", "HEADER", "USE"]

HEADER = "byoc_stepwise_softmax.h"
"""The header that declares the function."""

USE = "byoc_stepwise_softmax_"
"""What a text holds that needs :data:`HEADER`."""

_ELEMENT_PS = 1_500
"""Estimated picoseconds of one element."""

_WIDE = {"bfloat16": "float32", "float16": "float32"}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: a line is widened to scratch memory, and its softmax made beside it."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "worker", "mine", "line")
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    dtype = dtype_of(x)
    wide, suffix = _WIDE.get(dtype, dtype), c_suffix(dtype)
    size, inner = c_dim(view.size), c_dim(view.inner)
    start = f"line / {inner} * {c_dim(view.size * view.inner)} + line % {inner}"
    place = f"[k * {inner}]"
    given, made = f"from{place}", f"mine[{size} + k]"
    if wide != dtype:
        given, made = f"byoc_{suffix}_to_{c_suffix(wide)}({given})", f"byoc_{c_suffix(wide)}_to_{suffix}({made})"
    lines = [
        f"const {kernel.ctype(x)} *const from = {kernel.input(x)} + {start};",
        f"{kernel.ctype(x)} *const to = {kernel.output(step.result)} + {start};",
        f"for (int64_t k = 0; k < {size}; ++k) mine[k] = {given};",
        f"{USE}{suffix}(mine, mine + {size}, {size}, {int(bool(step.binding.attrs['zero_unseen']))});",
        f"for (int64_t k = 0; k < {size}; ++k) to{place} = {made};",
    ]
    count = 0 if view.size == 0 else view.outer * view.inner
    loop = line_loop(kernel, lines, count, view.size * _ELEMENT_PS, scratch=2 * view.size, dtype=wide)
    kernel.finish([loop])


FAMILY = KernelFamily(frozenset({"nn.stepwise_softmax"}), reject_nothing, _write, takes_halves=True)
"""Softmax by steps."""
