"""Quantisation: floats as integers with a scale and a zero point, and back."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.csource import FunctionScope
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim
from byoc_core.dims import ceildiv, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 300
"""Estimated picoseconds of one element."""

_GRAIN = 64


def _quantised(kernel: Kernel, step: Step, x: str, scale: str, zero: str) -> list[str]:
    """Gives the lines that compute ``number``, the integer of an element."""
    wide, narrow = kernel.ctype(step.operands[0]), dtype_of(step.result)
    limits = np.iinfo(narrow)
    rounded = f"rint{'f' if wide == 'float' else ''}({x} / {scale})"
    return [
        f"const {wide} shifted = {rounded} + ({wide}){zero};",
        f"const {wide} raised = shifted < {limits.min} ? {limits.min} : shifted;",
        f"const {wide} limited = raised > {limits.max} ? {limits.max} : raised;",
        f"const {kernel.ctype(step.result)} number = ({kernel.ctype(step.result)})(shifted != shifted ? 0 : limited);",
    ]


def _restored(kernel: Kernel, step: Step, x: str, scale: str, zero: str) -> list[str]:
    """Gives the lines that compute ``number``, the float that an integer stands for."""
    wide, bits = kernel.ctype(step.result), dtype_info(dtype_of(step.operands[0])).bits
    if bits <= 16:
        steps = f"(int32_t){x} - (int32_t){zero}"
    elif bits == 32:
        steps = f"(int64_t){x} - (int64_t){zero}"
    else:
        steps = f"byoc_subtract_i64((int64_t){x}, (int64_t){zero})"
    return [f"const {wide} number = ({wide})({steps}) * {scale};"]


def _write(kernel: Kernel) -> None:
    """Writes the kernel: rows along which the parameters stay, or stand side by side."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "shifted", "raised", "limited", "number", "block")
    x, scale, zero = step.operands
    shape = shape_of(x)
    source, out = kernel.input(x), kernel.output(step.result)
    factor = kernel.literal(scale) or f"{kernel.input(scale, 'scale')}[PLACE]"
    centre = kernel.literal(zero) or f"{kernel.input(zero, 'zero')}[PLACE]"
    compute = _quantised if step.op == "quantize" else _restored
    block = int_of(step.binding, "block_size")
    if not shape_of(scale):
        body = compute(kernel, step, f"{source}[k]", factor.replace("PLACE", "0"), centre.replace("PLACE", "0"))
        lines = (
            f"  for (int64_t k = {FIRST_ITEM}; k < {END_ITEM}; ++k) {{",
            *(f"    {line}" for line in body),
            f"    {out}[k] = number;",
            "  }",
        )
        kernel.finish([ParallelLoop(lines, product(shape), _ELEMENT_PS, _GRAIN)])
        return
    view = view_along(shape, axis_of(step.binding, len(shape)))
    size, inner = c_dim(view.size), c_dim(view.inner)
    if view.inner == 1:
        count, run, place = view.outer, view.size, "k"
        if block:
            place = f"row * {c_dim(ceildiv(view.size, block))} + k / {block}"
    else:
        count, run, place = view.outer * view.size, view.inner, f"row % {size}"
        if block:
            blocks = c_dim(ceildiv(view.size, block))
            place = f"(row / {size} * {blocks} + row % {size} / {block}) * {inner} + k"
    body = compute(kernel, step, "from[k]", factor.replace("PLACE", place), centre.replace("PLACE", place))
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {kernel.ctype(x)} *const from = {source} + row * {c_dim(run)};",
        f"    {kernel.ctype(step.result)} *const to = {out} + row * {c_dim(run)};",
        f"    for (int64_t k = 0; k < {c_dim(run)}; ++k) {{",
        *(f"      {line}" for line in body),
        "      to[k] = number;",
        "    }",
        "  }",
    )
    kernel.finish([ParallelLoop(lines, count, run * _ELEMENT_PS)])


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the parameters checked to be as many as the axis has indices, or blocks."""
    shape, block = shape_of(step.operands[0]), int_of(step.binding, "block_size")
    if not shape_of(step.operands[1]):
        return
    axis = axis_of(step.binding, len(shape))
    wanted = shape[axis : axis + 1]
    if block:
        wanted = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :])
    for index in (1, 2):
        require_equal_sizes(scope, step, index, shape_of(step.operands[index]), wanted)


FAMILY = KernelFamily(frozenset({"quantize", "dequantize"}), reject_nothing, _write, require=_require)
"""Quantisation, and back."""
