"""Depthwise convolution, channels last: each channel by itself, vectors running along the channels.

A block of neighbouring outputs, in one or two rows, is summed up in registers, so that each pixel is loaded once for
all of them. Where a block's windows all lie inside the image its pixels are found by their distances; at the border
each has an address of its own, that of a pixel of zeros outside. The sums of a block wait in a small array for what
follows the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim, c_suffix, c_type
from byoc_core.dims import Dim
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue_lines, reserve_epilogue_names
from byoc_ccompiler.kernels.window_rows import zeros
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import VectorUnit, multiply_add_ps

__all__ = ["is_suited", "write"]

_CHUNK = 256
"""Channels of a block whose sums wait together, at most."""

_MAX_TAPS = 49
_MAX_REACH = 32
"""Rows and columns of pixels that a block reads, at most: the loops over them are unrolled."""

_LOCALS = (
    *("taps", "item", "n", "y", "y0", "x0", "x_count", "c0", "c_count", "row", "col", "at", "k", "c", "down"),
    "right",
)


@dataclass(frozen=True, slots=True)
class _Block:
    """The outputs that are summed up together, and the pixels that they read.

    Attributes:
        geometry: the sizes of the convolution.
        unit: the vector registers.
        rows: rows of outputs.
        columns: columns of outputs.
        pixel_step: elements from one pixel of the image to the next.
        row_step: elements from one row of the image to the next.
    """

    geometry: ConvolutionGeometry
    unit: VectorUnit
    rows: int
    columns: int
    pixel_step: Dim
    row_step: Dim

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.unit.lanes(self.geometry.dtype)

    @property
    def in_rows(self) -> int:
        """Rows from the first that is read to the last."""
        return (self.rows - 1) * self.geometry.strides[0] + _reach(self.geometry, 0)

    @property
    def in_columns(self) -> int:
        """Columns from the first that is read to the last."""
        return (self.columns - 1) * self.geometry.strides[1] + _reach(self.geometry, 1)

    @property
    def chunk(self) -> int:
        """Channels of one chunk: whole vectors, and no fewer than a vector for the last chunk."""
        channels = self.geometry.channels
        whole = -(-channels // self.lanes) * self.lanes
        for size in range(min(_CHUNK // self.lanes * self.lanes, whole), 0, -self.lanes):
            if channels % size == 0 or channels % size >= self.lanes or size >= channels:
                return size
        return whole


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Tells whether a convolution has as many groups as channels, before and after, channels last.

    There must be channels for a vector, and the filter must be small enough for unrolled loops.
    """
    geometry = ConvolutionGeometry.of_step(step)
    is_depthwise = geometry.is_depthwise and geometry.out_channels == geometry.channels
    has_rows = geometry.layout[-1] == "C" and kernel.strides(step.operands[0])[-1] == 1
    reach = max(_reach(geometry, axis) for axis in (0, 1))
    is_small = geometry.num_taps <= _MAX_TAPS and reach + geometry.strides[0] <= _MAX_REACH
    return is_depthwise and has_rows and is_small and geometry.channels >= kernel.unit.lanes(geometry.dtype)


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    geometry = ConvolutionGeometry.of_step(anchor)
    image_step, _, row_step, pixel_step = geometry.image_steps(kernel.strides(anchor.operands[0]))
    block = _choose_block(geometry, kernel.unit, row_step, pixel_step)
    kernel.names.reserve(_LOCALS)
    reserve_epilogue_names(kernel)
    image = kernel.input(anchor.operands[0], "x")
    ctype = c_type(geometry.dtype)
    taps = _taps_lines(kernel, geometry)
    kernel.finish([*taps, _block_loop(kernel, block, image, image_step)], variables=[f"const {ctype} *taps"])


def _choose_block(geometry: ConvolutionGeometry, unit: VectorUnit, row_step: Dim, pixel_step: Dim) -> _Block:
    """Gives the block that computes fewest outputs beyond the result's, the largest of them."""
    room = unit.registers - min(geometry.num_taps, unit.registers // 2) - 2
    rows = 2 if unit.registers >= 32 and geometry.strides[0] == 1 and geometry.out_height != 1 else 1
    width = geometry.out_width
    reach = (_MAX_REACH - _reach(geometry, 1)) // geometry.strides[1] + 1
    sizes = range(max(1, min(room // rows, reach, 8)), 0, -1)
    columns = min(sizes, key=lambda size: -(-width // size) * (size + 1)) if isinstance(width, int) else sizes[0]
    return _Block(geometry, unit, rows, columns, pixel_step, row_step)


def _reach(geometry: ConvolutionGeometry, axis: int) -> int:
    """Gives how many rows (axis 0) or columns (1) a filter spans."""
    return ((geometry.filter_height, geometry.filter_width)[axis] - 1) * geometry.dilation[axis] + 1


def _taps_lines(kernel: Kernel, geometry: ConvolutionGeometry) -> list[str]:
    """Gives the declaration of ``taps``, the filter tap by tap, channels side by side."""
    weight = kernel.group.steps[0].operands[1]
    ctype, channels = c_type(geometry.dtype), geometry.channels
    if isinstance(weight, Constant):
        array = geometry.ordered_filter(kernel.scope.constants.array(weight, kernel.scope.where))
        packed = np.ascontiguousarray(array.reshape(channels, geometry.num_taps).T)
        return [f"  const {ctype} *const taps = {kernel.input(kernel.scope.constants.derive(packed), 'weights')};"]
    kernel.scratch = geometry.num_taps * channels
    steps = geometry.weight_steps
    place = f"c * {steps[0]} + down * {steps[2]} + right * {steps[3]}"
    return [
        f"  {ctype} *const taps = scratch;",
        f"  for (int64_t down = 0; down < {geometry.filter_height}; ++down) {{",
        f"    for (int64_t right = 0; right < {geometry.filter_width}; ++right) {{",
        f"      {ctype} *const to = taps + (down * {geometry.filter_width} + right) * {channels};",
        f"      for (int64_t c = 0; c < {channels}; ++c) to[c] = {kernel.input(weight, 'weight')}[{place}];",
        "    }",
        "  }",
    ]


def _block_loop(kernel: Kernel, block: _Block, image: str, image_step: Dim) -> ParallelLoop:
    """Gives the loop over rows of blocks."""
    geometry, ctype = block.geometry, c_type(block.geometry.dtype)
    (down, right), (top, left) = geometry.strides, geometry.padding[:2]
    height, width = c_dim(geometry.height), c_dim(geometry.width)
    num_rows = (geometry.out_height + (block.rows - 1)) // block.rows
    batch = f"item / {c_dim(num_rows)} * {c_dim(image_step)}"
    origin = image if geometry.batch == 1 else f"{image} + {batch}"
    inner = kernel.helper("depthwise_inside", _sum_function(block, addressed=False))
    border = kernel.helper("depthwise_border", _sum_function(block, addressed=True))
    chunk, pixels = block.chunk, block.in_rows * block.in_columns
    row_offset = f"row * {c_dim(block.row_step)} + col * {c_dim(block.pixel_step)}"
    steps = "".join(f"{c_dim(step)}, " for step in (block.row_step, block.pixel_step) if not isinstance(step, int))
    counts = "c_count, sums"
    is_inside = " && ".join(
        [
            f"row >= 0 && row + {block.in_rows} <= {height}",
            f"col >= 0 && col + {block.in_columns} <= {width}",
        ]
    )
    lines = (
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        *([f"    const int64_t n = item / {c_dim(num_rows)};"] if geometry.batch != 1 else []),
        f"    const int64_t y0 = item % {c_dim(num_rows)} * {block.rows}, row = y0 * {down} - {top};",
        f"    const {ctype} *const from = {origin};",
        f"    for (int64_t x0 = 0; x0 < {c_dim(geometry.out_width)}; x0 += {block.columns}) {{",
        f"      const int64_t x_count = byoc_min({block.columns}, {c_dim(geometry.out_width)} - x0);",
        f"      const int64_t col = x0 * {right} - {left};",
        f"      const int is_inside = {is_inside};",
        f"      const {ctype} *at[{pixels}];",
        "      if (!is_inside) {",
        f"        for (int64_t k = 0; k < {pixels}; ++k) {{",
        f"          const int64_t y = row + k / {block.in_columns}, x = col + k % {block.in_columns};",
        f"          at[k] = y >= 0 && y < {height} && x >= 0 && x < {width}",
        f"                      ? from + y * {c_dim(block.row_step)} + x * {c_dim(block.pixel_step)}",
        f"                      : {zeros(kernel, geometry.dtype, geometry.channels)};",
        "        }",
        "      }",
        f"      for (int64_t c0 = 0; c0 < {geometry.channels}; c0 += {chunk}) {{",
        f"        const int64_t c_count = byoc_min({chunk}, {geometry.channels} - c0);",
        f"        {ctype} sums[{block.rows * block.columns * chunk}] __attribute__((aligned({block.unit.nbytes})));",
        f"        if (is_inside) {inner}(from + {row_offset} + c0, {steps}taps + c0, {counts});",
        f"        else {border}(at, c0, taps + c0, {counts});",
        *_store_lines(kernel, block),
        "      }",
        "    }",
        "  }",
    )
    item_ps = geometry.out_width * block.rows * geometry.channels * geometry.num_taps
    return ParallelLoop(lines, geometry.batch * num_rows, item_ps * multiply_add_ps(block.unit, geometry.dtype) * 2)


def _store_lines(kernel: Kernel, block: _Block) -> list[str]:
    """Gives the loop over the rows of a block that does what follows, and stores."""
    geometry, chunk = block.geometry, block.chunk
    names = {"N": "0" if geometry.batch == 1 else "n", "H": "y"}
    tile = SumsTile(
        f"(sums + (y - y0) * {block.columns * chunk})",
        str(chunk),
        "x0",
        "x_count",
        "c0",
        "c_count",
        chunk if geometry.channels % chunk == 0 else None,
        tuple(names[axis] for axis in geometry.layout[:-2]),
    )
    return [
        f"        for (int64_t y = y0; y < byoc_min(y0 + {block.rows}, {c_dim(geometry.out_height)}); ++y) {{",
        *epilogue_lines(kernel, tile, "          "),
        "        }",
    ]


def _sum_function(block: _Block, *, addressed: bool) -> str:
    """Gives a C function that sums up a block for some channels.

    C signature: ``(from[, row_step][, pixel_step], taps, count, sums)``, the steps where they are not known; or
    ``(at, first, taps, count, sums)``, with the addresses of the pixels, and the first channel.
    """
    geometry = block.geometry
    suffix, ctype, lanes = c_suffix(geometry.dtype), c_type(geometry.dtype), block.lanes
    (down, right), (below, beside) = geometry.strides, geometry.dilation
    height, width = geometry.filter_height, geometry.filter_width
    steps = {"row_step": block.row_step, "pixel_step": block.pixel_step}
    if addressed:
        source = f"const {ctype} *const *at, int64_t first"
        pixel = f"at[i * {block.in_columns} + j] + first + c"
    else:
        unknown = [f", int64_t {name}" for name, step in steps.items() if not isinstance(step, int)]
        source = f"const {ctype} *from" + "".join(unknown)
        row, column = (name if not isinstance(step, int) else str(step) for name, step in steps.items())
        pixel = f"from + i * {row} + j * {column} + c"
    lines = [
        "/* Sums up a block of outputs for some channels. The last vector may begin inside the one before. */",
        f"static BYOC_CONTRACTED void {{name}}({source}, const {ctype} *taps, int64_t count,",
        f"    {ctype} *restrict sums) {{",
        "  BYOC_CONTRACT",
        f"  for (int64_t c1 = 0; c1 < count; c1 += {lanes}) {{",
        f"    const int64_t c = byoc_min(c1, count - {lanes});",
        f"    vec_{suffix} tap[{height}][{width}], acc[{block.rows}][{block.columns}];",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {height}; ++i) {{",
        "      BYOC_UNROLL",
        f"      for (int j = 0; j < {width}; ++j) {{",
        f"        tap[i][j] = *(const vec_{suffix}u *)(taps + (i * {width} + j) * {geometry.channels} + c);",
        "      }",
        "    }",
        "    BYOC_UNROLL",
        f"    for (int k = 0; k < {block.rows * block.columns}; ++k) {{",
        f"      acc[k / {block.columns}][k % {block.columns}] = (vec_{suffix}){{0}};",
        "    }",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {block.in_rows}; ++i) {{",
        "      BYOC_UNROLL",
        f"      for (int j = 0; j < {block.in_columns}; ++j) {{",
        f"        const vec_{suffix} pixel = *(const vec_{suffix}u *)({pixel});",
        "        BYOC_UNROLL",
        f"        for (int y = 0; y < {block.rows}; ++y) {{",
        f"          const int down = i - y * {down};",
        f"          if (down < 0 || down % {below} != 0 || down / {below} >= {height}) continue;",
        "          BYOC_UNROLL",
        f"          for (int x = 0; x < {block.columns}; ++x) {{",
        f"            const int right = j - x * {right};",
        f"            if (right < 0 || right % {beside} != 0 || right / {beside} >= {width}) continue;",
        f"            acc[y][x] += pixel * tap[down / {below}][right / {beside}];",
        "          }",
        "        }",
        "      }",
        "    }",
        "    BYOC_UNROLL",
        f"    for (int k = 0; k < {block.rows * block.columns}; ++k) {{",
        f"      *(vec_{suffix}u *)(sums + k * {block.chunk} + c) = acc[k / {block.columns}][k % {block.columns}];",
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)
