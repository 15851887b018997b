"""Products and convolutions of 8-bit integers with constant weights, and what follows them elementwise.

Some rows of the left operand are gathered first: those of a matrix, or the windows of an image, channels last, as bytes
without a sign, where they stay in the nearest cache while all panels of the weights pass. The zero point costs nothing:
its share of each sum is the same for all rows, and the sums start with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.attributes import int_of
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.byte_tiles import QUAD, byte_tile
from byoc_ccompiler.kernels.conv2d import require_room
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.declarations import declared
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["FAMILY", "MAX_DEPTH"]

MAX_DEPTH = 1 << 16
"""Bytes of a row: so many at least fit into the stack, and into one sum of 32 bits where both operands are largest."""

_GATHERED_NBYTES, _GATHERED_ROWS = 1 << 15, 48
"""Bytes of rows, and rows, that are gathered at a time, if one tile's do not have more."""

_NEAR_NBYTES = 3 << 13
"""Bytes of a panel that stay in the nearest cache while the rows of a block pass."""

_LOCALS = (
    *("item", "block", "panel", "m0", "m_count", "n0", "n_count", "bytes", "at_hand", "sums", "row", "m", "k", "count"),
    *("from", "to", "line", "y", "x", "col", "at", "tap_down", "tap_right"),
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a product is cut.

    Attributes:
        num_rows: of the result.
        num_columns: of the result.
        depth: bytes of a row.
        pitch: bytes from one gathered row to the next: whole quads.
        vectors: vectors of sums in a row of a tile.
        width: columns of a tile, and of a panel.
        panels: of the weights.
        tile_rows: rows of a tile.
        block_rows: rows that are gathered at a time: whole tiles.
    """

    num_rows: Dim
    num_columns: int
    depth: int
    pitch: int
    vectors: int
    width: int
    panels: int
    tile_rows: int
    block_rows: int

    @classmethod
    def of(cls, kernel: Kernel, num_rows: Dim, num_columns: int, depth: int) -> _Plan:
        """Gives the plan for a product of these sizes."""
        lanes, most = kernel.unit.lanes("int32"), kernel.unit.panel_vectors
        panels = -(-num_columns // (most * lanes))
        vectors = -(-num_columns // (panels * lanes))
        pitch = -(-depth // QUAD) * QUAD
        tile_rows = max(1, min(kernel.unit.panel_rows(vectors), MAX_DEPTH // pitch))
        if isinstance(num_rows, int):
            tile_rows = max(1, min(tile_rows, num_rows))
        block_rows = max(1, min(_GATHERED_ROWS, _GATHERED_NBYTES // pitch) // tile_rows) * tile_rows
        if isinstance(num_rows, int):
            block_rows = min(block_rows, max(1, -(-num_rows // tile_rows)) * tile_rows)
        return cls(num_rows, num_columns, depth, pitch, vectors, vectors * lanes, panels, tile_rows, block_rows)

    @property
    def blocks(self) -> Dim:
        """How often rows are gathered."""
        return (self.num_rows + (self.block_rows - 1)) // self.block_rows

    @property
    def has_gaps(self) -> bool:
        """Whether a tile may read bytes that are not gathered."""
        rows = self.num_rows
        return self.pitch != self.depth or not isinstance(rows, int) or rows % self.tile_rows != 0

    def panels_of(self, weight: NDArray) -> NDArray:
        """Gives the panels of a matrix of (columns, depth), quad by quad."""
        padded = np.zeros((self.panels * self.width, self.pitch), np.int8)
        padded[: self.num_columns, : self.depth] = weight
        quads = padded.reshape(self.panels, self.width, self.pitch // QUAD, QUAD)
        return np.ascontiguousarray(quads.transpose(0, 2, 1, 3))

    def starts_of(self, weight: NDArray, zero: int) -> NDArray:
        """Gives what the sums of each column start with: less the zero point's share."""
        shares = np.zeros(self.panels * self.width, np.int64)
        shares[: self.num_columns] = weight.sum(axis=1, dtype=np.int64) * -zero
        return shares.astype(np.int32)  # sums wrap around


def _write(kernel: Kernel) -> None:
    """Writes the kernel: items are a block of rows times a panel, the panels of a block one after the other."""
    kernel.names.reserve(_LOCALS)
    step = kernel.group.steps[0]
    x, weight, *border = step.operands
    assert isinstance(weight, Constant)
    array = kernel.scope.constants.array(weight, kernel.scope.where)
    # A row of weights is a window of the image: line by line, pixel by pixel, channels last.
    matrix = array if array.ndim == 2 else array.transpose(0, 2, 3, 1).reshape(array.shape[0], -1)
    plan = _Plan.of(kernel, product(shape_of(step.result)[:-1]), *matrix.shape)
    # Bytes with a sign are moved up by half of what there are, and so is their zero point.
    zero = int_of(step.binding, "zero_point") + (128 if dtype_of(x) == "int8" else 0)
    source = kernel.input(x, "x")
    # Of a zero point that the data tell the sums hold the share, which is subtracted behind them.
    beyond = f"(uint8_t)({zero} + {kernel.input(border[0], 'border')}[0])" if border else str(zero)
    gather = _Gather(kernel, plan, source, dtype_of(x), beyond)
    panels = kernel.input(kernel.scope.constants.derive(plan.panels_of(matrix)), "weights")
    starts = kernel.input(kernel.scope.constants.derive(plan.starts_of(matrix, zero)), "starts")
    tile = byte_tile(kernel, plan.tile_rows, plan.vectors)
    n_count = "n_count" if plan.num_columns % plan.width else str(plan.width)
    place = TextTile("sums", str(plan.width), "m0", "m_count", "n0", n_count, plan.width)
    body = [
        "    if (at_hand != block) {",
        "      at_hand = block;",
        *(f"      {line}" for line in gather.lines()),
        "    }",
        f"    int32_t sums[{plan.block_rows * plan.width}];",
        *_sum_lines(plan, tile, f"{panels} + panel * {plan.width * plan.pitch}", f"{starts} + n0"),
        *epilogue_lines(kernel, place, "    "),
    ]
    integer = "const int64_t"
    variables = [
        (f"{integer} block", "item" if plan.panels == 1 else f"item / {plan.panels}"),
        (f"{integer} panel", "0" if plan.panels == 1 else f"item % {plan.panels}"),
        (f"{integer} m0", f"block * {plan.block_rows}"),
        (f"{integer} m_count", f"byoc_min({plan.block_rows}, {c_dim(plan.num_rows)} - m0)"),
        (f"{integer} n0", f"panel * {plan.width}"),
        (f"{integer} n_count", f"byoc_min({plan.width}, {plan.num_columns} - n0)"),
    ]
    lines = [
        f"  _Alignas(64) uint8_t bytes[{plan.block_rows * plan.pitch}];",
        *(["  memset(bytes, 0, sizeof(bytes));"] if plan.has_gaps else []),
        "  int64_t at_hand = -1;",
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        *declared(variables, body, "    "),
        "  }",
    ]
    item_ps = plan.block_rows * plan.width * plan.pitch * multiply_add_ps(kernel.unit, "int32") // QUAD
    kernel.finish([ParallelLoop(tuple(lines), plan.blocks * plan.panels, item_ps)])


def _sum_lines(plan: _Plan, tile: str, panel: str, starts: str) -> list[str]:
    """Gives the loop over the tiles of a block; long sums go part by part, whose panels stay in the nearest cache."""
    rows, sums = f"bytes + row * {plan.pitch}", f"sums + row * {plan.width}"
    head = f"for (int64_t row = 0; row < m_count; row += {plan.tile_rows}) {{"
    most = max(1, _NEAR_NBYTES // (QUAD * plan.width))
    quads = plan.pitch // QUAD
    if quads <= most:
        call = f"  {tile}({rows}, {plan.pitch}, {panel}, {quads}, {starts}, 0, {sums});"
        return [f"    {line}" for line in (head, call, "}")]
    part = -(-quads // -(-quads // most))
    return [
        f"    for (int64_t k = 0; k < {quads}; k += {part}) {{",
        f"      const int64_t count = byoc_min({part}, {quads} - k);",
        f"      {head}",
        f"        {tile}({rows} + k * {QUAD}, {plan.pitch}, {panel} + k * {QUAD * plan.width}, count,",
        f"            k ? {sums} : {starts}, k ? {plan.width} : 0, {sums});",
        "      }",
        "    }",
    ]


@dataclass(frozen=True, slots=True)
class _Gather:
    """What writes the rows of a block to ``bytes``.

    Attributes:
        kernel: where it stands.
        plan: how rows lie.
        source: the C name of the left operand.
        dtype: its dtype.
        zero: the C expression of what stands beyond the borders of an image.
    """

    kernel: Kernel
    plan: _Plan
    source: str
    dtype: str
    zero: str

    def lines(self) -> list[str]:
        """Gives the lines."""
        step = self.kernel.group.steps[0]
        if step.op == BYTE_PRODUCT.name:
            return self._matrix_lines()
        return self._window_lines(ConvolutionGeometry.of_step(step))

    def _copy(self, target: str, origin: str, count: int) -> str:
        if self.dtype == "uint8":
            return f"memcpy({target}, {origin}, {count});"
        return f"for (int64_t k = 0; k < {count}; ++k) ({target})[k] = (uint8_t)(({origin})[k] + 128);"

    def _matrix_lines(self) -> list[str]:
        pitch, depth = self.plan.pitch, self.plan.depth
        origin = f"{self.source} + (m0 + row) * {depth}"
        return [
            "for (int64_t row = 0; row < m_count; ++row) {",
            f"  {self._copy(f'bytes + row * {pitch}', origin, depth)}",
            "}",
        ]

    def _window_lines(self, shape: ConvolutionGeometry) -> list[str]:
        """Gives the loops over pixels and taps; a line of a window is copied at once where it lies in one piece."""
        image = self.kernel.group.steps[0].operands[0]
        batch, _, down, right = shape.image_steps(self.kernel.strides(image))
        pointer = f"const {self.kernel.ctype(image)} *"
        top, left = shape.padding[:2]
        channels, span = shape.channels, shape.filter_width * shape.channels
        apart_down, apart_right = shape.dilation
        whole = [
            f"    if (x >= 0 && x + {shape.filter_width} <= {c_dim(shape.width)}) {{",
            f"      {self._copy('to', f'line + x * {channels}', span)}",
            f"      to += {span};",
            "      continue;",
            "    }",
        ]
        in_one_piece = right == channels and (apart_right == 1 or shape.filter_width == 1)
        height, width = shape.out_height, shape.out_width
        return [
            "for (int64_t row = 0; row < m_count; ++row) {",
            "  const int64_t m = m0 + row;",
            f"  const int64_t y = m / {c_dim(width)} % {c_dim(height)} * {shape.strides[0]} - {top};",
            f"  const int64_t x = m % {c_dim(width)} * {shape.strides[1]} - {left};",
            f"  {pointer}from = {self.source} + m / {c_dim(height * width)} * {c_dim(batch)};",
            f"  uint8_t *to = bytes + row * {self.plan.pitch};",
            f"  for (int64_t tap_down = 0; tap_down < {shape.filter_height}; ++tap_down) {{",
            f"    const int64_t at = y + tap_down * {apart_down};",
            f"    if (at < 0 || at >= {c_dim(shape.height)}) {{",
            f"      memset(to, {self.zero}, {span});",
            f"      to += {span};",
            "      continue;",
            "    }",
            f"    {pointer}line = from + at * {c_dim(down)};",
            *(whole if in_one_piece else []),
            f"    for (int64_t tap_right = 0; tap_right < {shape.filter_width}; ++tap_right, to += {channels}) {{",
            f"      const int64_t col = x + tap_right * {apart_right};",
            f"      if (col < 0 || col >= {c_dim(shape.width)}) {{",
            f"        memset(to, {self.zero}, {channels});",
            "      } else {",
            f"        {self._copy('to', f'line + col * {c_dim(right)}', channels)}",
            "      }",
            "    }",
            "  }",
            "}",
        ]


def _require(scope: FunctionScope, step: Step) -> None:
    if step.op == BYTE_CONVOLUTION.name:
        require_room(scope, step, "nn.conv2d")


def _reads(step: Step, index: int) -> Access:
    is_image = step.op == BYTE_CONVOLUTION.name and index == 0
    return Access.ROWS if is_image else Access.COMPACT


def _writes(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILY = KernelFamily(
    frozenset({BYTE_PRODUCT.name, BYTE_CONVOLUTION.name}),
    reject_nothing,
    _write,
    takes_epilogue=True,
    require=_require,
    reads=_reads,
    writes=_writes,
)
"""Products of 8-bit integers, which regions are rewritten to."""
