"""Convolutions and transposed convolutions of any rank, layout and number type, as plain loops.

One item is some neighbours along the last axis of the result: output channels, to each of which every element of a
window adds its share; or pixels of a line, to which every tap adds a stretch of a line of the image. These neighbours
are what a C compiler makes vectors of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import Dim, product
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["write"]

_STRETCH = 64
"""Neighbours that are computed together."""

_PRODUCT_PS = 200
"""Estimated picoseconds of one product and sum."""

_LOCALS = (
    *("item", "n", "g", "o", "o0", "p0", "count", "sums", "totals", "factor", "c", "first", "end", "at", "rest"),
    *("from", "right"),
    *(f"{letter}{axis}" for letter in "ykit" for axis in range(3)),
)


@dataclass(frozen=True, slots=True)
class _Loops:
    """A convolution's sizes and distances: N and channels apart, spatial axes in order.

    Attributes:
        is_transposed: whether every element of the image adds a scaled filter to the result.
        is_last: whether the channels are the last axis of image and result.
        sizes: of the image, spatial.
        out_sizes: of the result, spatial.
        window: of the filter, spatial.
        strides: of the windows.
        dilation: of the taps.
        padding: in front of each axis.
        groups: how many there are.
        in_channels: of a group.
        out_channels: of a group.
        image_steps: the image's distances along N, C and the spatial axes.
        weight_steps: the filter's along output channels, input channels and the spatial axes.
    """

    is_transposed: bool
    is_last: bool
    sizes: tuple[Dim, ...]
    out_sizes: tuple[Dim, ...]
    window: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    in_channels: Dim
    out_channels: Dim
    image_steps: tuple[Dim, ...]
    weight_steps: tuple[Dim, ...]

    @classmethod
    def of(cls, kernel: Kernel) -> _Loops:
        """Gives them for the convolution that a kernel begins with."""
        step = kernel.group.steps[0]
        binding = step.binding
        layout, groups = str(binding.attrs["data_layout"]), int_of(binding, "groups")
        data_axes, weight_axes = axes_of(layout, "NC"), axes_of(str(binding.attrs["kernel_layout"]), "OI")
        image, result, weight = (shape_of(value) for value in (step.operands[0], step.result, step.operands[1]))
        rank = len(layout) - 2
        return cls(
            is_transposed=step.op.endswith("_transpose"),
            is_last=layout.endswith("C"),
            sizes=tuple(image[axis] for axis in data_axes[2:]),
            out_sizes=tuple(result[axis] for axis in data_axes[2:]),
            window=tuple(weight[axis] for axis in weight_axes[2:]),
            strides=ints_of(binding, "strides"),
            dilation=ints_of(binding, "dilation"),
            padding=ints_of(binding, "padding")[:rank],
            groups=groups,
            in_channels=image[data_axes[1]] // groups,
            out_channels=result[data_axes[1]] // groups,
            image_steps=_pick(kernel.strides(step.operands[0]), data_axes),
            weight_steps=_pick(kernel.strides(step.operands[1]), weight_axes),
        )

    @property
    def ranges(self) -> list[tuple[str, Dim]]:
        """The indices of an item and how many values each has, outermost first; the last counts stretches."""
        spatial = [(f"y{axis}", size) for axis, size in enumerate(self.out_sizes)]
        if self.is_last:
            groups = [("g", self.groups)] if self.groups > 1 else []
            return [*spatial, *groups, ("o0", _stretches(self.out_channels))]
        return [("o", self.groups * self.out_channels), *spatial[:-1], ("p0", _stretches(self.out_sizes[-1]))]

    def image_offset(self, indices: Sequence[str]) -> str:
        """Gives where an element of the image lies: image ``n``, channel ``c`` of group ``g``, at these indices."""
        channel = f"(g * {c_dim(self.in_channels)} + c)" if self.groups > 1 else "c"
        return _offset(self.image_steps, ["n", channel, *indices])

    def weight_offset(self, out_channel: str) -> str:
        """Gives where a tap of the filter lies, from input channel ``c`` to an output channel of group ``g``."""
        into = "c"
        if self.groups > 1 and self.is_transposed:
            into = f"(g * {c_dim(self.in_channels)} + c)"
        elif self.groups > 1:
            out_channel = f"(g * {c_dim(self.out_channels)} + {out_channel})"
        return _offset(self.weight_steps, [out_channel, into, *(f"k{axis}" for axis in range(len(self.window)))])


def _pick(steps: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(steps[axis] for axis in axes)


def _stretches(size: Dim) -> Dim:
    return (size + (_STRETCH - 1)) // _STRETCH


def _offset(steps: Sequence[Dim], indices: Sequence[str]) -> str:
    """Gives the offset at indices along the first axes, which are C expressions."""
    terms = [index if step == 1 else f"{index} * {c_dim(step)}" for index, step in zip(indices, steps, strict=False)]
    return " + ".join(terms)


def write(kernel: Kernel) -> None:
    """Writes the kernel of a convolution of any kind, and of what follows it elementwise."""
    kernel.names.reserve(_LOCALS)
    step = kernel.group.steps[0]
    loops = _Loops.of(kernel)
    dtype, result = dtype_of(step.result), shape_of(step.result)
    x, weight = kernel.input(step.operands[0], "x"), kernel.input(step.operands[1], "weight")
    lines = [
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        *_place_lines(loops),
        f"    {_sum_type(dtype)} totals[{_STRETCH}] = {{0}};",
        *(_channel_lines(loops, x, weight, dtype) if loops.is_last else _line_lines(loops, x, weight, dtype)),
        f"    {c_type(dtype)} sums[{_STRETCH}];",
        f"    for (int64_t at = 0; at < count; ++at) sums[at] = ({c_type(dtype)})totals[at];",
        *epilogue_lines(kernel, _tile(loops, result), "    "),
        "  }",
    ]
    count = product(size for _, size in loops.ranges) * result[0]
    depth = loops.in_channels * product(loops.window)
    kernel.finish([ParallelLoop(tuple(lines), count, depth * (_STRETCH * _PRODUCT_PS))])


def _sum_type(dtype: str) -> str:
    """Gives the C type in which sums are made: integers wrap around, in an unsigned type as wide or wider."""
    if dtype.startswith("float"):
        return c_type(dtype)
    return "uint64_t" if dtype.endswith("64") else "uint32_t"


def _place_lines(loops: _Loops) -> list[str]:
    """Gives the lines that tell which part of the result an item is."""
    lines = ["    int64_t rest = item;"]
    for name, size in reversed(loops.ranges):
        scale = f" * {_STRETCH}" if name in ("o0", "p0") else ""
        if size == 1:
            lines.append(f"    const int64_t {name} = 0;")
            continue
        lines += [f"    const int64_t {name} = rest % {c_dim(size)}{scale};", f"    rest /= {c_dim(size)};"]
    lines.append("    const int64_t n = rest;")
    if loops.groups > 1 and not loops.is_last:
        lines.append(f"    const int64_t g = o / {c_dim(loops.out_channels)};")
    left = f"{c_dim(loops.out_channels)} - o0" if loops.is_last else f"{c_dim(loops.out_sizes[-1])} - p0"
    return [*lines, f"    const int64_t count = byoc_min({_STRETCH}, {left});"]


def _tile(loops: _Loops, result: Sequence[Dim]) -> TextTile:
    """Gives which part of the result an item is, its axes but the last seen as one."""
    names = ["n", *(name for name, _ in loops.ranges if name[0] in "yo" and name != "o0")]
    row = names[0]
    for name, size in zip(names[1:], result[1:-1], strict=True):
        row = f"({row} * {c_dim(size)} + {name})"
    column = "p0" if not loops.is_last else "o0"
    if loops.is_last and loops.groups > 1:
        column = f"g * {c_dim(loops.out_channels)} + o0"
    return TextTile("sums", str(_STRETCH), row, "1", column, "count")


def _tap_lines(loops: _Loops, axes: Sequence[int], indent: str) -> tuple[list[str], list[str]]:
    """Gives the heads of loops over the taps along some axes, which pass over those outside the image, and the ends."""
    heads: list[str] = []
    ends: list[str] = []
    for axis in axes:
        heads.append(f"{indent}for (int64_t k{axis} = 0; k{axis} < {c_dim(loops.window[axis])}; ++k{axis}) {{")
        ends.insert(0, f"{indent}}}")
        indent += "  "
        stride, apart, padding = loops.strides[axis], loops.dilation[axis], loops.padding[axis]
        if loops.is_transposed:
            heads.append(f"{indent}const int64_t t{axis} = y{axis} + {padding} - k{axis} * {apart};")
            heads.append(f"{indent}if (t{axis} < 0 || t{axis} % {stride} != 0) continue;")
            heads.append(f"{indent}const int64_t i{axis} = t{axis} / {stride};")
            outside = f"i{axis} >= {c_dim(loops.sizes[axis])}"
        else:
            heads.append(f"{indent}const int64_t i{axis} = y{axis} * {stride} + k{axis} * {apart} - {padding};")
            outside = f"i{axis} < 0 || i{axis} >= {c_dim(loops.sizes[axis])}"
        heads.append(f"{indent}if ({outside}) continue;")
    return heads, ends


def _channel_lines(loops: _Loops, x: str, weight: str, dtype: str) -> list[str]:
    """Gives the loops that add up the totals of neighbouring output channels."""
    axes = range(len(loops.window))
    heads, ends = _tap_lines(loops, axes, "    ")
    indent = "    " + "  " * len(axes)
    kind = _sum_type(dtype)
    step = loops.weight_steps[0]
    return [
        *heads,
        f"{indent}for (int64_t c = 0; c < {c_dim(loops.in_channels)}; ++c) {{",
        f"{indent}  const {kind} factor = {x}[{loops.image_offset([f'i{axis}' for axis in axes])}];",
        f"{indent}  const {c_type(dtype)} *from = {weight} + {loops.weight_offset('o0')};",
        f"{indent}  for (int64_t at = 0; at < count; ++at) {{",
        f"{indent}    totals[at] += factor * ({kind})from[{'at' if step == 1 else f'at * {c_dim(step)}'}];",
        f"{indent}  }}",
        f"{indent}}}",
        *ends,
    ]


def _line_lines(loops: _Loops, x: str, weight: str, dtype: str) -> list[str]:
    """Gives the loops that add up the totals of neighbouring pixels of a line."""
    last = len(loops.window) - 1
    heads, ends = _tap_lines(loops, range(last), "      ")
    indent = "      " + "  " * last
    stride, padding, kind = loops.strides[last], loops.padding[last], _sum_type(dtype)
    size, tap = c_dim(loops.sizes[last]), f"k{last} * {loops.dilation[last]}"
    step = "" if loops.image_steps[-1] == 1 else f" * {c_dim(loops.image_steps[-1])}"
    out_channel = f"(o - g * {c_dim(loops.out_channels)})" if loops.groups > 1 else "o"
    if loops.is_transposed:
        inner = [
            f"const int64_t right = {tap} - {padding} - p0;",
            f"const int64_t first = byoc_max(0, -byoc_floordiv(right, {stride}));",
            f"const int64_t end = byoc_min({size}, byoc_floordiv(count - 1 - right, {stride}) + 1);",
            "for (int64_t at = first; at < end; ++at) {",
            f"  totals[at * {stride} + right] += factor * ({kind})from[at{step}];",
            "}",
        ]
    else:
        inner = [
            f"const int64_t right = p0 * {stride} + {tap} - {padding};",
            f"const int64_t first = byoc_max(0, -byoc_floordiv(right, {stride}));",
            f"const int64_t end = byoc_min(count, byoc_floordiv({size} - 1 - right, {stride}) + 1);",
            "for (int64_t at = first; at < end; ++at) {",
            f"  totals[at] += factor * ({kind})from[(right + at * {stride}){step}];",
            "}",
        ]
    return [
        f"    for (int64_t c = 0; c < {c_dim(loops.in_channels)}; ++c) {{",
        *heads,
        f"{indent}const {c_type(dtype)} *from = {x} + {loops.image_offset([*(f'i{axis}' for axis in range(last))])};",
        f"{indent}for (int64_t k{last} = 0; k{last} < {c_dim(loops.window[last])}; ++k{last}) {{",
        f"{indent}  const {kind} factor = {weight}[{loops.weight_offset(out_channel)}];",
        *(f"{indent}  {line}" for line in inner),
        f"{indent}}}",
        *ends,
        "    }",
    ]
