"""Blocks of outputs of a depthwise convolution, channels last, summed up in registers along the channels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from byoc_core.authoring.csource import c_dim, c_suffix, c_type
from byoc_core.dims import Dim

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue_text import TextTile
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DepthwiseBlock", "PixelSource", "choose_block", "filter_reach", "has_suited_filter", "sum_function"]

_CHUNK = 256
"""Channels of a block whose sums wait together, at most."""

_MAX_TAPS = 49
_MAX_REACH = 32
"""Rows and columns of pixels that a block reads, at most: the loops over them are unrolled."""


class PixelSource(Enum):
    """How a block finds its pixels: by their distances, by the address of each row, or of each pixel."""

    STEPS = auto()
    ROWS = auto()
    PIXELS = auto()


@dataclass(frozen=True, slots=True)
class DepthwiseBlock:
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
        return (self.rows - 1) * self.geometry.strides[0] + filter_reach(self.geometry, 0)

    @property
    def in_columns(self) -> int:
        """Columns from the first that is read to the last."""
        return (self.columns - 1) * self.geometry.strides[1] + filter_reach(self.geometry, 1)

    @property
    def chunk(self) -> int:
        """Channels of one chunk: whole vectors, and no fewer than a vector for the last chunk."""
        channels = self.geometry.channels
        whole = -(-channels // self.lanes) * self.lanes
        for size in range(min(_CHUNK // self.lanes * self.lanes, whole), 0, -self.lanes):
            if channels % size == 0 or channels % size >= self.lanes or size >= channels:
                return size
        return whole

    def sums_tile(self, leading: tuple[str, ...]) -> TextTile:
        """Gives the sums of one row ``y`` of a block, and one chunk, as what follows the convolution reads them."""
        chunk = self.chunk
        return TextTile(
            f"(sums + (y - y0) * {self.columns * chunk})",
            row_step=str(chunk),
            first_row="x0",
            num_rows="x_count",
            first_column="c0",
            num_columns="c_count",
            full_columns=chunk if self.geometry.channels % chunk == 0 else None,
            leading=leading,
        )


def has_suited_filter(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Tells whether a convolution has as many groups as channels, before and after, and a filter that is summed here.

    There must be channels for a vector, and the filter must be small enough for unrolled loops.
    """
    is_depthwise = geometry.is_depthwise and geometry.out_channels == geometry.channels
    reach = max(filter_reach(geometry, axis) for axis in (0, 1))
    is_small = geometry.num_taps <= _MAX_TAPS and reach + geometry.strides[0] <= _MAX_REACH
    return is_depthwise and is_small and geometry.channels >= unit.lanes(geometry.dtype)


def choose_block(geometry: ConvolutionGeometry, unit: VectorUnit, row_step: Dim, pixel_step: Dim) -> DepthwiseBlock:
    """Gives the block that computes fewest outputs beyond the result's, the largest of them."""
    room = unit.registers - min(geometry.num_taps, unit.registers // 2) - 2
    rows = 2 if unit.registers >= 32 and geometry.strides[0] == 1 and geometry.out_height != 1 else 1
    width = geometry.out_width
    reach = (_MAX_REACH - filter_reach(geometry, 1)) // geometry.strides[1] + 1
    sizes = range(max(1, min(room // rows, reach, 8)), 0, -1)
    columns = min(sizes, key=lambda size: -(-width // size) * (size + 1)) if isinstance(width, int) else sizes[0]
    return DepthwiseBlock(geometry, unit, rows, columns, pixel_step, row_step)


def filter_reach(geometry: ConvolutionGeometry, axis: int) -> int:
    """Gives how many rows (axis 0) or columns (1) a filter spans."""
    return ((geometry.filter_height, geometry.filter_width)[axis] - 1) * geometry.dilation[axis] + 1


def sum_function(block: DepthwiseBlock, source: PixelSource) -> str:
    """Gives a C function that sums up a block for some channels.

    C signature: ``(from[, row_step][, pixel_step], taps, count, sums)``, the steps where they are not known; or
    ``(at, first, taps, count, sums)``, with the addresses of the rows or pixels, and how far behind them the first
    channel of the first pixel lies.
    """
    geometry = block.geometry
    suffix, ctype, lanes = c_suffix(geometry.dtype), c_type(geometry.dtype), block.lanes
    (down, right), (below, beside) = geometry.strides, geometry.dilation
    height, width = geometry.filter_height, geometry.filter_width
    steps = {"row_step": block.row_step, "pixel_step": block.pixel_step}
    if source is PixelSource.PIXELS:
        parameters = f"const {ctype} *const *at, int64_t first"
        pixel = f"at[i * {block.in_columns} + j] + first + c"
    elif source is PixelSource.ROWS:
        parameters = f"const {ctype} *const *at, int64_t first"
        pixel = f"line + j * {c_dim(block.pixel_step)}"
    else:
        unknown = [f", int64_t {name}" for name, step in steps.items() if not isinstance(step, int)]
        parameters = f"const {ctype} *from" + "".join(unknown)
        row, column = (name if not isinstance(step, int) else str(step) for name, step in steps.items())
        pixel = f"from + i * {row} + j * {column} + c"
    lines = [
        "/* Sums up a block of outputs for some channels. The last vector may begin inside the one before. */",
        f"static BYOC_CONTRACTED void {{name}}({parameters}, const {ctype} *taps, int64_t count,",
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
        *([f"      const {ctype} *const line = at[i] + first + c;"] if source is PixelSource.ROWS else []),
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
