"""Factors of products and convolutions: floats of some dtype, or the integers behind dequantised values.

Sums of products of bytes are exact in 32 bits, and are multiplied by both scales: the result is as close to exact
arithmetic as any computation in floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument
from byoc_dnnl.lowerings.quantisation import has_zero_point
from byoc_dnnl.post_ops import Scaling
from byoc_dnnl.precision import multiplies_bytes

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.unstored_values import Quantised

__all__ = ["Factors", "byte_factors", "factors_of"]

_MAX_TERMS = 1 << 15
"""Sums of more products of bytes, each at most 2**16, may overflow 32 bits."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Two factors.

    Attributes:
        left: the value and location of the left factor, to be converted to ``left_dtype``.
        right: likewise.
        scales: the scales of both factors, if integers.
        zero_point: the zero point of the left factor, if any.
    """

    left: tuple[int, Location]
    right: tuple[int, Location]
    left_dtype: str
    right_dtype: str
    scales: tuple[Quantised, Quantised] | None = None
    zero_point: int | None = None

    def scaling(self, mask: int) -> Scaling | None:
        """Return the attribute of the primitive; ``mask`` marks the axes of outputs in the right factor."""
        if self.scales is None:
            return None
        scales: dict[int, int] = {Argument.SRC: 0, Argument.WEIGHTS: 0 if self.scales[1].axis is None else mask}
        return Scaling(scales, () if self.zero_point is None else (Argument.SRC,))

    def arguments(self, planner: Planner) -> Mapping[int, Location]:
        """Return scales and zero points in the form read by the primitive."""
        arguments: dict[int, Location] = {}
        for argument, quantised in zip((Argument.SRC, Argument.WEIGHTS), self.scales or (), strict=False):
            arguments[Argument.SCALES | argument] = planner.row_major_location(quantised.scale)
        if self.zero_point is not None:
            arguments[Argument.ZERO_POINTS | Argument.SRC] = planner.row_major_location(self.zero_point, "int32")
        return arguments

    def result_dtype(self, call: Call, planner: Planner) -> str:
        """Return the best stored dtype of the result."""
        return call.result.dtype if self.left_dtype == call.operands[0].dtype else planner.result_dtype(call)


def factors_of(call: Call, planner: Planner, axis: int) -> Iterator[Factors]:
    """Yield the factors of a convolution, best first; ``axis`` is the axis of the outputs in the right factor."""
    found = byte_factors(call, planner, axis)
    if found is not None:
        yield found
    x, weight = call.inputs
    for dtype in planner.factor_dtypes(call):
        yield Factors((x, planner.stored_location(x)), (weight, planner.location(weight)), dtype, dtype)


def byte_factors(call: Call, planner: Planner, axis: int) -> Factors | None:
    """Return the factors of a product as bytes; ``None`` if oneDNN cannot multiply the factors as bytes."""
    source, weights = map(planner.quantised, call.inputs)
    if source is None or weights is None or not multiplies_bytes(planner.engine.isa):
        return None
    dtypes = source.location.desc.dtype, weights.location.desc.dtype
    if (
        source.axis is not None
        or dtypes not in (("uint8", "int8"), ("int8", "int8"))
        or weights.axis not in (None, axis)
    ):
        return None
    if has_zero_point(planner, weights.zero_point) or not planner.is_constant(weights.integers):
        return None
    terms = 1
    for index, size in enumerate(weights.location.desc.sizes):
        terms *= 1 if index == axis else size
    if terms > _MAX_TERMS:
        return None
    left, right = (source.integers, source.location), (weights.integers, weights.location)
    zero_point = source.zero_point if has_zero_point(planner, source.zero_point) else None
    return Factors(left, right, *dtypes, (source, weights), zero_point)
