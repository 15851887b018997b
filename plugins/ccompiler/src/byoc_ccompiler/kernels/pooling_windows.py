"""What pooling is, whatever the layout: where windows begin and end, and what is done with their elements."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim, product
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["PoolAxis", "Pooling", "Window", "loops_over"]


@dataclass(frozen=True, slots=True)
class Taps:
    """The taps of a window along one axis that lie inside the image.

    Attributes:
        first: the position of the first one in the image.
        count: how many there are.
        wide: how many count for a mean with padding.
        statements: declare the variables.
    """

    first: c.Variable
    count: c.Variable
    wide: c.Variable
    statements: c.Block


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

    def taps(self, name: str, index: c.Expression) -> Taps:
        """Return a window's taps inside the image.

        Args:
            name: of the axis.
            index: the window's number.
        """
        size = c.Size(self.size)
        first, count, wide = (c.Variable(f"{prefix}_{name}") for prefix in ("first", "count", "wide"))
        if not self.window:
            end = ((index + 1) * size + (self.out_size - 1)) // self.out_size
            return Taps(first, count, count, (c.Let(first, index * size // self.out_size), c.Let(count, end - first)))
        start, skip, room = (c.Variable(f"{prefix}_{name}") for prefix in ("start", "skip", "room"))
        skipped = (self.dilation - 1 - start) // self.dilation
        left = (size - 1 - first + self.dilation) // self.dilation
        reach = (size + (self.end - 1) - start) // self.dilation + 1
        statements: c.Block = (
            c.Let(start, index * self.stride - self.begin),
            c.Let(skip, c.Select(start.compare("<", 0), skipped, c.Size(0))),
            c.Let(first, start + skip * self.dilation),
            c.Let(room, c.Select(first.compare("<", size), left, c.Size(0))),
            # Padding is smaller than the window: one tap at least is not skipped.
            c.Let(count, c.index_min(self.window - skip, room)),
            c.Let(wide, c.index_min(c.Size(self.window), reach)),
        )
        return Taps(first, count, wide, statements)


@dataclass(frozen=True, slots=True)
class Window:
    """One window, as variables.

    Attributes:
        taps: the indices of the taps along each axis, from the first one inside the image on.
        counts: how many taps lie inside the image, along each axis.
        places: where a tap lies in the image, along each axis.
        divisor: what a mean divides by.
        statements: declare the variables.
    """

    taps: tuple[c.Variable, ...]
    counts: tuple[c.Variable, ...]
    places: tuple[c.Expression, ...]
    divisor: c.Variable
    statements: c.Block


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
    def is_sum(self) -> bool:
        """Whether elements are added up."""
        return self.kind != "max"

    @property
    def type(self) -> c.CType:
        """The type of an element."""
        return c.CType(self.dtype)

    @property
    def num_taps(self) -> Dim:
        """The taps of a window; windows of adaptive pooling share the image out, so theirs are a mean."""
        return product([axis.window or (axis.size + (axis.out_size - 1)) // axis.out_size for axis in self.axes])

    @property
    def start(self) -> c.Literal:
        """The total of a window without elements."""
        least = -np.inf if self.type.is_float else np.iinfo(self.dtype).min
        return c.Literal(0 if self.is_sum else least, self.type)

    def combine(self, total: c.Expression, value: c.Expression) -> c.Expression:
        """Return a total with one more element."""
        if not self.is_sum:
            maximum = c.Callee(f"byoc_maximum_{c_suffix(self.dtype)}", np.maximum, flops=1)
            return c.Call(maximum, (total, value), self.type)
        if self.kind == "avg":
            return total + value
        absolute = self._call("fabs", np.abs, value)
        return total + (absolute if self.power == 1 else self._power(absolute, self.power))

    def finish(self, total: c.Expression, divisor: c.Expression) -> c.Expression:
        """Return the result from a window's total, and from what a mean divides by."""
        if self.kind == "avg":
            return total / divisor
        if self.kind == "lp" and self.power == 2:
            return self._call("sqrt", np.sqrt, total)
        if self.kind == "lp" and self.power != 1:
            return self._power(total, 1.0 / self.power)
        return total

    def window(self, indices: Sequence[c.Expression]) -> Window:
        """Return the window with this number along each axis."""
        found = [axis.taps(name, index) for axis, name, index in zip(self.axes, self.names, indices, strict=True)]
        taps = tuple(c.Variable(f"k_{name}") for name in self.names)
        places = tuple(one.first + tap * axis.dilation for one, tap, axis in zip(found, taps, self.axes, strict=True))
        counts: list[c.Expression] = [one.wide if self.counts_padding else one.count for one in found]
        divisor = c.Variable("divisor", self.type)
        mean = c.Let(divisor, c.Cast(c.index_max(c.Size(1), functools.reduce(operator.mul, counts)), self.type))
        statements = (*itertools.chain.from_iterable(one.statements for one in found), mean)
        return Window(taps, tuple(one.count for one in found), places, divisor, statements)

    def _power(self, base: c.Expression, exponent: float) -> c.Expression:
        return self._call("pow", np.power, base, c.Literal(exponent, self.type))

    def _call(self, name: str, evaluate: Callable[..., Any], *arguments: c.Expression) -> c.Expression:
        callee = c.Callee(f"{name}f" if self.dtype == "float32" else name, evaluate, flops=1)
        return c.Call(callee, arguments, self.type)


def loops_over(indices: Sequence[c.Variable], counts: Sequence[c.Expression], body: c.Block) -> c.Block:
    """Return loops around a block, the first outermost."""
    for index, count in reversed(list(zip(indices, counts, strict=True))):
        body = (c.For(index, c.Size(0), count, body),)
    return body
