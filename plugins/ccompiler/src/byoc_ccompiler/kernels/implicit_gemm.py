"""Convolution, channels last, as a matrix product that is never written down: pixels times filters.

The rows of a register tile are pixels of the result, whatever line of the image they lie in, its columns are output
channels. The factors of a row are found through pointers, one for each tap of the filter: a run of channels of the
image, or zeros where the window reaches beyond it. So neither columns of windows nor a padded image are written.

Where the image has few channels the runs would be short: there one run is a whole line of the filter (its pixels lie
side by side), which wants an image padded with zeros; the copy is small, as the image is. Of many small images each
is copied and computed by one thread; the pixels of larger ones are shared by all, one image after another.
"""

from __future__ import annotations

import re

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_panels import count_panels, pack_lines, packed_constant, panel_size
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm
from byoc_ccompiler.kernels.tiles import panel_function
from byoc_ccompiler.kernels.window_rows import rows_function, window_type, zeros
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["COPY_LOCALS", "copy_loop", "table_lines", "window_line", "write"]

_COPY_PS = 200
"""Estimated picoseconds to copy one element."""

COPY_LOCALS = ("image", "n", "row", "to", "y", "from", "col", "pixel", "c", "j")
"""Names of the variables of :func:`copy_loop`, which a kernel that has one keeps from its pointers."""

_LOCALS = (
    *COPY_LOCALS,
    *("rows", "window", "at_hand", "item", "block", "panel", "m0", "m_count", "n0", "n_count", "g", "packed", "tap"),
)


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution, channels last, and of what follows it elementwise."""
    kernel.names.reserve(_LOCALS)
    anchor = kernel.group.steps[0]
    plan = ImplicitGemm.of(kernel)
    shape, ctype, weight = plan.shape, c_type(plan.shape.dtype), anchor.operands[1]
    x = kernel.input(anchor.operands[0], "x")
    kernel.scratch_dtype = shape.dtype
    body: list[str | ParallelLoop] = []
    if isinstance(weight, Constant):
        packed = kernel.input(packed_constant(kernel, shape, weight, plan.columns), "weights")
        body.append(f"  const {ctype} *packed = {packed};")
    else:
        kernel.scratch = shape.groups * count_panels(shape, plan.columns) * panel_size(shape, plan.columns)
        body += [
            f"  const {ctype} *packed = scratch;",
            pack_lines(shape, ctype, kernel.input(weight, "weight"), plan.columns),
        ]
    variables = [f"const {ctype} *packed"]
    if plan.copies and plan.is_small_image:
        body.append(_image_loop(kernel, plan, x))
    elif plan.copies:
        body += [
            f"  {ctype} *image = scratch + {c_dim(kernel.scratch)};",
            f"  for (int64_t n = 0; n < {c_dim(shape.batch)}; ++n) {{",
            copy_loop(plan, x),
            _tile_loop(kernel, plan, "image"),
            "  }",
        ]
        kernel.scratch = kernel.scratch + plan.padded[0] * plan.padded[1] * shape.channels
        variables += [f"{ctype} *image", "int64_t n"]
    else:
        body.append(_tile_loop(kernel, plan, x))
    kernel.finish(body, variables=variables)


def _image_loop(kernel: Kernel, plan: ImplicitGemm, x: str) -> ParallelLoop:
    """Gives the loop over images, each of which is copied to the stack."""
    shape, (height, width) = plan.shape, plan.padded
    copies, tiles = copy_loop(plan, x), _tile_loop(kernel, plan, "image")
    lines = (
        f"  {c_type(shape.dtype)} image[{c_dim(height * width * shape.channels)}];",
        f"  for (int64_t n = {FIRST_ITEM}; n < {END_ITEM}; ++n) {{",
        *copies.serial_lines(),
        *tiles.serial_lines(),
        "  }",
    )
    return ParallelLoop(lines, shape.batch, copies.work_ps + tiles.work_ps)


def copy_loop(plan: ImplicitGemm, x: str) -> ParallelLoop:
    """Gives the loop that copies the image ``n`` into ``image``, line by line, padded with zeros."""
    shape, (batch, channel, row, pixel) = plan.shape, plan.steps
    height, width = plan.padded
    top, left, _, right = shape.padding
    channels, line = shape.channels, c_dim(shape.width * shape.channels)
    if channel == 1 and pixel == channels:
        copy = [f"    memcpy(to, from, {line} * sizeof(*to));", f"    to += {line};"]
    else:
        copy = [
            f"    for (int64_t col = 0; col < {c_dim(shape.width)}; ++col, to += {channels}) {{",
            f"      const {c_type(shape.dtype)} *pixel = from + col * {c_dim(pixel)};",
            f"      for (int64_t c = 0; c < {channels}; ++c) to[c] = pixel[c * {c_dim(channel)}];",
            "    }",
        ]
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    {c_type(shape.dtype)} *to = image + row * {c_dim(width * channels)};",
        f"    const int64_t y = row - {top};",
        f"    if (y < 0 || y >= {c_dim(shape.height)}) {{",
        f"      memset(to, 0, {c_dim(width * channels)} * sizeof(*to));",
        "      continue;",
        "    }",
        f"    const {c_type(shape.dtype)} *from = {x} + n * {c_dim(batch)} + y * {c_dim(row)};",
        f"    for (int64_t j = 0; j < {left * channels}; ++j) *to++ = 0;",
        *copy,
        f"    for (int64_t j = 0; j < {right * channels}; ++j) *to++ = 0;",
        "  }",
    )
    return ParallelLoop(lines, height, width * channels * _COPY_PS)


def _tile_loop(kernel: Kernel, plan: ImplicitGemm, source: str) -> ParallelLoop:
    """Gives the loop over tiles: pixels inside where the filter is large, so that each panel is read once."""
    shape, panels, blocks = plan.shape, plan.shape.groups * plan.panels, plan.blocks
    if plan.panels_outside:
        # Of an empty batch there are no items.
        count = c_dim(1 if blocks == 0 else blocks)
        place = f"block = item % {count}, panel = item / {count}"
    else:
        place = f"block = item / {panels}, panel = item % {panels}"
    tile = _sums_tile(plan)
    epilogue = epilogue_lines(kernel, tile, "    ")
    words = set(re.findall(r"\w+", " ".join(epilogue)))
    first = f"panel % {plan.panels} * {plan.columns}" if shape.groups > 1 else f"panel * {plan.columns}"
    start = f"panel / {plan.panels} * {shape.group_out_channels} + {first}" if shape.groups > 1 else first
    m_count = f"byoc_min({plan.rows}, {c_dim(plan.num_pixels)} - m0)"
    n_count = f"byoc_min({plan.columns}, {shape.group_out_channels} - {first})"
    lines = [
        *table_lines(kernel, plan),
        *(["  int64_t at_hand = -1;"] if plan.has_pointers else []),
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"    const int64_t {place};",
        f"    const int64_t m0 = block * {plan.rows};",
        *([f"    const int64_t m_count = {m_count};"] if tile.num_rows == "m_count" else []),
        *([f"    const int64_t n0 = {start};"] if "n0" in words else []),
        *([f"    const int64_t n_count = {n_count};"] if tile.num_columns == "n_count" else []),
        f"    {c_type(shape.dtype)} sums[{plan.rows * plan.columns}];",
        *_sums_lines(kernel, plan, source),
        *epilogue,
        "  }",
    ]
    item_ps = plan.rows * plan.runs * plan.depth * plan.columns * multiply_add_ps(kernel.unit, shape.dtype)
    return ParallelLoop(tuple(lines), blocks * panels, item_ps)


def _sums_tile(plan: ImplicitGemm) -> TextTile:
    """Gives which part of the result a tile is; its numbers of rows and columns are constants where they can be."""
    is_whole = isinstance(plan.num_pixels, int) and not plan.tail
    per_group, columns = plan.shape.group_out_channels, plan.columns
    num_columns = "n_count"
    if plan.panels == 1 or per_group % columns == 0:
        num_columns = str(min(columns, per_group))
    return TextTile(
        "sums",
        row_step=str(columns),
        first_row="m0",
        num_rows=str(plan.rows) if is_whole else "m_count",
        first_column="0" if plan.shape.groups * plan.panels == 1 else "n0",
        num_columns=num_columns,
        full_columns=columns if num_columns == "n_count" else None,
        leading=("n",) if plan.copies else (),
    )


def table_lines(kernel: Kernel, plan: ImplicitGemm) -> list[str]:
    """Gives the sizes that the rows' pointers follow from, and the place for these pointers."""
    if not plan.has_pointers:
        return []
    return [
        window_line(kernel, plan),
        f"  const {c_type(plan.shape.dtype)} *rows[{plan.runs * plan.rows}];",
    ]


def window_line(kernel: Kernel, plan: ImplicitGemm) -> str:
    """Gives the declaration of ``window``, the sizes that the pointers to the runs of a row follow from."""
    shape, (batch, _, row, pixel) = plan.shape, plan.steps
    height, width, top, left = shape.height, shape.width, *shape.padding[:2]
    if plan.copies:
        (height, width), top, left = plan.padded, 0, 0
        batch, row, pixel = 0, width * shape.channels, shape.channels
    sizes = {
        "last": plan.num_pixels - 1,
        "out_height": shape.out_height,
        "out_width": shape.out_width,
        "height": height,
        "width": width,
        "top": top,
        "left": left,
        "stride_down": shape.strides[0],
        "stride_right": shape.strides[1],
        "taps_down": shape.filter_height,
        "taps_right": 1 if plan.joined else shape.filter_width,
        "apart_down": shape.dilation[0],
        "apart_right": shape.dilation[1],
        "image_step": batch,
        "row_step": row,
        "pixel_step": pixel,
    }
    values = ", ".join(f".{name} = {c_dim(size)}" for name, size in sizes.items())
    return f"  const struct {window_type(kernel)} window = {{{values}}};"


def _sums_lines(kernel: Kernel, plan: ImplicitGemm, source: str) -> list[str]:
    """Gives the lines that compute a tile's sums."""
    shape, depth, counts = plan.shape, plan.depth, plan.row_counts
    group = f"panel / {plan.panels}"
    if shape.groups > 1:
        source += f" + {group} * {depth}"
    panel, ahead = f"packed + panel * {panel_size(shape, plan.columns)}", _ahead(plan)
    tiles = [
        panel_function(kernel, shape.dtype, count, plan.vectors, indirect=plan.has_pointers, fetches=plan.fetches)
        for count in counts
    ]
    if not plan.has_pointers:
        step = c_dim(plan.steps[3])
        row = f"{source} + m0 * {step}"
        return _by_count(plan, [f"{tile}({row}, {step}, {panel}, {depth}, {ahead}sums);" for tile in tiles])
    outside = zeros(kernel, shape.dtype, depth) if shape.is_padded and not plan.copies else source
    finders = [rows_function(kernel, shape.dtype, count) for count in counts]
    key = f"block * {shape.groups} + {group}" if shape.groups > 1 else "block"
    return [
        f"    if (at_hand != {key}) {{",
        f"      at_hand = {key};",
        *(
            f"  {line}"
            for line in _by_count(plan, [f"{find}(rows, {source}, {outside}, &window, m0);" for find in finders])
        ),
        "    }",
        *_by_count(plan, [f"{tile}(rows, {plan.runs}, {depth}, {panel}, {ahead}sums);" for tile in tiles]),
    ]


def _ahead(plan: ImplicitGemm) -> str:
    """Gives the arguments that say what to fetch: a tile's share of the next panel."""
    if not plan.fetches:
        return ""
    assert isinstance(plan.blocks, int)
    size, last = panel_size(plan.shape, plan.columns), plan.shape.groups * plan.panels - 1
    share = -(-plan.columns // plan.blocks)
    first = f"byoc_min(block * {size // plan.blocks}, {size - size // plan.columns * share})"
    return f"packed + byoc_min(panel + 1, {last}) * {size} + {first}, {share}, "


def _by_count(plan: ImplicitGemm, calls: list[str]) -> list[str]:
    """Gives the call for a whole tile, or that and the one for the last tile."""
    if len(calls) == 1:
        return [f"    {calls[0]}"]
    return [f"    if (m_count == {plan.rows}) {calls[0]}", f"    else {calls[1]}"]
