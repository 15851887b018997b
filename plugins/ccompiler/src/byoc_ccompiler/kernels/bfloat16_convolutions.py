"""Convolution, channels last, as a matrix product of pixels and filters that are rounded to bfloat16.

As in :mod:`~byoc_ccompiler.kernels.implicit_gemm` the factors of a pixel are found through pointers, but here they are
gathered: rounded, they are a quarter of the columns of windows in float32, for some pixels at a time.
"""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring.csource import ParallelLoop, c_dim
from byoc_core.ir import Constant
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_blocks import DEPTH, ROWS
from byoc_ccompiler.kernels.bfloat16_loops import LOCALS, VARIABLES, BlockedRows, count_steps, panel_columns
from byoc_ccompiler.kernels.bfloat16_products import pack_panels
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue_text import TextTile
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm
from byoc_ccompiler.kernels.window_text import COPY_LOCALS, copy_loop, rows_function, table_lines, zeros
from byoc_ccompiler.steps import Step

__all__ = ["is_suited", "write"]

_MAX_TAPS = 256
"""Taps for which the pointers of a block lie on the stack."""

_LOCALS = (*LOCALS, *COPY_LOCALS, "rows", "window", "tap")


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Tells whether the option permits it, for a convolution of floats, channels last, whose filter is constant."""
    geometry = ConvolutionGeometry.of_step(step)
    is_whole = geometry.groups == 1 and isinstance(step.operands[1], Constant) and geometry.num_taps <= _MAX_TAPS
    return kernel.options.precision == "bfloat16" and geometry.dtype == "float32" and is_whole


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    kernel.names.reserve(_LOCALS)
    anchor = kernel.group.steps[0]
    columns = ConvolutionGeometry.of_step(anchor).out_channels
    width = panel_columns(columns)
    plan = replace(ImplicitGemm.of(kernel), rows=ROWS, vectors=width * 4 // kernel.unit.nbytes, columns=width)
    steps = int(str(count_steps(plan.depth)))
    rows = BlockedRows(kernel, plan.num_pixels, columns, plan.runs * steps, width)
    x = kernel.input(anchor.operands[0], "x")
    weights = kernel.input(kernel.scope.constants.derive(pack_panels(_filter(kernel, plan), width)), "weights")
    kernel.scratch, kernel.scratch_dtype = rows.scratch, "uint16"
    body: list[str | ParallelLoop] = [
        *([] if rows.is_near else ["  uint16_t *rounded = scratch;"]),
        f"  const uint16_t *panels = {weights};",
        f"  const int tiles = {rows.blocks.permit}();",
    ]
    names = ("sums", str(width), "m0", "m_count", "n0", "n_count")
    tile = TextTile(*names, width, leading=("n",) if plan.copies else ())
    source = "image" if plan.copies else x
    setup = table_lines(kernel, plan)
    loops = rows.lines(setup, _round_lines(kernel, plan, rows, source, steps), tile)
    variables = list(VARIABLES)
    if plan.copies:
        body += [
            f"  float *image = (float *)(scratch + {c_dim(kernel.scratch)});",
            f"  for (int64_t n = 0; n < {c_dim(plan.shape.batch)}; ++n) {{",
            copy_loop(plan, x),
            *loops,
            "  }",
        ]
        kernel.scratch = kernel.scratch + plan.padded[0] * plan.padded[1] * plan.shape.channels * 2
        variables += ["float *image", "int64_t n"]
    else:
        body += loops
    kernel.finish(body, variables=variables)


def _round_lines(kernel: Kernel, plan: ImplicitGemm, rows: BlockedRows, source: str, steps: int) -> list[str]:
    """Gives the lines that gather and round the factors of a block's pixels."""
    if not plan.has_pointers:
        step = c_dim(plan.steps[3])
        return [
            "for (int64_t row = 0; row < m_count; ++row) {",
            f"  {rows.blocks.round}({source} + (m0 + row) * {step}, {plan.depth}, to + row * {DEPTH});",
            "}",
        ]
    outside = zeros(kernel, plan.shape.dtype, plan.depth) if plan.shape.is_padded and not plan.copies else source
    return [
        "if (m_count <= 0) continue;",
        f"{rows_function(kernel, plan.shape.dtype, ROWS)}(rows, {source}, {outside}, &window, m0);",
        f"for (int64_t tap = 0; tap < {plan.runs}; ++tap, to += {steps * ROWS * DEPTH}) {{",
        "  for (int64_t row = 0; row < m_count; ++row) {",
        f"    {rows.blocks.round}(rows[tap * {ROWS} + row], {plan.depth}, to + row * {DEPTH});",
        "  }",
        "}",
    ]


def _filter(kernel: Kernel, plan: ImplicitGemm) -> NDArray:
    """Gives the filter as runs x depth x output channels."""
    weight = kernel.group.steps[0].operands[1]
    assert isinstance(weight, Constant)
    array = plan.shape.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
    return array.transpose(2, 3, 1, 0).reshape(plan.runs, plan.depth, plan.shape.out_channels)
