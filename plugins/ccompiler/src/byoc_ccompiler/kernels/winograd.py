"""Convolution with a filter of 3 by 3 by Winograd's minimal filtering, channels last.

The image is cut into tiles that overlap by 2 pixels. Each is transformed, vectors running along the channels, into 16
(``F(2, 3)``) or 36 (``F(4, 3)``) matrices of tiles by channels, which are multiplied by the filter's. The products of
one block of tiles and one panel of output channels are transformed back on the stack, and meet what follows the
convolution there. The filter is transformed in float64 when the code is generated, and rounded once.

Errors: with the matrices of :mod:`~byoc_ccompiler.kernels.winograd_transforms` and ``C`` input channels, an output is
off by at most ``gamma_n |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|``, summed over the channels, where ``n`` is
``C`` and the roundings of the three transforms (:data:`TRANSFORM_ROUNDINGS`). Measured with normal data in float32,
64 to 512 channels: ``F(2, 3)`` 1e-6, ``F(4, 3)`` 3e-6 of the largest output. All outputs of a tile depend on all of its
inputs, so NaN and infinities become NaN in the whole tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim, c_suffix, c_type
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue_lines, reserve_epilogue_names
from byoc_ccompiler.kernels.tiles import panel_function
from byoc_ccompiler.kernels.window_rows import zeros
from byoc_ccompiler.kernels.winograd_plan import WinogradPlan, choose_plan
from byoc_ccompiler.kernels.winograd_transforms import map_inputs, map_products
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["TRANSFORM_ROUNDINGS", "is_suited", "write"]

TRANSFORM_ROUNDINGS = {2: 7, 4: 15}
"""By the outputs of a tile along an axis: roundings that an output meets beside those of its sum over channels.

One of the filter; along each axis 1 or 3 of the inputs and 2 or 4 of the outputs, even where nothing is contracted.
"""

_TRANSFORM_PS = 1500
"""Estimated picoseconds to transform one vector at one point."""

_LOCALS = (
    *("t", "t0", "t_count", "n", "y", "y0", "col", "x0", "x_count", "k", "at", "item", "panel", "block"),
    *("slot", "products", "pixels", "o0", "o_count", "from", "factors", "ahead", "tiles", "b0", "round", "rounds"),
)


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Tells whether a convolution has the form, is permitted by the option ``winograd``, and is expected to gain."""
    geometry = ConvolutionGeometry.of_step(step)
    has_form = (
        geometry.layout == "NHWC"
        and (geometry.filter_height, geometry.filter_width) == (3, 3)
        and geometry.strides == (1, 1)
        and geometry.dilation == (1, 1)
        and geometry.groups == 1
    )
    has_rows = kernel.strides(step.operands[0])[-1] == 1
    is_constant = isinstance(step.operands[1], Constant)
    return (
        has_form
        and has_rows
        and is_constant
        and choose_plan(geometry, kernel.unit, kernel.options.winograd) is not None
    )


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    plan = choose_plan(ConvolutionGeometry.of_step(anchor), kernel.unit, kernel.options.winograd)
    assert plan is not None
    write_plan(kernel, plan)


def write_plan(kernel: Kernel, plan: WinogradPlan) -> None:
    """Writes the kernel as planned."""
    x, weight = kernel.group.steps[0].operands
    assert isinstance(weight, Constant)
    kernel.names.reserve(_LOCALS)
    reserve_epilogue_names(kernel)
    packed = _pack_filter(plan, kernel.scope.constants.array(weight, kernel.scope.where))
    image, weights = kernel.input(x, "x"), kernel.input(kernel.scope.constants.derive(packed), "weights")
    kernel.scratch = plan.scratch_blocks * plan.block_step
    if plan.parts_are_blocks:
        kernel.finish([_block_loop(kernel, plan, image, weights)])
        return
    ctype, round_tiles = c_type(plan.geometry.dtype), plan.blocks * plan.rows
    transforms = _transform_lines(kernel, plan, image, (FIRST_ITEM, f"byoc_min({END_ITEM}, t_count)"))
    products = _product_lines(kernel, plan, weights, (FIRST_ITEM, END_ITEM), str(plan.blocks))
    body: list[str | ParallelLoop] = [
        f"  {ctype} *const tiles = scratch;",
        f"  for (int64_t t0 = 0; t0 < {c_dim(plan.num_tiles)}; t0 += {round_tiles}) {{",
        f"    const int64_t t_count = byoc_min({round_tiles}, {c_dim(plan.num_tiles)} - t0);",
        ParallelLoop(tuple(transforms), round_tiles, _transform_ps(plan)),
        ParallelLoop(tuple(products), plan.num_panels * plan.blocks, _product_ps(plan)),
        "  }",
    ]
    kernel.finish(body, variables=[f"{ctype} *tiles", "int64_t t0", "int64_t t_count"])


def _pack_filter(plan: WinogradPlan, weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Gives the transformed filter: panels of points of input channels of output channels."""
    factors = plan.algorithm.transform_filter(plan.geometry.ordered_filter(weight))
    padded = np.zeros((*factors.shape[:2], plan.num_panels * plan.width))
    padded[..., : factors.shape[2]] = factors
    panels = padded.reshape(*factors.shape[:2], plan.num_panels, plan.width).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(panels, dtype=weight.dtype)


def _place_lines(plan: WinogradPlan, tile: str) -> list[str]:
    """Gives the declarations of a tile's first row and column, and of its image where it is not the only one."""
    size, down, right = plan.algorithm.num_outputs, plan.tiles_down, plan.tiles_right
    image = [f"const int64_t n = t / {c_dim(down * right)};"] if plan.geometry.batch != 1 else []
    return [
        f"const int64_t t = t0 + {tile}, y0 = t / {c_dim(right)} % {c_dim(down)} * {size};",
        f"const int64_t x0 = t % {c_dim(right)} * {size};",
        *image,
    ]


def _block_loop(kernel: Kernel, plan: WinogradPlan, image: str, weights: str) -> ParallelLoop:
    """Gives the loop over blocks: whoever gets some transforms their tiles, round by round, in memory of its own."""
    lines = (
        f"  {c_type(plan.geometry.dtype)} *const tiles =",
        f"      scratch + {FIRST_ITEM} / {c_dim(plan.part_blocks)} * {plan.part_places * plan.block_step};",
        f"  const int64_t rounds = ({END_ITEM} - {FIRST_ITEM} + {plan.blocks - 1}) / {plan.blocks};",
        f"  const int64_t round = ({END_ITEM} - {FIRST_ITEM} + rounds - 1) / byoc_max(rounds, 1);",
        f"  for (int64_t b0 = {FIRST_ITEM}; b0 < {END_ITEM}; b0 += round) {{",
        f"    const int64_t t0 = b0 * {plan.rows};",
        f"    const int64_t t_count = byoc_min(byoc_min(round, {END_ITEM} - b0) * {plan.rows},",
        f"        {c_dim(plan.num_tiles)} - t0);",
        *_transform_lines(kernel, plan, image, ("0", "t_count")),
        *_product_lines(kernel, plan, weights, ("0", f"{plan.num_panels} * round"), "round"),
        "  }",
    )
    item_ps = plan.rows * _transform_ps(plan) + plan.num_panels * _product_ps(plan)
    return ParallelLoop(lines, plan.total_blocks, item_ps, plan.part_blocks)


def _transform_ps(plan: WinogradPlan) -> int:
    """Gives the estimated picoseconds to transform one tile."""
    return -(-plan.geometry.channels // plan.lanes) * plan.num_points * _TRANSFORM_PS


def _product_ps(plan: WinogradPlan) -> int:
    """Gives the estimated picoseconds of the products of one block and one panel."""
    products = plan.rows * plan.width * plan.geometry.channels * plan.num_points
    return products * multiply_add_ps(plan.unit, plan.geometry.dtype)


def _transform_lines(kernel: Kernel, plan: WinogradPlan, image: str, tiles: tuple[str, str]) -> list[str]:
    """Gives the loop that transforms a round's tiles from the first to the end of a range."""
    geometry, num, ctype = plan.geometry, plan.algorithm.num_inputs, c_type(plan.geometry.dtype)
    top, left = geometry.padding[:2]
    image_step, _, row_step, pixel_step = geometry.image_steps(kernel.strides(kernel.group.steps[0].operands[0]))
    batch = f"n * {c_dim(image_step)} + " if geometry.batch != 1 else ""
    transform = kernel.helper(f"winograd_input_{plan.algorithm.num_outputs}", _input_function(plan))
    place = f"item / {plan.rows} * {plan.block_step} + item % {plan.rows} * {plan.row_step}"
    return [
        f"    for (int64_t item = {tiles[0]}; item < {tiles[1]}; ++item) {{",
        *(f"      {line}" for line in _place_lines(plan, "item")),
        f"      const {ctype} *at[{plan.num_points}];",
        f"      for (int64_t k = 0; k < {plan.num_points}; ++k) {{",
        f"        const int64_t y = y0 + k / {num} - {top}, col = x0 + k % {num} - {left};",
        f"        at[k] = y >= 0 && y < {c_dim(geometry.height)} && col >= 0 && col < {c_dim(geometry.width)}",
        f"                    ? {image} + {batch}y * {c_dim(row_step)} + col * {c_dim(pixel_step)}",
        f"                    : {zeros(kernel, geometry.dtype, geometry.channels)};",
        "      }",
        f"      {transform}(at, tiles + {place});",
        "    }",
    ]


def _product_lines(kernel: Kernel, plan: WinogradPlan, weights: str, items: tuple[str, str], blocks: str) -> list[str]:
    """Gives the loop that multiplies, transforms back and does what follows, panel by panel, block by block of a round.

    Args:
        kernel: the kernel.
        plan: its plan.
        weights: C pointer to the panels of the filter.
        items: C expressions of the first item and the end: a panel and a block each.
        blocks: C expression of the blocks of a round.
    """
    geometry, ctype = plan.geometry, c_type(plan.geometry.dtype)
    size, width, points = plan.algorithm.num_outputs, plan.width, plan.num_points
    multiply = panel_function(kernel, geometry.dtype, plan.rows, plan.vectors, fetches=plan.fetches)
    ahead, ahead_lines = _ahead(plan, weights, blocks)
    transform = kernel.helper(f"winograd_output_{size}", _output_function(plan))
    tile = SumsTile(
        f"(pixels + (y - y0) * {size * width})",
        str(width),
        "x0",
        "x_count",
        "o0",
        "o_count",
        width,
        ("0" if geometry.batch == 1 else "n", "y"),
    )
    return [
        f"    for (int64_t item = {items[0]}; item < {items[1]}; ++item) {{",
        f"      const int64_t panel = item / {blocks}, block = item % {blocks} * {plan.rows};",
        "      if (block >= t_count) continue;",
        f"      const int64_t o0 = panel * {width}, o_count = byoc_min({width}, {geometry.out_channels} - o0);",
        f"      const {ctype} *from = tiles + block * {points * plan.row_step};",
        f"      const {ctype} *factors = {weights} + panel * {plan.panel_size};",
        *(f"      {line}" for line in ahead_lines),
        f"      {ctype} products[{points * plan.rows * width}] __attribute__((aligned({plan.unit.nbytes})));",
        f"      for (int64_t k = 0; k < {points}; ++k) {{",
        f"        {multiply}(from + k * {plan.point_step}, {plan.row_step}, factors + k * {geometry.channels * width},",
        f"            {geometry.channels}, {ahead}products + k * {plan.rows * width});",
        "      }",
        f"      for (int64_t slot = 0; slot < byoc_min({plan.rows}, t_count - block); ++slot) {{",
        *(f"        {line}" for line in _place_lines(plan, "block + slot")),
        f"        const int64_t x_count = byoc_min({size}, {c_dim(geometry.out_width)} - x0);",
        f"        {ctype} pixels[{size**2 * width}] __attribute__((aligned({plan.unit.nbytes})));",
        f"        {transform}(products + slot * {width}, pixels);",
        f"        for (int64_t y = y0; y < byoc_min({c_dim(geometry.out_height)}, y0 + {size}); ++y) {{",
        *epilogue_lines(kernel, tile, "          "),
        "        }",
        "      }",
        "    }",
    ]


def _ahead(plan: WinogradPlan, weights: str, blocks: str) -> tuple[str, list[str]]:
    """Gives the arguments that say what to fetch, an item's share of the next panel, and the lines before."""
    if not plan.fetches:
        return "", []
    ctype, depth, size = c_type(plan.geometry.dtype), plan.geometry.channels, plan.panel_size
    share = -(-plan.width // plan.blocks)
    lines = [
        f"const {ctype} *ahead = {weights} + byoc_min(panel + 1, {plan.num_panels - 1}) * {size};",
        f"ahead += item % {blocks} * {size // plan.blocks};",
    ]
    return f"ahead + k * {depth * share}, {share}, ", lines


def _input_function(plan: WinogradPlan) -> str:
    """Gives a C function that transforms one tile: ``(at, to)``, addresses of its pixels and of the first point."""
    dtype, num, channels = plan.geometry.dtype, plan.algorithm.num_inputs, plan.geometry.channels
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    target = f"*(vec_{suffix}u *)(to + (i * {num} + {{}}) * {plan.point_step} + c)"
    down = map_inputs(plan.algorithm.inputs, "d[{}]".format, "part[{}][j]".format, dtype)
    right = map_inputs(plan.algorithm.inputs, "part[i][{}]".format, target.format, dtype)
    lines = [
        "/* Transforms one tile, each pixel's channels lying at an address of their own. The last vector of channels",
        " * may begin inside the one before. */",
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *const *at, {ctype} *restrict to) {{",
        "  BYOC_CONTRACT",
        f"  for (int64_t c0 = 0; c0 < {channels}; c0 += {plan.lanes}) {{",
        f"    const int64_t c = byoc_min(c0, {channels - plan.lanes});",
        f"    vec_{suffix} part[{num}][{num}], even, odd;",
        "    BYOC_UNROLL",
        f"    for (int j = 0; j < {num}; ++j) {{",
        f"      vec_{suffix} d[{num}];",
        "      BYOC_UNROLL",
        f"      for (int i = 0; i < {num}; ++i) d[i] = *(const vec_{suffix}u *)(at[i * {num} + j] + c);",
        *(f"      {line}" for line in down),
        "    }",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {num}; ++i) {{",
        *(f"      {line}" for line in right),
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


def _output_function(plan: WinogradPlan) -> str:
    """Gives a C function that transforms the products of one tile back: ``(products, pixels)``."""
    dtype, num, size = plan.geometry.dtype, plan.algorithm.num_inputs, plan.algorithm.num_outputs
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    point_step, pairs = plan.rows * plan.width, (num - 2) // 2
    target = f"*(vec_{suffix} *)(pixels + (i * {size} + {{}}) * {plan.width} + v)"
    down = map_products(plan.algorithm.outputs, "m[{}]".format, "part[{}][j]".format, dtype)
    right = map_products(plan.algorithm.outputs, "part[i][{}]".format, target.format, dtype)
    lines = [
        "/* Transforms the products of one tile into its pixels. */",
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *products, {ctype} *restrict pixels) {{",
        "  BYOC_CONTRACT",
        f"  for (int64_t v = 0; v < {plan.width}; v += {plan.lanes}) {{",
        f"    vec_{suffix} part[{size}][{num}], plus[{pairs}], minus[{pairs}];",
        "    BYOC_UNROLL",
        f"    for (int j = 0; j < {num}; ++j) {{",
        f"      vec_{suffix} m[{num}];",
        "      BYOC_UNROLL",
        f"      for (int i = 0; i < {num}; ++i) {{",
        f"        m[i] = *(const vec_{suffix} *)(products + (i * {num} + j) * {point_step} + v);",
        "      }",
        *(f"      {line}" for line in down),
        "    }",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {size}; ++i) {{",
        *(f"      {line}" for line in right),
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)
