"""Exact convolution of bytes with a filter of 3 by 3 by Winograd's minimal filtering, channels last.

The matrices of :func:`~byoc_ccompiler.kernels.winograd_plan.exact_filter` are integers. Transformed pixels and factors
fit in 16 bits, and are multiplied in pairs, like the extended bytes of direct convolution. An output comes out ``s``
times as large, with ``s`` equal to 4 (``F(2, 3)``) or 576 (``F(4, 3)``). Sums may pass 32 bits: all are computed modulo
``2^32``, and still determine the output. With ``s = odd * 2^shift``, a sum times the inverse of ``odd`` modulo ``2^32``
is the output times ``2^shift``, and a shift to the right gives the output if smaller than ``2^(31 - shift)``. The
filter decides whether all outputs are.

Magnitudes: a row of ``B^T`` maps bytes to at most 2 (``F(2, 3)``) or 10 times their range, over two axes to
``10 * 10 * 255 = 25500``; a row of the integer ``G`` maps weights to at most 3 or 7 times their range, over two axes
to ``7 * 7 * 128 = 6272``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from byoc_core.authoring import c
from byoc_core.errors import InternalError
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.byte_words import PAIRS_MODULO, starting_sums
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.named_schedules import legal
from byoc_ccompiler.kernels.winograd import WinogradLoops, mapped
from byoc_ccompiler.kernels.winograd_plan import (
    WinogradPlan,
    WinogradSchedule,
    exact_filter,
    gains,
    has_form,
    make_plan,
    near_schedules,
)
from byoc_ccompiler.kernels.words import word_tile
from byoc_ccompiler.steps import dtype_of

__all__ = ["choose_schedule", "input_function", "offered_schedules", "output_function", "permitted_outputs", "write"]

_PAIR = 2
_FIRST = c.Size(0)

_STORE = """\
/* Store 16-bit integers in words, from a word on. */
static inline void {name}(HALVES value, uint32_t *restrict to, int64_t offset) {
  typedef int16_t unaligned __attribute__((vector_size(NBYTES), aligned(2), may_alias));
  *(unaligned *)(to + offset) = value;
}
"""


@dataclass(frozen=True, slots=True)
class _Division:
    """The way from a sum to an output: a product modulo ``2^32``, then a shift to the right."""

    inverse: int
    shift: int

    @classmethod
    def by(cls, scale: int) -> _Division:
        """Return the division by a scale."""
        shift = (scale & -scale).bit_length() - 1
        return cls(pow(scale >> shift, -1, 1 << 32), shift)

    @property
    def limit(self) -> int:
        """The magnitude not reached by any output."""
        return 1 << (31 - self.shift)


def permitted_outputs(weights: NDArray, dtype: str) -> tuple[int, ...]:
    """Return the numbers of outputs of a tile along an axis for which all outputs are exact, the largest first.

    Args:
        weights: int8, (output channels, input channels, 3, 3).
        dtype: the dtype of the pixels, int8 or uint8.
    """
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = weights.reshape(len(weights), -1).astype(np.int64)
    above, below = np.maximum(wide, 0).sum(axis=1), np.minimum(wide, 0).sum(axis=1)
    outputs = np.abs([most * above + least * below, least * above + most * below])
    largest = int(outputs.max(initial=0))
    return tuple(number for number in (4, 2) if largest < _Division.by(exact_filter(number).scale ** 2).limit)


def choose_schedule(kernel: Kernel, geometry: ConvolutionGeometry) -> WinogradSchedule | None:
    """Return the schedule of a convolution of the right form, if expected to gain under the option ``winograd``."""
    words = _words_geometry(geometry)
    plans = [make_plan(words, kernel.unit, number) for number in _permitted(kernel, geometry)]
    best = min(plans, key=WinogradPlan.cycles, default=None)
    return None if best is None or not gains(best) else best.schedule


def offered_schedules(kernel: Kernel, geometry: ConvolutionGeometry) -> Iterator[WinogradSchedule]:
    """Yield legal exact schedules permitted by the option ``winograd``, the most promising first."""
    words = _words_geometry(geometry)
    best = [make_plan(words, kernel.unit, number).schedule for number in _permitted(kernel, geometry)]
    near = [schedule for tiles in best for schedule in near_schedules(kernel.unit, tiles)]
    yield from best
    yield from legal(near, lambda schedule: WinogradPlan(words, kernel.unit, schedule))


def _permitted(kernel: Kernel, geometry: ConvolutionGeometry) -> tuple[int, ...]:
    """Return the numbers of outputs of a tile along an axis permitted by the form, the option and the filter."""
    image, _, *border = kernel.group.steps[0].operands
    if border or not kernel.unit.has_vectors or not kernel.unit.has_byte_pairs or kernel.strides(image)[-1] != 1:
        return ()
    option = {"off": (), "f2": (2,), "auto": (4, 2)}[kernel.options.winograd]
    weights = geometry.constant_filter(kernel)
    if geometry.channels % _PAIR or not has_form(_words_geometry(geometry), kernel.unit) or weights is None:
        return ()
    return tuple(number for number in permitted_outputs(weights, dtype_of(image)) if number in option)


def _words_geometry(geometry: ConvolutionGeometry) -> ConvolutionGeometry:
    """Return the sizes with pairs of channels in words."""
    return replace(geometry, dtype="uint32", channels=geometry.channels // _PAIR)


def write(kernel: Kernel, geometry: ConvolutionGeometry, schedule: WinogradSchedule, zero: int) -> None:
    """Write the kernel of a convolution with a constant filter and an elementwise epilogue.

    Args:
        kernel: the kernel.
        geometry: the sizes, with single channels.
        schedule: the schedule, with a number of outputs of :func:`permitted_outputs`.
        zero: the zero point, and the value of pixels beyond the image.
    """
    plan = WinogradPlan(_words_geometry(geometry), kernel.unit, schedule)
    kernel.finish_block(_ByteLoops(kernel, plan, geometry, zero).block())


class _ByteLoops(WinogradLoops):
    """The loops of a kernel with pairs of channels in words."""

    def __init__(self, kernel: Kernel, plan: WinogradPlan, geometry: ConvolutionGeometry, zero: int) -> None:
        weights = geometry.constant_filter(kernel)
        if weights is None:
            raise InternalError("schedule", "needs a constant filter")
        self._filter = weights
        super().__init__(kernel, plan)
        self.outside = zero
        starts = starting_sums(weights.reshape(len(weights), -1), zero, plan.width)
        constants = (np.zeros(plan.width, np.uint32), starts)
        self._nothing, self._starts = (
            kernel.source(kernel.scope.constants.derive(array), name)
            for array, name in zip(constants, ("nothing", "starts"), strict=True)
        )

    def packed_filter(self) -> c.Buffer:
        """Return the transformed filter: panels x points x pairs of input channels x output channels of a panel."""
        plan, taps = self.plan, self.plan.algorithm.taps
        factors = np.einsum("ay,oiyx,bx->abio", taps, self._filter.astype(np.int64), taps)
        if np.abs(factors).max(initial=0) > np.iinfo(np.int16).max:
            raise InternalError("filter", "has a factor of more than 16 bits")
        sizes = (plan.num_points, self.geometry.channels * _PAIR)
        padded = np.zeros((*sizes, plan.num_panels * plan.width), np.int16)
        padded[..., : self.geometry.out_channels] = factors.reshape(*sizes, -1)
        pairs = padded.reshape(plan.num_points, self.geometry.channels, _PAIR, plan.num_panels, plan.width)
        words = np.ascontiguousarray(pairs.transpose(3, 0, 1, 4, 2)).view(np.uint32)[..., 0]
        return self.kernel.source(self.kernel.scope.constants.derive(words), "weights")

    def input_function(self) -> c.Function:
        """Return the function transforming a tile of bytes to words."""
        return input_function(self.plan, self.image.buffer.dtype)

    def product(self, rows: int, indices: tuple[c.Variable, c.Variable, c.Expression], sums: c.Address) -> c.Evaluate:
        """Return the product of a block's tiles, at a panel and a point."""
        plan, (panel, k, block), words = self.plan, indices, self.geometry.channels
        tile = c.Address(self.tiles, block * plan.block_step + k * (plan.rows * plan.row_step))
        factors = c.Address(self.weights, (panel * plan.num_points + k) * (words * plan.width))
        start = (c.Address(self._nothing, _FIRST), c.Size(0))
        function = word_tile(plan.unit, PAIRS_MODULO, rows, plan.vectors, plan.width)
        numbers = (c.Size(words), c.Size(plan.row_step))
        return self.kernel.call(function, tile, factors, *numbers, *start, sums, c.Size(plan.width))

    def output_call(self, products: c.Address, pixels: c.Address, point_step: int, first: c.Expression) -> c.Evaluate:
        """Return the call transforming the products of a tile back."""
        function = output_function(self.plan, point_step)
        return self.kernel.call(function, products, c.Address(self._starts, first), pixels)


@cache
def _store(lanes: int) -> c.Callee:
    """Return the function storing 16-bit integers in words."""

    def store(value: NDArray, to: NDArray, offset: int) -> None:
        to.view(np.int16)[_PAIR * offset :][: len(value)] = value

    text = _STORE.replace("HALVES", f"vec_i16x{lanes}").replace("NBYTES", str(2 * lanes))
    return c.Callee(f"vec_store_halves_{lanes}", store, writes=(1,), definition=text)


def input_function(plan: WinogradPlan, dtype: str) -> c.Function:
    """Return a function transforming a tile: ``(at, to)``, addresses of the pixels and of the first point."""
    channels, num, lanes = plan.geometry.channels * _PAIR, plan.algorithm.num_inputs, plan.unit.lanes("int16")
    at, to = c.PointerArray("at", dtype), c.Buffer("to", "uint32", c.MemoryAccess.WRITE)
    c0, channel, j = c.variables("c0 c j")
    pixels = [c.Buffer("pixel", dtype) for _ in range(num)]
    pointed = tuple(c.Alias(pixel, at, j + i * num) for i, pixel in enumerate(pixels))
    loads = [c.Cast(c.Load(pixel, channel, lanes), c.CType("int16", lanes)) for pixel in pixels]

    def store(number: c.Expression, value: c.Expression) -> c.Statement:
        offset = number * (plan.rows * plan.row_step) + channel // _PAIR
        return c.Evaluate(c.Call(_store(lanes), (value, c.Address(to, _FIRST), offset)))

    # The last vector of channels may begin inside the one before.
    body = (
        c.Let(channel, c.index_min(c0, channels - lanes)),
        *mapped(plan.algorithm.inputs, j, loads, store, pointed),
    )
    loop = c.For(c0, _FIRST, c.Size(channels), body, step=lanes)
    name, comment = f"winograd_bytes_{plan.algorithm.num_outputs}", "// Transform the pixels of a tile."
    return c.Function(name, (at, to), (loop,), None, (comment,))


def output_function(plan: WinogradPlan, point_step: int) -> c.Function:
    """Return a function transforming a tile back: ``(products, starts, pixels)``; points lie ``point_step`` apart."""
    num, lanes, v, j = plan.algorithm.num_inputs, plan.lanes, c.Variable("v"), c.Variable("j")
    unsigned, signed = c.CType("uint32"), c.CType("int32")
    products, starts = c.Buffer("products", "uint32"), c.Buffer("starts", "int32")
    pixels, start = c.Buffer("pixels", "int32", c.MemoryAccess.WRITE), c.Variable("start", signed.with_lanes(lanes))
    loads = [c.Load(products, (j + i * num) * point_step + v, lanes) for i in range(num)]
    division = _Division.by(plan.algorithm.scale**2)

    def store(number: c.Expression, value: c.Expression) -> c.Statement:
        shifted = value * c.Broadcast(c.Literal(division.inverse, unsigned), lanes)
        by = c.Broadcast(c.Literal(division.shift, signed), lanes)
        output = c.Binary(">>", c.Cast(shifted, start.type), by)
        return c.Store(pixels, number * plan.width + v, output + start)

    body = (c.Let(start, c.Load(starts, v, lanes)), *mapped(plan.algorithm.outputs, j, loads, store))
    loop = c.For(v, _FIRST, c.Size(plan.width), body, step=lanes)
    name, comment = f"winograd_words_{plan.algorithm.num_outputs}", "// Transform the products of a tile back."
    return c.Function(name, (products, starts, pixels), (loop,), None, (comment,))
