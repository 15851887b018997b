"""A few neighbouring pixels multiplied by the filters of a convolution, as a part of a larger kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource import c_type
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.convolution_panels import count_panels, packed_constant, panel_size
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm, choose_tile
from byoc_ccompiler.kernels.tiles import panel_function
from byoc_ccompiler.kernels.window_rows import rows_function

__all__ = ["PixelProduct"]


@dataclass(frozen=True, slots=True)
class PixelProduct:
    """The loop over tiles of some neighbouring pixels.

    Attributes:
        kernel: the convolution, and what follows it.
        shape: its sizes.
        leading: the indices along the leading axes of the result, as in :class:`TextTile`.
        first_row: the index of the pixel ``p0`` along those that follow.
        counts: how many pixels there may be.
        source: the C expression of the pointer to the pixel ``p0`` of a pointwise convolution; of any other the one to
            the whole image.
        pixel_step: elements from one pixel to the next; unused where there are windows.
        windows: how the factors are found where the convolution is not pointwise, and the number of the pixel ``p0``.
    """

    kernel: Kernel
    shape: ConvolutionGeometry
    leading: tuple[str, ...]
    first_row: str
    counts: Sequence[int]
    source: str
    pixel_step: str = ""
    windows: tuple[ImplicitGemm, str] | None = None

    def lines(self, end: str, indent: str) -> list[str]:
        """Gives the loop over ``end`` pixels."""
        kernel, shape = self.kernel, self.shape
        weight = kernel.group.steps[0].operands[1]
        assert isinstance(weight, Constant)
        rows, vectors = choose_tile(kernel.unit, shape, max(self.counts))
        columns = vectors * kernel.unit.lanes(shape.dtype)
        packed = kernel.input(packed_constant(kernel, shape, weight, columns), "weights")
        panels, size = count_panels(shape, columns), panel_size(shape, columns)
        is_whole = shape.out_channels % columns == 0
        has_tail = any(count % rows for count in self.counts)
        tile = TextTile(
            "sums",
            row_step=str(columns),
            first_row=self.first_row,
            num_rows="m_count" if has_tail else str(rows),
            first_column="n0",
            num_columns=str(columns) if is_whole else "n_count",
            full_columns=None if is_whole else columns,
            leading=self.leading,
        )
        tails = sorted({count % rows for count in self.counts} - {0})
        row_counts = ([rows] if max(self.counts) >= rows else []) + tails
        text = [
            f"for (int64_t p0 = 0; p0 < {end}; p0 += {rows}) {{",
            *([f"  const int64_t m_count = byoc_min({rows}, {end} - p0);"] if has_tail else []),
            *self._window_lines(rows, row_counts),
            f"  for (int64_t panel = 0; panel < {panels}; ++panel) {{",
            f"    const int64_t n0 = panel * {columns};",
            *([] if is_whole else [f"    const int64_t n_count = byoc_min({columns}, {shape.out_channels} - n0);"]),
            f"    {c_type(shape.dtype)} sums[{rows * columns}];",
            *(f"  {line}" for line in self._tile_lines(vectors, row_counts, f"{packed} + panel * {size}")),
            *epilogue_lines(kernel, tile, "    "),
            "  }",
            "}",
        ]
        return [indent + line for line in text]

    @property
    def _runs(self) -> int:
        return 1 if self.windows is None else self.windows[0].runs

    def _window_lines(self, rows: int, row_counts: Sequence[int]) -> list[str]:
        """Gives the lines that find the factors of a tile."""
        if self.windows is None:
            return []
        plan, first = self.windows
        ctype = c_type(self.shape.dtype)
        arguments = f"(runs, {self.source}, {self.source}, &window, {first});"
        finders = {count: rows_function(self.kernel, self.shape.dtype, count) + arguments for count in row_counts}
        return [f"  const {ctype} *runs[{plan.runs * rows}];", *_by_count(finders)]

    def _tile_lines(self, vectors: int, row_counts: Sequence[int], panel: str) -> list[str]:
        """Gives the lines that compute the sums of a tile."""
        kernel, dtype = self.kernel, self.shape.dtype
        if self.windows is None:
            arguments = f"({self.source}, {self.pixel_step}, {panel}, {self.shape.channels}, sums);"
        else:
            arguments = f"(runs, {self._runs}, {self.windows[0].depth}, {panel}, sums);"
        is_indirect = self.windows is not None
        return _by_count(
            {
                count: panel_function(kernel, dtype, count, vectors, indirect=is_indirect) + arguments
                for count in row_counts
            }
        )


def _by_count(calls: Mapping[int, str]) -> list[str]:
    """Gives the calls for tiles of so many rows, of which one is made."""
    *others, last = calls
    lines = [
        f"  {'else ' if index else ''}if (m_count == {count}) {calls[count]}" for index, count in enumerate(others)
    ]
    return [*lines, f"  {'else ' if others else ''}{calls[last]}"]
