"""Pooling of regions of images by bilinear samples: weights of pixels for each bin, then sums or maxima over pixels.

The samples of a bin form a grid, so that the weight of a pixel is a weight of its row times a weight of its column.
Tables hold these weights for each region: many samples of a row of pixels become a single entry. A mean adds up rows
of pixels first, and then the columns of the sum: each pixel of a bin is read once, however many samples there are. A
maximum takes the smallest and the largest weight of each pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope, c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import int_of
from byoc_ccompiler.family import Access, KernelFamily, any_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.indexing import range_check
from byoc_ccompiler.kernels.region_weights import RegionAxis, RegionPooling, RegionScratch
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_MOST_SAMPLES = 1 << 14
"""The most samples of a bin along an axis, as in the reference kernel."""


@dataclass(frozen=True, slots=True)
class _Region:
    """The memory of a region: the tables of both axes, the image, and the result.

    Attributes:
        number: the number of the region.
        rows: the rows of pixels.
        columns: the columns of pixels.
        channels: the number of channels.
        pixels: the image, with ``steps`` along channels, rows and columns.
        steps: the strides of the image.
        to: the result, with ``out_steps`` along channels, rows and columns.
        out_steps: the strides of the result.
    """

    number: c.Variable
    rows: RegionAxis
    columns: RegionAxis
    channels: Dim
    pixels: c.Buffer
    steps: tuple[Dim, ...]
    to: c.Buffer
    out_steps: tuple[Dim, ...]

    def each_entry(self, axis: RegionAxis, bin_: c.Variable, entry: c.Variable, body: c.Block) -> c.Block:
        """Return the loop over the entries of a bin; ``entry`` is the number of an entry among those of all regions."""
        k, ends, at = c.Variable(f"k_{axis.name}"), axis.ends, self.number * axis.bins + bin_
        begin = c.Select(bin_.compare(">", 0), ends[at - 1], c.Size(0))
        return (c.For(k, begin, ends[at], (c.Let(entry, self.number * axis.room + k), *body)),)

    def means(self, line: c.Buffer) -> c.Block:
        """Return the loops adding up weighted rows of pixels, then weighted columns of the sums.

        Args:
            line: a row of sums for each region; used between the first and the last pixel of all columns.
        """
        rows, columns, type_ = self.rows, self.columns, c.CType(line.dtype)
        channel, row, column, k = map(c.Variable, ("channel", "row", "column", "k"))
        left, right, row_entry, column_entry = map(c.Variable, ("left", "right", "row_entry", "column_entry"))
        weight, total = c.Variable("weight", type_), c.Variable("total", type_)
        sums, source = c.Buffer("sums", line.dtype, c.MemoryAccess.WRITE), c.Buffer("pixel_row", line.dtype)
        first_pixel = offset_along([channel, rows.pixels[row_entry], left], self.steps)
        added = c.Store(sums, k, sums[k] + weight * source[k * self.steps[2]])
        adds: c.Block = (
            c.Let(weight, c.Cast(rows.totals[row_entry], type_)),
            c.Alias(source, self.pixels, first_pixel),
            c.For(k, c.Size(0), right - left, (added,)),
        )
        share = c.Cast(columns.totals[column_entry], type_) * sums[columns.pixels[column_entry] - left]
        bins: c.Block = (
            c.Declare(total, c.Literal(0, type_)),
            *self.each_entry(columns, column, column_entry, (c.Assign(total, total + share),)),
            c.Store(self.to, offset_along([channel, row, column], self.out_steps), total),
        )
        of_row: c.Block = (
            c.Clear(sums, c.Size(0), right - left),
            *self.each_entry(rows, row, row_entry, adds),
            *loops_around(bins, [column], [columns.bins]),
        )
        return (
            *self._extent(left, right),
            c.Alias(sums, line, self.number * columns.length),
            *loops_around(of_row, [channel, row], [self.channels, rows.bins]),
        )

    def _extent(self, left: c.Variable, right: c.Variable) -> c.Block:
        """Return the statements setting the first pixel of all columns and the end behind the last, or 0 and 0."""
        columns, k = self.columns, c.Variable("k")
        pixel = columns.pixels[self.number * columns.room + k]
        end = columns.ends[self.number * columns.bins + (columns.bins - 1)]
        widen = (c.Assign(left, c.index_min(left, pixel)), c.Assign(right, c.index_max(right, pixel + 1)))
        return (
            c.Declare(left, c.Size(columns.length)),
            c.Declare(right, c.Size(0)),
            c.For(k, c.Size(0), end, widen),
            c.Assign(left, c.index_min(left, right)),
        )

    def maxima(self) -> c.Block:
        """Return the loops comparing pixels times weights, with a loop over channels for each pixel of a bin.

        The weights of all samples lie between the smallest and the largest weight of a pixel, and so do the products.
        """
        rows, columns, type_ = self.rows, self.columns, c.CType(self.to.dtype)
        assert rows.least is not None
        assert columns.least is not None
        channel, row, column = map(c.Variable, ("channel", "row", "column"))
        row_entry, column_entry, at = map(c.Variable, ("row_entry", "column_entry", "at"))
        low, high, pixel = (c.Variable(name, type_) for name in ("low", "high", "pixel"))
        maximum = c.Callee(f"byoc_maximum_{c_suffix(type_.dtype)}", np.maximum, flops=1)
        of_bin = offset_along([channel, row, column], self.out_steps)
        cell = c.Variable("cell")

        def larger(a: c.Expression, b: c.Expression) -> c.Expression:
            return c.Call(maximum, (a, b), type_)

        def weighted(weight: c.Variable) -> c.Expression:
            return c.Select(weight.compare("==", 0.0), c.Literal(0, type_), pixel * weight)

        compare: c.Block = (
            c.Let(pixel, self.pixels[channel * self.steps[0] + at]),
            c.Let(cell, of_bin),
            c.Store(self.to, cell, larger(self.to[cell], larger(weighted(low), weighted(high)))),
        )
        position = [rows.pixels[row_entry], columns.pixels[column_entry]]
        of_pixel: c.Block = (
            c.Let(low, c.Cast(rows.least[row_entry] * columns.least[column_entry], type_)),
            c.Let(high, c.Cast(rows.totals[row_entry] * columns.totals[column_entry], type_)),
            c.Let(at, offset_along(position, self.steps[1:])),
            *loops_around(compare, [channel], [self.channels]),
        )
        first = c.Variable("channel")
        start = c.Store(self.to, offset_along([first, row, column], self.out_steps), c.Literal(-np.inf, type_))
        of_columns = self.each_entry(columns, column, column_entry, of_pixel)
        bins: c.Block = (
            *loops_around((start,), [first], [self.channels]),
            *self.each_entry(rows, row, row_entry, of_columns),
        )
        return loops_around(bins, [row, column], [rows.bins, columns.bins])


def _write(kernel: Kernel) -> None:
    """Write the kernel: checks of the regions, then regions shared by threads, each with its tables and channels."""
    (step,) = kernel.group.steps
    x, rois, batches = step.operands
    pooling, (images, channels, *lengths) = RegionPooling.of_step(step), shape_of(x)
    regions, number = shape_of(step.result)[0], c.Variable("region")
    image, corners, numbers = kernel.source(x), kernel.source(rois, "rois"), kernel.source(batches, "batches")
    out, scratch = kernel.target(step.result), RegionScratch(regions)
    rows, columns = (
        RegionAxis.allocate(scratch, name, length, bins, pooling.samples, corner, is_max=pooling.is_max)
        for name, length, bins, corner in zip("hw", lengths, pooling.size, (1, 0), strict=True)
    )
    (image_step, *steps), (region_step, *out_steps) = kernel.strides(x), kernel.strides(step.result)
    pixels, to = c.Buffer("from", image.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    region = _Region(number, rows, columns, channels, pixels, tuple(steps), to, tuple(out_steps))
    pools = region.maxima() if pooling.is_max else region.means(scratch.part("line", out.dtype, columns.length))
    body: c.Block = (
        *rows.fill(pooling, corners, number),
        *columns.fill(pooling, corners, number),
        c.Alias(pixels, image, c.Cast(numbers[number], c.INDEX) * image_step),
        c.Alias(to, out, number * region_step),
        *pools,
    )
    problem, last = "a region is in a missing image", c.Size(images - 1)
    missing = range_check(kernel, step.op, problem, numbers, regions, c.Size(0), last)
    large = () if pooling.samples else _size_checks(kernel, step, (rows, columns), corners)
    empty = _pixel_checks(kernel, step, lengths, regions)
    kernel.finish_block(
        (*empty, *missing, *large, *scratch.declare(kernel), *loops_around(body, [number], [regions], part=0))
    )


def _pixel_checks(kernel: Kernel, step: Step, lengths: Sequence[Dim], regions: Dim) -> c.Block:
    """Return the statements failing on a region in an image without pixels; without regions such images are lawful."""
    where = f"function `{kernel.scope.symbol}`, op `{step.op}`"
    fail = c.Fail("ExecutionError", f"{where}: has a region in an image without pixels", ())
    unsure = [length for length in lengths if not (isinstance(length, int) and length > 0)]
    tests = tuple(c.If(c.Size(length).compare("==", 0), (fail,)) for length in unsure)
    return (c.If(c.Size(regions).compare(">", 0), tests),) if tests else ()


def _size_checks(kernel: Kernel, step: Step, axes: Sequence[RegionAxis], rois: c.Buffer) -> c.Block:
    """Return the statements failing on a region with too many samples of a bin."""
    pooling, region, body = RegionPooling.of_step(step), c.Variable("region"), tuple[c.Statement, ...]()
    where = f"function `{kernel.scope.symbol}`, op `{step.op}`"
    most = c.Size(_MOST_SAMPLES)
    for axis in axes:
        declared, _, span = axis.span(pooling, rois, region)
        fail = c.Fail(
            "ExecutionError",
            f"{where}: region {{}} is far larger than an image, with over {{}} samples of a bin",
            (region, most),
        )
        body += (*declared, c.If(axis.sample_count(span).compare(">", float(_MOST_SAMPLES)), (fail,)))
    return loops_around(body, [region], [shape_of(step.result)[0]])


def _reject(binding: Binding) -> Rejection | None:
    samples = int_of(binding, "samples")
    if samples > _MOST_SAMPLES:
        return Rejection(
            "attribute", f"nn.roi_align is compiled for at most {_MOST_SAMPLES} samples, not for {samples}"
        )
    return reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    _, rois, batches = map(shape_of, step.operands)
    require_equal_sizes(scope, step, 1, rois, (rois[0], 4))
    require_equal_sizes(scope, step, 2, batches, rois[:1])


def _reads(step: Step, index: int) -> Access:
    return Access.ANY if index == 0 else Access.COMPACT


FAMILY = KernelFamily(frozenset({"nn.roi_align"}), _reject, _write, require=_require, reads=_reads, writes=any_access)
"""Pooling of aligned regions."""
