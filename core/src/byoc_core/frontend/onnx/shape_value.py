"""Integer tensors that are known while importing, with symbolic sizes inside: what shapes are computed with.

ONNX computes shapes with tensors: ``Reshape(x, Concat(Gather(Shape(x), 0), [-1]))``. The importer carries such tensors
of rank 0 and 1 as :class:`ShapeValue`: a list of dimensions. They become IR only if an op needs them as data, which
is possible where all elements are integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_name, to_numpy

__all__ = ["MAX_ELEMENTS", "SHAPE_DTYPES", "ShapeValue"]

SHAPE_DTYPES = frozenset({"int32", "int64", "bool"})
"""The dtypes that shapes are computed in."""

MAX_ELEMENTS = 64
"""Integer constants of more elements are data, not shapes."""


@dataclass(frozen=True)
class ShapeValue:
    """An integer (or bool) tensor of rank 0 or 1 whose elements are known dimensions.

    Attributes:
        elements: the elements; one for a scalar.
        dtype: one of ``SHAPE_DTYPES``.
        is_scalar: whether the rank is 0.
    """

    elements: tuple[Dim, ...]
    dtype: str = "int64"
    is_scalar: bool = False

    @classmethod
    def from_array(cls, array: npt.NDArray[np.generic]) -> ShapeValue | None:
        """Gives a small array of rank 0 or 1 (int32, int64 or bool) as a shape value, else ``None``."""
        if array.ndim > 1 or array.size > MAX_ELEMENTS or array.dtype.name not in SHAPE_DTYPES:
            return None
        return cls(tuple(int(item) for item in array.reshape(-1)), dtype_name(array.dtype), array.ndim == 0)

    @property
    def is_static(self) -> bool:
        """Whether all elements are integers."""
        return all(isinstance(element, int) for element in self.elements)

    @property
    def ints(self) -> tuple[int, ...] | None:
        """The elements as integers, or ``None`` where one is symbolic."""
        ints = tuple(element for element in self.elements if isinstance(element, int))
        return ints if len(ints) == len(self.elements) else None

    def to_array(self) -> npt.NDArray[np.generic] | None:
        """Gives the tensor as an array, or ``None`` where an element is symbolic."""
        ints = self.ints
        if ints is None:
            return None
        return np.array(ints[0] if self.is_scalar else ints, to_numpy(self.dtype))

    def __str__(self) -> str:
        text = ", ".join(map(str, self.elements))
        return text if self.is_scalar else f"[{text}]"
