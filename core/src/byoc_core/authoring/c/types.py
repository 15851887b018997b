"""Types of values in generated C: one element, or a vector of elements."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dtypes import dtype_info

__all__ = ["BOOL", "INDEX", "CType"]


@dataclass(frozen=True, slots=True)
class CType:
    """The type of a value: one element, or a vector of elements.

    Attributes:
        dtype: the dtype of an element, a key of :data:`byoc_core.authoring.csource.C_TYPES`.
        lanes: the number of elements; 1 for a scalar.
    """

    dtype: str
    lanes: int = 1

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers with C arithmetic: ``float32`` or ``float64``."""
        return self.dtype in ("float32", "float64")

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers; a bool is none."""
        return dtype_info(self.dtype).kind in ("int", "uint")

    @property
    def nbytes(self) -> int:
        """The bytes of all lanes."""
        return dtype_info(self.dtype).itemsize * self.lanes

    def with_lanes(self, lanes: int) -> CType:
        """Return the type of a vector of the same elements."""
        return CType(self.dtype, lanes)

    def __str__(self) -> str:
        return self.dtype if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


INDEX = CType("int64")
"""The type of sizes, loop indices and offsets in elements."""

BOOL = CType("bool")
"""The type of a comparison's result."""
