"""Direct convolution, NCHW: register tiles of output channels times neighbouring output pixels.

Each image is first copied into padded planes, one per phase of the strides, in which the pixels of a row of outputs
lie side by side whatever stride and dilation are: so the inner loop only loads vectors, and pixels run on across rows.
Where there is neither padding nor stride, the image itself serves. What follows the convolution elementwise is
computed when a tile's sums are complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from byoc_core.authoring.csource import FunctionScope
from byoc_core.authoring.csource_loops import offset_expression
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim
from byoc_core.backend.info import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, TensorType, Value

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pointwise import pointwise_lines, store_lines
from byoc_ccompiler.kernels.tiles import outer_tile
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_non_floats
from byoc_ccompiler.size_checks import require_window
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit, multiply_add_ps

__all__ = ["FAMILY"]

_WEIGHT_AXES = {"OIHW": (0, 1, 2, 3), "IOHW": (1, 0, 2, 3), "HWIO": (3, 2, 0, 1)}
_COPY_PS = 200
"""Estimated picoseconds to copy one pixel."""

_LOCALS = (
    *("planes", "phases", "from", "to", "line", "first", "last", "begin", "end", "down", "right", "c", "n", "g"),
    *("o", "o0", "p", "p0", "y", "x0", "x1", "col", "row", "j", "item", "block"),
)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The sizes of one convolution. Channels and filter are known; images may be symbolic."""

    batch: Dim
    channels: int
    height: Dim
    width: Dim
    out_channels: int
    out_height: Dim
    out_width: Dim
    filter_height: int
    filter_width: int
    groups: int
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    weight_steps: tuple[int, int, int]

    @classmethod
    def of_step(cls, step: Step) -> _Geometry:
        attrs = step.binding.attrs
        batch, channels, height, width = shape_of(step.operands[0])
        weight = [int(str(dim)) for dim in shape_of(step.operands[1])]
        axes = _WEIGHT_AXES[str(attrs["kernel_layout"])]
        steps = [int(str(product(weight[axis + 1 :]))) for axis in axes]
        _, out_channels, out_height, out_width = shape_of(step.result)
        return cls(
            batch,
            int(str(channels)),
            height,
            width,
            int(str(out_channels)),
            out_height,
            out_width,
            weight[axes[2]],
            weight[axes[3]],
            int(str(attrs["groups"])),
            _pair(attrs["strides"]),
            _pair(attrs["dilation"]),
            _four(attrs["padding"]),
            (steps[0], steps[1], steps[3]),
        )

    @property
    def is_direct(self) -> bool:
        """Whether tiles can read the image itself."""
        return self.strides == (1, 1) and self.padding == (0, 0, 0, 0)

    @property
    def phases(self) -> list[tuple[int, int]]:
        """The (row, column) phases of the strides that some tap of the filter reads."""
        rows = sorted({row * self.dilation[0] % self.strides[0] for row in range(self.filter_height)})
        columns = sorted({column * self.dilation[1] % self.strides[1] for column in range(self.filter_width)})
        return [(row, column) for row in rows for column in columns]

    @property
    def plane(self) -> tuple[Dim, Dim]:
        """Rows and columns of one phase's plane."""
        if self.is_direct:
            return self.height, self.width
        reach = [
            (size - 1) * dilation // stride
            for size, dilation, stride in zip(
                (self.filter_height, self.filter_width), self.dilation, self.strides, strict=True
            )
        ]
        return self.out_height + reach[0], self.out_width + reach[1]

    @property
    def channel_step(self) -> Dim:
        """Elements from one channel's planes to the next's."""
        return product(self.plane) * len(self.phases)

    @property
    def num_positions(self) -> Dim:
        """Output pixels, those between the end of one row and the start of the next included."""
        return (self.out_height - 1) * self.plane[1] + self.out_width

    def taps(self) -> list[Dim]:
        """Where each tap of the filter reads, relative to the first output pixel."""
        phases = {phase: index for index, phase in enumerate(self.phases)}
        offsets: list[Dim] = []
        for row in range(self.filter_height):
            for column in range(self.filter_width):
                down, phase_row = divmod(row * self.dilation[0], self.strides[0])
                right, phase_column = divmod(column * self.dilation[1], self.strides[1])
                phase = phases[phase_row, phase_column]
                offsets.append(phase * product(self.plane) + down * self.plane[1] + right)
        return offsets


def _pair(value: object) -> tuple[int, int]:
    assert isinstance(value, tuple)
    return int(value[0]), int(value[1])


def _four(value: object) -> tuple[int, int, int, int]:
    assert isinstance(value, tuple)
    return int(value[0]), int(value[1]), int(value[2]), int(value[3])


def _write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution and of what follows it elementwise."""
    unit = kernel.unit
    anchor = kernel.group.steps[0]
    shape = _Geometry.of_step(anchor)
    assert isinstance(anchor.result.type, TensorType)
    dtype = anchor.result.type.dtype
    per_group = shape.out_channels // shape.groups
    width = shape.num_positions if isinstance(shape.num_positions, int) else None
    rows, vectors = unit.outer_shape(per_group, width, dtype)
    tile = vectors * unit.lanes(dtype)
    # Reading the image itself is safe only where the last tile can be moved back to end with it.
    direct = shape.is_direct and isinstance(width, int) and width >= tile
    kernel.names.reserve(_LOCALS)
    x, weight = kernel.input(anchor.operands[0], "x"), kernel.input(anchor.operands[1], "weight")
    if not direct:
        kernel.scratch = shape.channels * shape.channel_step + tile
    ctype = kernel.ctype(anchor.result)
    helpers = _tile_helpers(shape, unit, dtype, rows, vectors)
    tiles = _tile_loop(shape, weight, ctype, rows, tile, direct=direct)
    tiles += ["      " + line for line in _epilogue(shape, kernel, rows, tile)]
    tiles.append("    }")
    num_items = shape.groups * -(-per_group // rows) * ((shape.num_positions + (tile - 1)) // tile)
    depth = shape.channels // shape.groups * shape.filter_height * shape.filter_width
    item_ps = rows * tile * depth * multiply_add_ps(unit, dtype)
    plane = c_dim(shape.channels * shape.height * shape.width)
    body: list[str | ParallelLoop] = [*_taps_lines(shape)]
    body.append(f"  for (int64_t n = 0; n < {c_dim(shape.batch)}; ++n) {{")
    if direct:
        body.append(f"    const {ctype} *planes = {x} + n * {plane};")
    else:
        body += _fill_lines(shape, ctype, x, tile)
    body += [ParallelLoop(tuple(tiles), num_items, item_ps), "  }"]
    kernel.finish(body, helpers, variables=["int64_t n", "const int64_t *taps", f"const {ctype} *planes"])


def _tile_helpers(shape: _Geometry, unit: VectorUnit, dtype: str, rows: int, vectors: int) -> str:
    _, depth_step, tap_step = shape.weight_steps
    tail = shape.out_channels // shape.groups % rows
    return "".join(
        outer_tile(f"{{name}}_{count}", unit, dtype, (count, vectors), depth_step=depth_step, tap_step=tap_step)
        for count in (rows, tail)
        if count
    )


def _taps_lines(shape: _Geometry) -> list[str]:
    taps = shape.taps()
    storage = "static const" if all(isinstance(tap, int) for tap in taps) else "const"
    return [f"  {storage} int64_t taps[{len(taps)}] = {{{', '.join(map(c_dim, taps))}}};"]


def _fill_lines(shape: _Geometry, ctype: str, x: str, tile: int) -> list[str | ParallelLoop]:
    """Gives what copies an image into padded planes, those of one channel and phase after another."""
    rows, columns = shape.plane
    top, left = shape.padding[:2]
    phases = ", ".join(f"{{{row}, {column}}}" for row, column in shape.phases)
    count = len(shape.phases)
    plane = c_dim(shape.channels * shape.height * shape.width)
    lines = (
        f"    static const int64_t phases[{count}][2] = {{{phases}}};",
        f"    for (int64_t c = {FIRST_ITEM}; c < {END_ITEM}; ++c) {{",
        f"      const {ctype} *from = {x} + n * {plane} + c / {count} * {c_dim(shape.height * shape.width)};",
        f"      {ctype} *to = scratch + c * {c_dim(rows * columns)};",
        f"      const int64_t down = phases[c % {count}][0] - {top}, right = phases[c % {count}][1] - {left};",
        "      /* the columns [begin, end) of a plane lie inside the image */",
        f"      const int64_t first = byoc_max(0, -byoc_floordiv(right, {shape.strides[1]}));",
        f"      const int64_t last = byoc_floordiv({c_dim(shape.width)} - 1 - right, {shape.strides[1]});",
        f"      const int64_t begin = byoc_min({c_dim(columns)}, first);",
        f"      const int64_t end = byoc_max(begin, byoc_min({c_dim(columns)}, last + 1));",
        f"      for (int64_t row = 0; row < {c_dim(rows)}; ++row, to += {c_dim(columns)}) {{",
        f"        const int64_t y = row * {shape.strides[0]} + down;",
        "        int64_t col = 0;",
        f"        if (y >= 0 && y < {c_dim(shape.height)}) {{",
        "          for (; col < begin; ++col) to[col] = 0;",
        f"          const {ctype} *line = from + y * {c_dim(shape.width)} + right;",
        f"          for (; col < end; ++col) to[col] = line[col * {shape.strides[1]}];",
        "        }",
        f"        for (; col < {c_dim(columns)}; ++col) to[col] = 0;",
        "      }",
        "    }",
    )
    return [
        ParallelLoop(lines, shape.channels * count, rows * columns * _COPY_PS),
        f"    memset(scratch + {c_dim(shape.channels * shape.channel_step)}, 0, {tile} * sizeof(*scratch));",
        f"    const {ctype} *planes = scratch;",
    ]


def _tile_loop(shape: _Geometry, weight: str, ctype: str, rows: int, tile: int, *, direct: bool) -> list[str]:
    """Gives the head of the loop over tiles, and the computation of one tile's sums.

    A tile's last columns may lie behind the image's end, where the planes are padded; with the image itself it is moved
    back to end with it, and its first columns, which are the neighbour's, are not stored.
    """
    per_group = shape.out_channels // shape.groups
    depth = shape.channels // shape.groups
    row_step = shape.weight_steps[0]
    step = c_dim(shape.channel_step)
    num_taps = shape.filter_height * shape.filter_width
    positions = c_dim(shape.num_positions)
    across, down = c_dim((shape.num_positions + (tile - 1)) // tile), -(-per_group // rows)
    tail = per_group % rows
    start = f"byoc_min(p, {positions} - {tile})" if direct else "p"
    source = f"planes + g * {depth} * {step} + p0, {step}, taps, {num_taps}"
    factors = f"{weight} + (g * {per_group} + o0) * {row_step}, {row_step}, {depth}, sums"
    call = f"{{name}}_{rows}({source}, {factors});"
    lines = [
        f"    for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"      const int64_t block = item / {across}, p = item % {across} * {tile}, p0 = {start};",
        f"      const int64_t g = block / {down}, o0 = block % {down} * {rows};",
        f"      {ctype} sums[{rows} * {tile}];",
    ]
    if tail:
        lines += [
            f"      if (o0 + {rows} <= {per_group}) {call}",
            f"      else {{name}}_{tail}({source}, {factors});",
        ]
    else:
        lines.append(f"      {call}")
    return lines


def _epilogue(shape: _Geometry, kernel: Kernel, rows: int, tile: int) -> list[str]:
    anchor, *rest = kernel.group.steps
    ctype = kernel.ctype(anchor.result)
    space = shape_of(anchor.result)
    indices = ("n", "o", "y", "col")

    def offset(dims: tuple[Dim, ...]) -> str:
        return offset_expression(dims, space, indices)

    known: dict[Value, str] = {anchor.result: "sum"}
    lines = pointwise_lines(kernel, rest, offset, known)
    lines += store_lines(kernel, kernel.stored, offset, known)
    per_group = shape.out_channels // shape.groups
    columns = c_dim(shape.plane[1])
    words = set(re.findall(r"\w+", " ".join(lines)))
    return [
        f"for (int64_t j = 0; j < byoc_min({rows}, {per_group} - o0); ++j) {{",
        *([f"  const int64_t o = g * {per_group} + o0 + j;"] if "o" in words else []),
        f"  for (int64_t y = p / {columns}; y < {c_dim(shape.out_height)} && y * {columns} < p0 + {tile}; ++y) {{",
        f"    const {ctype} *line = sums + j * {tile} + y * {columns} - p0;",
        f"    const int64_t x0 = byoc_max(0, p - y * {columns});",
        f"    const int64_t x1 = byoc_min({c_dim(shape.out_width)}, p0 + {tile} - y * {columns});",
        "    for (int64_t col = x0; col < x1; ++col) {",
        f"      const {ctype} sum = line[col];",
        *(f"      {line}" for line in lines),
        "    }",
        "  }",
        "}",
    ]


def _reject(binding: Binding) -> Rejection | None:
    if binding.attrs["data_layout"] != "NCHW":
        return Rejection("layout", f"nn.conv2d is compiled for the layout NCHW, not for {binding.attrs['data_layout']}")
    channels = operand_shape(binding, 0)[1]
    weight = operand_type(binding, 1)
    if weight.symbols or not isinstance(channels, int):
        return Rejection("dynamic-shape", "nn.conv2d is compiled for a known number of channels and a known filter")
    if 0 in (weight.shape or ()):
        return Rejection("shape", "nn.conv2d has a filter without elements")
    return reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    shape = _Geometry.of_step(step)
    top, left, bottom, right = shape.padding
    padded = [shape.batch, shape.channels, shape.height + top + bottom, shape.width + left + right]
    window = zip((shape.filter_height, shape.filter_width), shape.dilation, strict=True)
    require_window(scope, step, padded, [0, 0, *((size - 1) * apart + 1 for size, apart in window)])


FAMILY = KernelFamily(frozenset({"nn.conv2d"}), _reject, _write, takes_epilogue=True, require=_require)
"""Convolution over two axes."""
