"""The vector registers that kernels are shaped for, and the C types of what they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from byoc_core.authoring.csource_types import c_suffix, c_type
from byoc_core.dtypes import dtype_info

__all__ = ["VectorUnit", "multiply_add_ps", "vector_preamble"]


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """What the machine's vector registers offer.

    Attributes:
        nbytes: bytes of a register.
        registers: how many there are.
    """

    nbytes: int
    registers: int

    @classmethod
    def of_features(cls, machine: str, features: Iterable[str]) -> VectorUnit:
        """Gives the unit of a machine with these instruction sets."""
        names = set(features)
        if "avx512f" in names:
            return cls(64, 32)
        if "avx" in names:
            return cls(32, 16)
        return cls(16, 16 if machine in ("x86_64", "AMD64", "i686") else 32)

    def lanes(self, dtype: str) -> int:
        """Gives how many elements a register holds."""
        return self.nbytes // dtype_info(dtype).itemsize

    def rows_for(self, vectors: int) -> int:
        """Gives how many rows of so many vectors fit into the registers, beside what feeds them."""
        return max(1, (self.registers - vectors - 2) // vectors)

    def outer_shape(self, num_rows: int | None, width: int | None, dtype: str) -> tuple[int, int]:
        """Gives (rows, vectors) of the tile that wastes least on a result of this size (``None``: not known)."""
        lanes = self.lanes(dtype)
        best, best_cost = (min(self.rows_for(3), num_rows or 8, 8), 3), math.inf
        if width is None:
            return best
        for vectors in (3, 2, 1, 4, 6) if num_rows is not None and num_rows <= 4 else (3, 2, 1):
            rows = min(self.rows_for(vectors), num_rows or 8, 14)
            columns = math.ceil(max(width, 1) / (vectors * lanes)) * vectors
            blocks = math.ceil((num_rows or 8) / rows)
            # Per step a tile loads its vectors and broadcasts its rows; products run two at a time, four deep.
            step = max(rows * vectors / 2, (rows + vectors) / 2, 4)
            cost = columns / vectors * blocks * step
            if cost < best_cost * 0.999:
                best, best_cost = (rows, vectors), cost
        return best


def multiply_add_ps(unit: VectorUnit, dtype: str) -> int:
    """Gives the estimated picoseconds of one product and sum in a tile: a register of them takes 0.4 nanoseconds."""
    return 400 // unit.lanes(dtype)


def vector_preamble(unit: VectorUnit, text: str) -> str:
    """Gives the vector types, and sums over their lanes, that a text uses."""
    parts = []
    for dtype in ("float32", "float64"):
        suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
        itemsize = dtype_info(dtype).itemsize
        if f"vec_{suffix}" not in text:
            continue
        parts.append(
            f"""
/* {lanes} x {dtype}; the second may lie at any address. */
typedef {ctype} vec_{suffix} __attribute__((vector_size({unit.nbytes})));
typedef {ctype} vec_{suffix}u __attribute__((vector_size({unit.nbytes}), aligned({itemsize}), may_alias));
"""
        )
        if f"vec_sum_{suffix}(" in text:
            parts.append(
                f"""
/* The sum of the lanes, which it overwrites. */
static inline {ctype} vec_sum_{suffix}({ctype} *lanes) {{
  for (int width = {lanes // 2}; width > 0; width /= 2) {{
    for (int lane = 0; lane < width; ++lane) {{
      lanes[lane] += lanes[lane + width];
    }}
  }}
  return lanes[0];
}}
"""
            )
    return "".join(parts)
