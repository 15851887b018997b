"""What is known of values that lie nowhere themselves: what they can be computed from."""

from __future__ import annotations

from typing import NamedTuple

from byoc_dnnl.plan import Place

__all__ = ["Flattened", "Quantised"]


class Quantised(NamedTuple):
    """What a dequantised value stands for: ``(integers - zero_point) * scale``.

    Attributes:
        integers: the value.
        place: where its elements lie, in the order of the dequantised value's axes.
        scale: the value of the scale, or of one for each index of ``axis``.
        zero_point: likewise.
        axis: along which the parameters are; ``None`` where they are scalars.
    """

    integers: int
    place: Place
    scale: int
    zero_point: int
    axis: int | None


class Flattened(NamedTuple):
    """The rows of a matrix whose elements lie in another order than its columns.

    Attributes:
        place: where they lie, as a matrix.
        sizes: what its columns are, as axes.
        order: the order of these in memory.
    """

    place: Place
    sizes: tuple[int, ...]
    order: tuple[int, ...]
