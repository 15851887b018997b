"""Weights of rows and columns of pixels in bilinear samples of regions: tables for each region, in scratch memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import flag_of, float_of, int_of, ints_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["RegionAxis", "RegionPooling", "RegionScratch"]

_LINE = 64

_REAL = c.CType("float64")
_ZERO = c.Literal(0.0, _REAL)


def _real(value: c.Expression | Dim) -> c.Expression:
    """Return an index as a float64."""
    return c.Cast(value if isinstance(value, c.Expression) else c.Size(value), _REAL)


def _call(function: np.ufunc, value: c.Expression) -> c.Expression:
    return c.Call(c.Callee(function.__name__, function, flops=1), (value,), _REAL)


class RegionScratch:
    """Parts of a kernel's scratch memory, a row of elements for each region."""

    def __init__(self, regions: Dim) -> None:
        self._regions = regions
        self._parts: list[tuple[c.Buffer, Dim]] = []

    def part(self, name: str, dtype: str, count: Dim) -> c.Buffer:
        """Return a buffer of ``count`` elements for each region."""
        buffer = c.Buffer(name, dtype, c.MemoryAccess.WRITE)
        nbytes = self._regions * (count * dtype_info(dtype).itemsize)
        self._parts.append((buffer, (nbytes + _LINE - 1) // _LINE * _LINE))
        return buffer

    def declare(self, kernel: Kernel) -> c.Block:
        """Return the declarations of all parts."""
        *offsets, total = itertools.accumulate((nbytes for _, nbytes in self._parts), initial=0)
        memory = kernel.scratch_memory(total, "uint8")
        parts = zip(self._parts, offsets, strict=True)
        return tuple(c.Alias(buffer, memory, c.Size(offset)) for (buffer, _), offset in parts)


@dataclass(frozen=True, slots=True)
class RegionPooling:
    """The attributes of an op; ``is_shifted`` by half a pixel, else regions have at least a pixel."""

    type: c.CType
    size: tuple[int, int]
    samples: int
    scale: float
    is_max: bool
    is_shifted: bool

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Return the pooling defined by an op."""
        binding = step.binding
        height, width = ints_of(binding, "size")
        scale, is_shifted = float_of(binding, "scale"), flag_of(binding, "half_pixel")
        samples, type_ = max(int_of(binding, "samples"), 0), c.CType(dtype_of(step.result))
        return cls(type_, (height, width), samples, scale, binding.attrs["method"] == "max", is_shifted)


@dataclass(frozen=True, slots=True)
class RegionAxis:
    """The samples of all regions along an axis of the image, and the tables filled from the samples.

    Attributes:
        name: the name of the axis in variables.
        length: the pixels.
        bins: the bins of a region.
        samples: the samples of a bin; 0: one for each pixel, rounded up.
        corner: the column of the first corner among the numbers of a region; the second follows two columns behind.
        room: the most entries of a region.
        ends: for each bin, the end of its entries.
        pixels: for each entry, the pixel.
        totals: for each entry, the sum of the pixel's weights; of a maximum, the largest weight.
        least: of a maximum, for each entry the smallest weight.
    """

    name: str
    length: Dim
    bins: int
    samples: int
    corner: int
    room: Dim
    ends: c.Buffer
    pixels: c.Buffer
    totals: c.Buffer
    least: c.Buffer | None

    @classmethod
    def allocate(
        cls, scratch: RegionScratch, name: str, length: Dim, bins: int, samples: int, corner: int, *, is_max: bool
    ) -> Self:
        """Return an axis with tables in scratch memory.

        The samples of a bin are visited in ascending order, a pixel thus has a single entry in a bin. Neighbouring bins
        share two pixels, or three if roundings swap samples.
        """
        by_length, by_samples = length + 3 * bins, 2 * samples * bins
        is_fewer = samples > 0 and (not isinstance(by_length, int) or by_samples < by_length)
        room: Dim = by_samples if is_fewer else by_length
        tables = (
            scratch.part(f"ends_{name}", "int64", bins),
            scratch.part(f"pixels_{name}", "int64", room),
            scratch.part(f"totals_{name}", "float64", room),
            scratch.part(f"least_{name}", "float64", room) if is_max else None,
        )
        return cls(name, length, bins, samples, corner, room, *tables)

    def span(
        self, pooling: RegionPooling, rois: c.Buffer, region: c.Expression
    ) -> tuple[c.Block, c.Variable, c.Variable]:
        """Return the declarations of a region's begin and length along the axis, and both variables."""
        begin, far, span = (c.Variable(f"{name}_{self.name}", _REAL) for name in ("begin", "far", "span"))
        shift = 0.5 if pooling.is_shifted else 0.0
        corners = [c.Cast(rois[region * 4 + (self.corner + step)], _REAL) * pooling.scale - shift for step in (0, 2)]
        length: c.Expression = far - begin
        if not pooling.is_shifted:  # A region has at least a pixel, or a length of NaN.
            length = c.Select((far - begin).compare("<", 1.0), c.Literal(1.0, _REAL), far - begin)
        return (c.Let(begin, corners[0]), c.Let(far, corners[1]), c.Let(span, length)), begin, span

    def sample_count(self, span: c.Expression) -> c.Expression:
        """Return the number of samples of a bin as a float64: at least 1, possibly more than permitted."""
        number = _call(np.ceil, span / float(self.bins))
        return c.Select(number.compare(">", 1.0), number, c.Literal(1.0, _REAL))

    def fill(self, pooling: RegionPooling, rois: c.Buffer, region: c.Expression) -> c.Block:
        """Return the statements filling the tables for a region."""
        declared, begin, span = self.span(pooling, rois, region)
        count, end, first = (c.Variable(f"{name}_{self.name}") for name in ("count", "end", "first"))
        step = c.Variable(f"step_{self.name}", _REAL)
        bin_, sample, k = c.Variable("bin"), c.Variable("sample"), c.Variable("k")
        position, inside, low, share, weight = (
            c.Variable(name, _REAL) for name in ("position", "inside", "low", "share", "weight")
        )
        samples: c.Expression = c.Cast(self.sample_count(span), c.INDEX) if self.samples < 1 else c.Size(self.samples)
        within = (_real(k) + 0.5) * (step / _real(count))
        last = _real(self.length - 1)
        is_inside = c.Binary("&&", position.compare(">=", -1.0), position.compare("<=", _real(self.length)))
        clamped = c.Select(position.compare(">", last), last, c.Select(position.compare(">", 0.0), position, _ZERO))
        pixel, neighbour = c.Variable("pixel"), c.Variable("neighbour")
        visit: c.Block = (
            # From the last sample to the first in a region turned round: pixels ascend.
            c.Let(k, c.Select(step.compare("<", 0.0), count - 1 - sample, sample)),
            c.Let(position, begin + _real(bin_) * step + within),
            c.Let(inside, clamped),
            c.Let(low, _call(np.floor, inside)),
            c.Let(share, inside - low),
            c.Let(weight, c.Select(is_inside, c.Literal(1.0, _REAL), _ZERO)),
            c.Let(pixel, c.Cast(low, c.INDEX)),
            c.Let(neighbour, c.index_min(pixel + 1, self.length - 1)),
            *self._enter(region * self.room, first, end, pixel, weight * (1.0 - share)),
            *self._enter(region * self.room, first, end, neighbour, weight * share),
        )
        at = region * self.room + k
        divides = (c.For(k, first, end, (c.Store(self.totals, at, self.totals[at] / _real(count)),)),)
        bins: c.Block = (
            c.Let(first, end),
            c.For(sample, c.Size(0), count, visit),
            *(() if pooling.is_max else divides),
            c.Store(self.ends, region * self.bins + bin_, end),
        )
        head: c.Block = (*declared, c.Let(count, samples), c.Let(step, span / float(self.bins)))
        return (*head, c.Declare(end, c.Size(0)), *loops_around(bins, [bin_], [self.bins]))

    def _enter(
        self, row: c.Expression, first: c.Variable, end: c.Variable, pixel: c.Expression, weight: c.Expression
    ) -> c.Block:
        """Return the statements adding a weight to the entry of a pixel: one of the last two of a bin, or a new one."""
        entry, value = c.Variable("entry"), c.Variable("value", _REAL)

        def found(back: int, otherwise: c.Block) -> c.Block:
            same = c.If(self.pixels[row + end - back].compare("==", pixel), (c.Assign(entry, end - back),), otherwise)
            return (c.If((end - back).compare(">=", first), (same,)),)

        at = row + entry
        new: c.Block = (c.Store(self.pixels, at, pixel), c.Store(self.totals, at, value), c.Assign(end, end + 1))
        old: c.Block = (c.Store(self.totals, at, self.totals[at] + value),)
        if self.least is not None:
            new = (c.Store(self.least, at, value), *new)
            old = (
                c.Store(self.least, at, _smaller(self.least[at], value)),
                c.Store(self.totals, at, _larger(self.totals[at], value)),
            )
        enters: c.Block = (
            c.Declare(entry, end),
            *found(1, found(2, ())),
            c.If(entry.compare("==", end), new, old),
        )
        # A pixel without weight adds nothing to a mean, whatever its value; among maxima it counts as 0.
        return (
            c.Let(value, weight),
            *(enters if self.least is not None else (c.If(value.compare("!=", 0.0), enters),)),
        )


def _smaller(a: c.Expression, b: c.Expression) -> c.Expression:
    """Return the smaller of two values; ``b`` beside NaN."""
    return c.Select(a.compare("<", b), a, b)


def _larger(a: c.Expression, b: c.Expression) -> c.Expression:
    return c.Select(a.compare(">", b), a, b)
