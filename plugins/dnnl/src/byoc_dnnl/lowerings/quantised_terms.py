"""Terms of quantised sums: dequantised tensors with a single scale and zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from byoc_dnnl.lowerings.quantisation import keeps_order, scalar_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from byoc_dnnl.planner import Planner
    from byoc_dnnl.unstored_values import Quantised

__all__ = ["Term", "are_small", "term_of"]

_BYTES = ("int8", "uint8")
_LARGEST_BYTE = 255
_MOST_STEPS = 2.0**12
"""The largest magnitude of the terms in steps of the result: rounding with cancellation is about a thousandth of a
step.
"""


class Term(NamedTuple):
    """A dequantised tensor: ``(integers - zero) * scale``."""

    quantised: Quantised
    scale: float
    zero: float


def term_of(planner: Planner, quantised: Quantised | None) -> Term | None:
    """Return a dequantised tensor as a term; ``None`` unless the integers are bytes with a single scale and zero."""
    if quantised is None or not keeps_order(planner, quantised) or quantised.location.desc.dtype not in _BYTES:
        return None
    scale, zero = scalar_of(planner, quantised.scale), scalar_of(planner, quantised.zero_point)
    return None if scale is None or zero is None else Term(quantised, scale, zero)


def are_small(terms: Iterable[tuple[float, float]], step: float) -> bool:
    """Return whether terms, by scale and zero point, are small enough beside a step for a sum rounded as float32."""
    return sum((_LARGEST_BYTE + abs(zero)) * scale for scale, zero in terms) <= _MOST_STEPS * step
