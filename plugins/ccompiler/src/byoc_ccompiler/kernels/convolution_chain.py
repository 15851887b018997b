"""A depthwise convolution with the pointwise ones around it, channels last, in one pass over rows.

Rows of the image of the depthwise convolution are computed when they are first wanted, and lie in a ring of as many as
its windows span, with zeros beside them where it pads. Each thread has a ring for the neighbouring rows that it
computes; rows that two threads want both compute. What the depthwise convolution gives is multiplied by the filters of
the last one a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Group, Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.depthwise_block import DepthwiseBlock, PixelSource, choose_block, sum_function
from byoc_ccompiler.kernels.depthwise_text import sums_tile, taps_lines
from byoc_ccompiler.kernels.epilogue_text import epilogue_lines
from byoc_ccompiler.kernels.implicit_gemm import COPY_LOCALS, copy_loop, window_line
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm
from byoc_ccompiler.kernels.pixel_products import PixelProduct
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["write_chain"]

_MOST_PARTS = 16
"""Rings that there is room for: the threads that share the work, at most."""

_LOCALS = (
    *COPY_LOCALS,
    *("taps", "window", "runs", "ring", "nothing", "lines", "rows", "ready", "top", "ring_row", "line_row", "item"),
    *(
        "batch",
        "y0",
        "y_end",
        "x0",
        "x_count",
        "c0",
        "c_count",
        "p0",
        "p_end",
        "m_count",
        "panel",
        "n0",
        "n_count",
        "k",
    ),
)


def write_chain(kernel: Kernel) -> None:
    """Writes the kernel of a group that is a chain."""
    kernel.names.reserve(_LOCALS)
    kernel.scratch_dtype = _geometry(kernel.group.chain[0]).dtype
    writer = _ChainWriter.of(kernel)
    kernel.scratch = writer.num_parts * writer.part_size
    ctype = c_type(writer.shape.dtype)
    body: list[str | ParallelLoop] = [*taps_lines(writer.depthwise, writer.shape)]
    variables = [f"const {ctype} *taps"]
    if writer.windows is not None and writer.windows.copies:
        x = kernel.input(kernel.group.steps[0].operands[0], "x")
        rows, columns = writer.windows.padded
        body += [
            f"  {ctype} *image = scratch + {c_dim(kernel.scratch)};",
            "  const int64_t n = 0;",
            copy_loop(writer.windows, x),
        ]
        kernel.scratch = kernel.scratch + rows * columns * writer.windows.shape.channels
        variables += [f"{ctype} *image", "int64_t n"]
    kernel.finish([*body, writer.loop()], variables=variables)


def _geometry(group: Group) -> ConvolutionGeometry:
    return ConvolutionGeometry.of_step(group.steps[0])


def _known(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


@dataclass(frozen=True, slots=True)
class _ChainWriter:
    """The pieces of the text.

    Attributes:
        expand: what makes the image of the depthwise convolution, if it is computed here.
        depthwise: the depthwise convolution.
        project: what reads its result, if that is computed here.
        shape: the sizes of the depthwise convolution.
        block: the outputs of the depthwise convolution that are summed up together.
        windows: where the factors of ``expand`` lie, unless it is pointwise.
    """

    expand: Kernel | None
    depthwise: Kernel
    project: Kernel | None
    shape: ConvolutionGeometry
    block: DepthwiseBlock
    windows: ImplicitGemm | None

    @classmethod
    def of(cls, kernel: Kernel) -> _ChainWriter:
        chain = kernel.group.chain
        at = next(index for index, group in enumerate(chain) if _geometry(group).is_depthwise)
        shape = _geometry(chain[at])
        block = choose_block(shape, kernel.unit, 0, shape.channels)
        buffer_strides = (0, 0, shape.channels, 1)
        has_project = at + 1 < len(chain)
        expand = kernel.part(chain[0], ("ring_row", buffer_strides)) if at else None
        return cls(
            expand,
            kernel.part(chain[at], ("line_row", buffer_strides) if has_project else None),
            kernel.part(chain[-1]) if has_project else None,
            shape,
            block,
            None if expand is None or _geometry(expand.group).is_pointwise else ImplicitGemm.of(expand),
        )

    @property
    def batch(self) -> str:
        """The C expression of the number of the image."""
        return "0" if self.shape.batch == 1 else "batch"

    @property
    def blocks_down(self) -> int:
        """Blocks of rows in an image."""
        return -(-_known(self.shape.out_height) // self.block.rows)

    @property
    def num_blocks(self) -> int:
        """Blocks of rows in all images."""
        return _known(self.shape.batch) * self.blocks_down

    @property
    def grain(self) -> int:
        """Blocks of rows that one thread computes, at least."""
        return -(-self.num_blocks // _MOST_PARTS)

    @property
    def num_parts(self) -> int:
        """Parts that threads may take."""
        return -(-self.num_blocks // self.grain)

    @property
    def row_pixels(self) -> int:
        """Pixels of a row of the ring: what the last block reads, and at least the row and what pads it before."""
        blocks, (_, left, _, _) = -(-_known(self.shape.out_width) // self.block.columns), self.shape.padding
        step = self.block.columns * self.shape.strides[1]
        return max((blocks - 1) * step + self.block.in_columns, left + _known(self.shape.width))

    @property
    def row_size(self) -> int:
        """Elements of a row of the ring."""
        return self.row_pixels * self.shape.channels

    @property
    def part_size(self) -> int:
        """Elements of a part's memory: the ring, a row of zeros, and the rows that wait for the last convolution."""
        waiting = self.block.rows * _known(self.shape.out_width) * self.shape.channels if self.project else 0
        alignment = self.block.unit.nbytes
        return -(-((self.block.in_rows + 1) * self.row_size + waiting) // alignment) * alignment

    def loop(self) -> ParallelLoop:
        """Gives the loop over blocks of rows."""
        shape, block, ctype = self.shape, self.block, c_type(self.shape.dtype)
        height, (pad_top, _, _, _) = c_dim(shape.height), shape.padding
        lines = (
            f"  {ctype} *const ring = scratch + {FIRST_ITEM} / {self.grain} * {self.part_size};",
            f"  {ctype} *const nothing = ring + {block.in_rows * self.row_size};",
            *([f"  {ctype} *const lines = nothing + {self.row_size};"] if self.project else []),
            *self._clear_lines(),
            *([] if self.expand is None or self.windows is None else [window_line(self.expand, self.windows)]),
            "  int64_t ready = 0;",
            f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
            *([] if self.batch == "0" else [f"    const int64_t batch = item / {self.blocks_down};"]),
            f"    const int64_t y0 = item % {self.blocks_down} * {block.rows};",
            f"    const int64_t y_end = byoc_min(y0 + {block.rows}, {c_dim(shape.out_height)});",
            f"    const int64_t top = y0 * {shape.strides[0]} - {pad_top};",
            f"    ready = byoc_max(item == {FIRST_ITEM} || y0 == 0 ? 0 : ready, top);",
            f"    for (; ready < byoc_min({height}, top + {block.in_rows}); ++ready) {{",
            *self._row_lines(),
            "    }",
            f"    const {ctype} *rows[{block.in_rows}];",
            f"    for (int64_t k = 0; k < {block.in_rows}; ++k) {{",
            "      const int64_t y = top + k;",
            f"      rows[k] = y >= 0 && y < {height} ? ring + y % {block.in_rows} * {self.row_size} : nothing;",
            "    }",
            *self._depthwise_lines(),
            *([] if self.project is None else self._project_lines(self.project)),
            "  }",
        )
        return ParallelLoop(lines, self.num_blocks, self._block_ps(), self.grain)

    def _block_ps(self) -> int:
        """Gives the estimated picoseconds of a block of rows."""
        shape, rows = self.shape, self.block.rows
        products = _known(shape.out_width) * rows * shape.channels * (shape.num_taps * 2)
        if self.expand is not None:
            source = _geometry(self.expand.group)
            depth = source.channels * source.num_taps
            products += _known(shape.width) * rows * shape.strides[0] * shape.channels * depth
        if self.project is not None:
            width = _geometry(self.project.group).out_channels
            products += _known(shape.out_width) * rows * shape.channels * width
        return products * multiply_add_ps(self.block.unit, shape.dtype)

    def _clear_lines(self) -> list[str]:
        """Gives the lines that write the zeros beside the rows of the ring, and the row of zeros."""
        shape, channels = self.shape, self.shape.channels
        left = shape.padding[1] * channels
        end = left + _known(shape.width) * channels
        sides = [("", left), (f" + {end}", self.row_size - end)]
        return [
            f"  memset(nothing, 0, {self.row_size} * sizeof(*nothing));",
            f"  for (int64_t k = 0; k < {self.block.in_rows}; ++k) {{",
            *(
                f"    memset(ring + k * {self.row_size}{place}, 0, {size} * sizeof(*ring));"
                for place, size in sides
                if size > 0
            ),
            "  }",
        ]

    def _row_lines(self) -> list[str]:
        """Gives the lines that write the row ``ready`` to the ring."""
        shape, ctype = self.shape, c_type(self.shape.dtype)
        first = self.depthwise if self.expand is None else self.expand
        anchor = first.group.steps[0]
        source = _geometry(first.group)
        batch, _, row, pixel = source.image_steps(first.strides(anchor.operands[0]))
        image = first.input(anchor.operands[0], "x")
        left = shape.padding[1] * shape.channels
        place = f"      {ctype} *const ring_row = ring + ready % {self.block.in_rows} * {self.row_size} + {left};"
        width, leading = _known(shape.width), (self.batch, "ready")
        if self.windows is not None:
            row_number = "ready" if self.windows.copies else f"({self.batch} * {c_dim(shape.height)} + ready)"
            windows = (self.windows, f"{row_number} * {width} + p0")
            whole = "image" if self.windows.copies else image
            tiles = PixelProduct(first, source, leading, "p0", (width,), whole, windows=windows)
            return [place, *tiles.lines(str(width), "      ")]
        line = f"      const {ctype} *const from = {image} + {self.batch} * {c_dim(batch)} + ready * {c_dim(row)};"
        step = c_dim(pixel)
        if self.expand is not None:
            tiles = PixelProduct(first, source, leading, "p0", (width,), f"from + p0 * {step}", step)
            return [place, line, *tiles.lines(str(width), "      ")]
        if pixel == shape.channels:
            return [place, line, f"      memcpy(ring_row, from, {width * shape.channels} * sizeof(*from));"]
        return [
            place,
            line,
            f"      for (int64_t k = 0; k < {width}; ++k) {{",
            f"        const {ctype} *const pixel = from + k * {step};",
            f"        memcpy(ring_row + k * {shape.channels}, pixel, {shape.channels} * sizeof(*pixel));",
            "      }",
        ]

    def _depthwise_lines(self) -> list[str]:
        """Gives the loop over the blocks of a row."""
        shape, block, ctype = self.shape, self.block, c_type(self.shape.dtype)
        channels, chunk, width = shape.channels, block.chunk, c_dim(shape.out_width)
        size = block.rows * block.columns * chunk
        function = self.depthwise.shared_name(sum_function(block, PixelSource.ROWS))
        tile = sums_tile(block, (self.batch, "y"))
        waiting = f"          {ctype} *const line_row = lines + (y - y0) * {_known(shape.out_width) * channels};"
        return [
            f"    for (int64_t x0 = 0; x0 < {width}; x0 += {block.columns}) {{",
            f"      const int64_t x_count = byoc_min({block.columns}, {width} - x0);",
            f"      for (int64_t c0 = 0; c0 < {channels}; c0 += {chunk}) {{",
            f"        const int64_t c_count = byoc_min({chunk}, {channels} - c0);",
            f"        {ctype} sums[{size}] __attribute__((aligned({block.unit.nbytes})));",
            f"        {function}(rows, x0 * {shape.strides[1] * channels} + c0, taps + c0, c_count, sums);",
            "        for (int64_t y = y0; y < y_end; ++y) {",
            *([waiting] if self.project else []),
            *epilogue_lines(self.depthwise, tile, "          "),
            "        }",
            "      }",
            "    }",
        ]

    def _project_lines(self, project: Kernel) -> list[str]:
        """Gives the lines that multiply the rows that wait."""
        width, height = _known(self.shape.out_width), _known(self.shape.out_height)
        counts = {width * min(self.block.rows, height), width * (height % self.block.rows)} - {0}
        first = f"(y0 * {width} + p0)"
        source = _geometry(project.group)
        step = str(self.shape.channels)
        tile = PixelProduct(project, source, (self.batch,), first, sorted(counts), f"lines + p0 * {step}", step)
        return [f"    const int64_t p_end = (y_end - y0) * {width};", *tile.lines("p_end", "    ")]
