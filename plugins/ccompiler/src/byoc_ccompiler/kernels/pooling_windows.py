"""What pooling is in C, whatever the layout: where windows begin and end, and what is done with their elements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from byoc_core.authoring.csource import c_dim, c_literal, c_suffix, c_type
from byoc_core.dims import Dim
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["PoolAxis", "Pooling", "needed_lines"]


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """The windows along one spatial axis.

    Attributes:
        size: of the image.
        out_size: how many windows there are.
        window: taps of a window; 0 for adaptive pooling, where the windows share the axis out.
        stride: from window to window.
        dilation: from tap to tap.
        begin: padding in front.
        end: padding behind.
    """

    size: Dim
    out_size: Dim
    window: int = 0
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def is_inside(self) -> bool:
        """Whether every tap of every window is known to lie inside the image."""
        if not self.window or self.begin:
            return False
        if isinstance(self.size, int) and isinstance(self.out_size, int):
            return (self.out_size - 1) * self.stride + (self.window - 1) * self.dilation < self.size
        return False

    def lines(self, name: str, index: str, *, counted: bool) -> list[str]:
        """Gives C declarations of a window's taps inside the image.

        They are ``first_<name>``, the position of the first in the image, and ``count_<name>``, how many there are;
        and ``wide_<name>``, how many count for a mean with padding, if that is asked for.

        Args:
            name: of the axis.
            index: C expression of the window's number.
            counted: whether ``wide_<name>`` is wanted.
        """
        size, first, count = c_dim(self.size), f"first_{name}", f"count_{name}"
        if not self.window:
            out = c_dim(self.out_size)
            return [
                f"const int64_t {first} = {index} * {size} / {out};",
                f"const int64_t {count} = (({index} + 1) * {size} + {out} - 1) / {out} - {first};",
            ]
        start = f"start_{name}"
        room = f"({size} - 1 - {first} + {self.dilation}) / {self.dilation}"
        lines = [
            f"const int64_t {start} = {index} * {self.stride} - {self.begin};",
            f"const int64_t skip_{name} = {start} < 0 ? ({self.dilation - 1} - {start}) / {self.dilation} : 0;",
            f"const int64_t {first} = {start} + skip_{name} * {self.dilation};",
            f"const int64_t room_{name} = {first} < {size} ? {room} : 0;",
            # Padding is smaller than the window: one tap at least is not skipped.
            f"const int64_t {count} = byoc_min({self.window} - skip_{name}, room_{name});",
        ]
        if counted:
            reach = f"({size} + {self.end - 1} - {start}) / {self.dilation} + 1"
            lines.append(f"const int64_t wide_{name} = byoc_min({self.window}, {reach});")
        return lines


@dataclass(frozen=True, slots=True)
class Pooling:
    """One pooling op.

    Attributes:
        kind: ``max``, ``avg`` or ``lp``.
        dtype: of image and result.
        layout: of both.
        batch: how many images.
        channels: how many channels.
        axes: the spatial axes.
        counts_padding: whether padding counts in a mean.
        power: the exponent of ``lp``.
    """

    kind: str
    dtype: str
    layout: str
    batch: Dim
    channels: Dim
    axes: tuple[PoolAxis, ...]
    counts_padding: bool
    power: int

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Gives what an op says."""
        attrs, layout = step.binding.attrs, str(step.binding.attrs["layout"])
        order = axes_of(layout, "NC")
        batch, channels, *sizes = (shape_of(step.operands[0])[axis] for axis in order)
        out_sizes = [shape_of(step.result)[axis] for axis in order[2:]]
        rank = len(sizes)
        if "output_size" in attrs:
            axes = [PoolAxis(size, out) for size, out in zip(sizes, out_sizes, strict=True)]
        else:
            window, strides, dilation, padding = (
                ints_of(step.binding, name) for name in ("pool_size", "strides", "dilation", "padding")
            )
            axes = [
                PoolAxis(sizes[k], out_sizes[k], window[k], strides[k], dilation[k], padding[k], padding[rank + k])
                for k in range(rank)
            ]
        kind = step.op.removeprefix("nn.").removeprefix("adaptive_").partition("_")[0]
        counts_padding = bool(attrs.get("count_include_pad", False))
        power = int_of(step.binding, "p") if "p" in attrs else 1
        return cls(kind, dtype_of(step.result), layout, batch, channels, tuple(axes), counts_padding, power)

    @property
    def names(self) -> tuple[str, ...]:
        """What the spatial axes are called in C."""
        return ("d", "h", "w")[3 - len(self.axes) :]

    @property
    def locals(self) -> tuple[str, ...]:
        """The C names that :meth:`axis_lines` declares and expressions call, and those of indices along the axes."""
        prefixes = ("first", "count", "start", "skip", "room", "wide", "from", "o", "k")
        functions = ("fabs", "fabsf", "pow", "powf")
        return (*(f"{prefix}_{name}" for prefix in prefixes for name in self.names), *functions, "divisor")

    @property
    def is_sum(self) -> bool:
        """Whether elements are added up."""
        return self.kind != "max"

    @property
    def start(self) -> str:
        """C expression of what a window without elements has."""
        if self.is_sum:
            return "0"
        floating = self.dtype.startswith("float")
        return c_literal(-np.inf if floating else np.iinfo(self.dtype).min, self.dtype)

    def combine(self, total: str, value: str) -> str:
        """Gives the C expression of a total with one more element."""
        if not self.is_sum:
            return f"byoc_maximum_{c_suffix(self.dtype)}({total}, {value})"
        if self.kind == "avg":
            return f"{total} + {value}"
        absolute = f"{self._function('fabs')}({value})"
        if self.power == 1:
            return f"{total} + {absolute}"
        return f"{total} + {self._function('pow')}({absolute}, {c_literal(self.power, self.dtype)})"

    def finish(self, total: str) -> str:
        """Gives the C expression of the result from a window's total; ``divisor`` is what a mean divides by."""
        if self.kind == "avg":
            return f"{total} / divisor"
        if self.kind == "lp" and self.power == 2:
            return f"{self._function('sqrt')}({total})"
        if self.kind == "lp" and self.power != 1:
            return f"{self._function('pow')}({total}, {c_literal(1.0 / self.power, self.dtype)})"
        return total

    def axis_lines(self, indices: Sequence[str]) -> list[str]:
        """Gives the C declarations of one window: those of every axis, and the divisor of a mean."""
        counted = self.kind == "avg" and self.counts_padding
        lines = []
        for axis, name, index in zip(self.axes, self.names, indices, strict=True):
            lines += axis.lines(name, index, counted=counted)
        if self.kind == "avg":
            ctype = c_type(self.dtype)
            factors = " * ".join(f"{'wide' if counted else 'count'}_{name}" for name in self.names)
            lines.append(f"const {ctype} divisor = ({ctype})byoc_max(1, {factors});")
        return lines

    def _function(self, name: str) -> str:
        return f"{name}f" if self.dtype == "float32" else name


def needed_lines(declarations: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Gives those of some C declarations, each on a line, that lines after them need."""
    words = set(re.findall(r"\w+", "\n".join(lines)))
    kept: list[str] = []
    for line in reversed(declarations):
        if re.findall(r"\w+", line.partition(" = ")[0])[-1] in words:
            kept.append(line)
            words.update(re.findall(r"\w+", line))
    return kept[::-1]
