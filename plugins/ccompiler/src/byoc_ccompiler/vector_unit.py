"""The vector registers that kernels are shaped for, and the C types of what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from byoc_core.dtypes import dtype_info

__all__ = ["VECTOR_SETS", "VectorSet", "VectorUnit"]


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
        names = {"", *features}
        found = (item.unit for item in VECTOR_SETS if machine in item.machines and item.feature in names)
        return next(found, cls(16, 32))

    def lanes(self, dtype: str) -> int:
        """Gives how many elements a register holds."""
        return self.nbytes // dtype_info(dtype).itemsize

    @property
    def panel_vectors(self) -> int:
        """Vectors in a row of a full panel: with :meth:`panel_rows` they keep the multipliers busy out of registers."""
        return 4 if self.registers >= 32 else 2

    def panel_rows(self, vectors: int) -> int:
        """Gives how many rows of so many vectors are summed up at a time, beside a row of factors and a broadcast."""
        return min(8, self.rows_for(vectors))

    def rows_for(self, vectors: int) -> int:
        """Gives how many rows of so many vectors fit into the registers, beside what feeds them."""
        return max(1, (self.registers - vectors - 2) // vectors)


@dataclass(frozen=True, slots=True)
class VectorSet:
    """Instructions on vectors of one width.

    Attributes:
        name: the name that people use.
        machines: the processor families that have them, as ``platform.machine()`` names these.
        feature: the instruction set of a target that has them, as Linux names it; empty where every machine of the
            family has them. ``None`` where no feature tells the width, so that nobody gets it by the target.
        unit: the registers.
        flags: what gcc and clang are told, beside the family, to make such code.
        predicate: a condition of the preprocessor that holds where the compiler makes such code.
    """

    name: str
    machines: tuple[str, ...]
    feature: str | None
    unit: VectorUnit
    flags: tuple[str, ...]
    predicate: str


_X86 = ("x86_64", "AMD64", "i686")
_ARM = ("aarch64", "arm64", "ARM64")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")

VECTOR_SETS = (
    VectorSet("avx512", _X86, "avx512f", VectorUnit(64, 32), _AVX512, "defined(__AVX512F__)"),
    VectorSet("avx2", _X86, "avx", VectorUnit(32, 16), ("-mavx2", "-mfma"), "defined(__AVX2__)"),
    VectorSet("sse2", _X86, "", VectorUnit(16, 16), (), "defined(__SSE2__)"),
    VectorSet("neon", _ARM, "", VectorUnit(16, 32), (), "defined(__ARM_NEON)"),
    # Code for one width of SVE computes nonsense on processors of another, and no feature tells which a processor has.
    *(
        VectorSet(
            f"sve{bits}",
            _ARM,
            None,
            VectorUnit(bits // 8, 32),
            ("-mcpu=generic+sve", f"-msve-vector-bits={bits}"),
            f"__ARM_FEATURE_SVE_BITS == {bits}",
        )
        for bits in (256, 512)
    ),
)
"""What kernels are shaped for, the widest of a family first; a new width is one entry."""
