"""Windows of pooling, whatever the layout: where they begin and end, and how their elements are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["PoolAxis", "Pooling", "Window"]


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """The windows along one spatial axis.

    Each has ``window`` taps, or 0 for adaptive pooling: they share the axis out. ``begin`` and ``end`` are padding.
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
        """Return a window's first place inside the image, its taps there and with padding, and the declarations."""
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
            # Padding is smaller than the window: one tap at least is not skipped.
            c.Let(count, c.index_min(self.window - skip, room)),
            c.Let(wide, c.index_min(c.Size(self.window), reach)),
        )
        return first, count, wide, statements


class Window(NamedTuple):
    """One window: the place of a tap along each axis, what a mean divides by, and the statements that declare both.

    For each axis ``taps`` has the index of a tap, from the first one inside the image on, and how many lie there.
    """

    places: Sequence[c.Expression]
    divisor: c.Variable
    statements: c.Block
    taps: Sequence[tuple[c.Variable, c.Variable]]


@dataclass(frozen=True, slots=True)
class Pooling:
    """One pooling op: ``kind`` is ``max``, ``avg`` or ``lp``, and ``power`` the exponent of ``lp``."""

    kind: str
    type: c.CType
    batch: Dim
    channels: Dim
    axes: tuple[PoolAxis, ...]
    counts_padding: bool
    power: int

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Return the pooling that an op says."""
        binding, attrs = step.binding, step.binding.attrs
        order = axes_of(str(attrs["layout"]), "NC")
        batch, channels, *sizes = (shape_of(step.operands[0])[axis] for axis in order)
        out_sizes = [shape_of(step.result)[axis] for axis in order[2:]]
        columns: list[Sequence[Any]] = ["dhw"[-len(sizes) :], sizes, out_sizes]
        if "output_size" not in attrs:
            padding = ints_of(binding, "padding")
            columns += [ints_of(binding, name) for name in ("pool_size", "strides", "dilation")]
            columns += [padding[: len(sizes)], padding[len(sizes) :]]
        axes = tuple(PoolAxis(*axis) for axis in zip(*columns, strict=True))
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
        """Return a total with one more element."""
        if not self.is_sum:
            maximum = c.Callee(f"byoc_maximum_{c_suffix(self.type.dtype)}", np.maximum, flops=1)
            return c.Call(maximum, (total, value), self.type)
        if self.kind == "avg":
            return total + value
        absolute = self._call("fabs", np.abs, value)
        return total + (absolute if self.power == 1 else self._power(absolute, self.power))

    def finish(self, total: c.Expression, divisor: c.Expression) -> c.Expression:
        """Return the result from a window's total, and from what a mean divides by."""
        if self.kind == "avg":
            return total / divisor
        if self.kind == "max" or self.power == 1:
            return total
        return self._call("sqrt", np.sqrt, total) if self.power == 2 else self._power(total, 1.0 / self.power)

    def window(self, indices: Sequence[c.Expression]) -> Window:
        """Return the window with this number along each axis."""
        statements: c.Block = ()
        taps: list[tuple[c.Variable, c.Variable]] = []
        places: list[c.Expression] = []
        counted: c.Expression = c.Size(1)
        for axis, index in zip(self.axes, indices, strict=True):
            first, count, wide, declarations = axis.taps(index)
            statements += declarations
            taps.append((c.Variable(f"k_{axis.name}"), count))
            places.append(first + taps[-1][0] * axis.dilation)
            counted = counted * (wide if self.counts_padding else count)
        divisor = c.Variable("divisor", self.type)
        declared = c.Let(divisor, c.Cast(c.index_max(c.Size(1), counted), self.type))
        return Window(places, divisor, (*statements, declared), taps)

    def _power(self, base: c.Expression, exponent: float) -> c.Expression:
        return self._call("pow", np.power, base, c.Literal(exponent, self.type))

    def _call(self, name: str, evaluate: Callable[..., Any], *arguments: c.Expression) -> c.Expression:
        callee = c.Callee(f"{name}f" if self.type.dtype == "float32" else name, evaluate, flops=1)
        return c.Call(callee, arguments, self.type)
