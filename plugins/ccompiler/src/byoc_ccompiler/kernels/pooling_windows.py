"""Pooling windows: sizes along each axis, the positions of a window's taps, and the combination of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope, c_suffix
from byoc_core.dims import Dim
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.kernels.copies import offset_along
from byoc_ccompiler.kernels.pointwise import known_power
from byoc_ccompiler.size_checks import require_spatial
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["PooledAxis", "PooledImage", "Pooling", "Window", "layout_of", "require_windows"]


@dataclass(frozen=True, slots=True)
class PooledAxis:
    """The windows along a spatial axis.

    Each window has ``window`` taps, or 0 for adaptive pooling: the windows then divide the axis. ``begin`` and ``end``
    are padding.
    """

    name: str
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
        if not self.window or self.begin or not isinstance(self.size, int) or not isinstance(self.out_size, int):
            return False
        return (self.out_size - 1) * self.stride + (self.window - 1) * self.dilation < self.size

    def taps(self, index: c.Expression) -> tuple[c.Variable, c.Variable, c.Variable, c.Block]:
        """Return a window's first position inside the image, the taps inside and with padding, and the declarations."""
        first, count, wide, start, skip, room = (
            c.Variable(f"{prefix}_{self.name}") for prefix in ("first", "count", "wide", "start", "skip", "room")
        )
        size = c.Size(self.size)
        if not self.window:
            end = ((index + 1) * size + (self.out_size - 1)) // self.out_size
            return first, count, count, (c.Let(first, index * size // self.out_size), c.Let(count, end - first))
        skipped = (self.dilation - 1 - start) // self.dilation
        left = (size - 1 - first + self.dilation) // self.dilation
        reach = (size + (self.end - 1) - start) // self.dilation + 1
        statements: c.Block = (
            c.Let(start, index * self.stride - self.begin),
            c.Let(skip, c.Select(start.compare("<", 0), skipped, c.Size(0))),
            c.Let(first, start + skip * self.dilation),
            c.Let(room, c.Select(first.compare("<", size), left, c.Size(0))),
            # Padding is smaller than the window: at least one tap is not skipped.
            c.Let(count, c.index_min(self.window - skip, room)),
            c.Let(wide, c.index_min(c.Size(self.window), reach)),
        )
        return first, count, wide, statements


class Window(NamedTuple):
    """A window: the position of a tap along each axis, the divisor of a mean, and the statements declaring both.

    For each axis, ``taps`` has the index of a tap, counted from the first tap inside the image, ``counts`` their
    number.
    """

    positions: Sequence[c.Expression]
    divisor: c.Variable
    statements: c.Block
    taps: Sequence[c.Variable]
    counts: Sequence[c.Variable]


@dataclass(frozen=True, slots=True)
class Pooling:
    """A pooling op: ``kind`` is ``max``, ``avg`` or ``lp``, and ``power`` the exponent of ``lp``."""

    kind: str
    type: c.CType
    batch: Dim
    channels: Dim
    axes: tuple[PooledAxis, ...]
    counts_padding: bool
    power: int

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Return the pooling defined by an op."""
        binding, attrs = step.binding, step.binding.attrs
        order = axes_of(layout_of(step), "NC")
        batch, channels, *sizes = (shape_of(step.operands[0])[axis] for axis in order)
        out_sizes = [shape_of(step.result)[axis] for axis in order[2:]]
        columns: list[Sequence[Any]] = ["dhw"[-len(sizes) :], sizes, out_sizes]
        if "output_size" not in attrs:
            padding = ints_of(binding, "padding")
            columns += [ints_of(binding, name) for name in ("pool_size", "strides", "dilation")]
            columns += [padding[: len(sizes)], padding[len(sizes) :]]
        axes = tuple(PooledAxis(*axis) for axis in zip(*columns, strict=True))
        kind = step.op.removeprefix("nn.").removeprefix("adaptive_").partition("_")[0]
        power = int_of(binding, "p") if "p" in attrs else 1
        type_, counts_padding = c.CType(dtype_of(step.result)), attrs.get("count_include_pad") is True
        return cls(kind, type_, batch, channels, axes, counts_padding, power)

    @property
    def is_sum(self) -> bool:
        """Whether elements are added up."""
        return self.kind != "max"

    @property
    def is_inside(self) -> bool:
        """Whether every tap of every window is known to lie inside the image."""
        return all(axis.is_inside for axis in self.axes)

    @property
    def start(self) -> c.Literal:
        """The total of a window without elements."""
        least = -np.inf if self.type.is_float else np.iinfo(self.type.dtype).min
        return c.Literal(0 if self.is_sum else least, self.type)

    def combine(self, total: c.Expression, value: c.Expression) -> c.Expression:
        """Return a total with a further element."""
        if not self.is_sum:
            maximum = c.Callee(f"byoc_maximum_{c_suffix(self.type.dtype)}", np.maximum, flops=1)
            # NaN is looked for in the element, not in the total: gcc makes branches of a chain of tests of totals.
            return c.Call(maximum, (value, total), self.type)
        if self.kind == "avg":
            return total + value
        size = c.Callee("fabsf" if self.type.dtype == "float32" else "fabs", np.abs, flops=1)
        return total + known_power(c.Call(size, (value,), self.type), self.power)

    def finish(self, total: c.Expression, divisor: c.Expression) -> c.Expression:
        """Return the result from a window's total and the divisor of a mean."""
        if self.kind == "avg":
            return total / divisor
        return known_power(total, 1.0 / self.power)

    def window(self, indices: Sequence[c.Expression]) -> Window:
        """Return the window with this number along each axis."""
        statements: c.Block = ()
        taps = [c.Variable(f"k_{axis.name}") for axis in self.axes]
        positions: list[c.Expression] = []
        counts: list[c.Variable] = []
        counted: c.Expression = c.Size(1)
        for axis, index, tap in zip(self.axes, indices, taps, strict=True):
            first, count, wide, declarations = axis.taps(index)
            statements += declarations
            counts.append(count)
            positions.append(first + tap * axis.dilation)
            counted = counted * (wide if self.counts_padding else count)
        divisor = c.Variable("divisor", self.type)
        declared = c.Let(divisor, c.Cast(c.index_max(c.Size(1), counted), self.type))
        return Window(positions, divisor, (*statements, declared), taps, counts)


def layout_of(step: Step) -> str:
    """Return the layout of a pooling op; ops without the attribute have channels first."""
    return str(step.binding.attrs.get("layout", "NC" + "DHW"[2 - len(shape_of(step.operands[0])) :]))


class PooledImage(NamedTuple):
    """A channel of an image, or a chunk of channels: a pointer to the first element, and the spatial strides."""

    first: c.Alias
    strides: Sequence[Dim]

    def pointer(self, name: str, positions: Sequence[c.Expression]) -> c.Alias:
        """Return the pointer to the element at positions along the spatial axes, or along the leading axes."""
        buffer, offset = self.first.buffer, offset_along(positions, self.strides[: len(positions)])
        return c.Alias(replace(buffer, name=name), buffer, offset)


def require_windows(scope: FunctionScope, step: Step) -> None:
    """Require a window of a pooling op inside the padded image."""
    axes = Pooling.of_step(step).axes
    padded = [axis.size + axis.begin + axis.end for axis in axes]
    # Adaptive pooling divides any image.
    window = [(axis.window - 1) * axis.dilation + 1 if axis.window else 1 for axis in axes]
    require_spatial(scope, step.op, "the padded image", padded, window)
