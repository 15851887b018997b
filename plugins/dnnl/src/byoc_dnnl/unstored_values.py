"""Facts about values without memory: the data from which a value can be computed."""

from __future__ import annotations

from typing import NamedTuple

from byoc_dnnl.plan import Location

__all__ = ["Flattened", "Quantised"]


class Quantised(NamedTuple):
    """The integers behind a dequantised value: ``(integers - zero_point) * scale``.

    Attributes:
        integers: the value of the integers.
        location: the memory of the integers, in the order of the dequantised value's axes.
        scale: the value of the scale: a scalar, or a scale for each index of ``axis``.
        zero_point: likewise.
        axis: the axis of the parameters; ``None`` for scalars.
    """

    integers: int
    location: Location
    scale: int
    zero_point: int
    axis: int | None


class Flattened(NamedTuple):
    """The rows of a matrix with elements in another order than the columns.

    Attributes:
        location: the memory, as a matrix.
        sizes: the columns as axes.
        order: the order of these axes in memory.
    """

    location: Location
    sizes: tuple[int, ...]
    order: tuple[int, ...]
