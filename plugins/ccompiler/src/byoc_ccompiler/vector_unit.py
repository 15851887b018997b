"""The vector registers targeted by kernels, and the instruction sets with these registers.

Kernels take their tile sizes from :class:`VectorUnit`. ``flags`` and ``predicate`` of a set serve the tests only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from byoc_core.dtypes import dtype_info

__all__ = ["NO_VECTORS", "VECTOR_SETS", "VectorSet", "VectorUnit"]

_SCALAR_ROWS, _SCALAR_COLUMNS = 4, 16
"""Rows and columns of a tile without vectors: the factors of the rows stay in registers, the columns are a loop."""


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """The size and number of the machine's vector registers.

    Attributes:
        nbytes: bytes of a register; 0 for kernels without vectors, with loops for the C compiler to vectorise.
        registers: number of registers.
        has_byte_pairs: whether bytes are multiplied fastest as pairs of 16-bit integers: on x86 without an instruction
            for four bytes.
        far_rate: bytes of weights arriving in a cycle from beyond the second-level cache, about.
    """

    nbytes: int
    registers: int
    has_byte_pairs: bool = False
    far_rate: int = 3

    @classmethod
    def of_features(cls, machine: str, features: Iterable[str]) -> VectorUnit:
        """Return the unit of a machine with these instruction sets."""
        names = {"", *features}
        found = (item.unit for item in VECTOR_SETS if machine in item.machines and item.feature in names)
        unit = next(found, cls(16, 32))
        has_fours = not names.isdisjoint(_FOUR_BYTES)
        return replace(unit, has_byte_pairs=machine in _X86 and not has_fours)

    def on_amd(self) -> VectorUnit:
        """Return the unit of a processor of AMD."""
        return replace(self, far_rate=_AMD_FAR_RATE) if self.nbytes == _AMD_NBYTES else self

    def lanes(self, dtype: str) -> int:
        """Return the number of elements in a register, 1 without vectors."""
        return self.nbytes // dtype_info(dtype).itemsize if self.has_vectors else 1

    @property
    def has_vectors(self) -> bool:
        """Whether kernels use vector types."""
        return self.nbytes > 0

    @property
    def panel_vectors(self) -> int:
        """Vectors in a row of a full panel; with :meth:`panel_rows`, enough to keep multipliers busy from registers."""
        if not self.has_vectors:
            return _SCALAR_COLUMNS
        return 4 if self.registers >= 32 else 2

    @property
    def factor_registers(self) -> int:
        """The registers of a factor in all lanes: with 32 registers, processors multiply by memory or by a lane."""
        return 0 if self.registers >= 32 else 1

    def panel_rows(self, vectors: int) -> int:
        """Return the number of rows of ``vectors`` summed at a time, beside a row of factors and a broadcast."""
        return min(8, self.rows_for(vectors))

    def rows_for(self, vectors: int) -> int:
        """Return the number of rows of ``vectors`` fitting into the registers, beside their operands."""
        if not self.has_vectors:
            return _SCALAR_ROWS
        return max(1, (self.registers - vectors - 2) // vectors)


@dataclass(frozen=True, slots=True)
class VectorSet:
    """Instructions on vectors of one width.

    Attributes:
        name: the common name.
        machines: the processor families with these instructions, named as by ``platform.machine()``.
        feature: the instruction set of a target with these instructions, named as by Linux; empty if present in every
            machine of the family. ``None`` if no feature implies the width; then no target selects the set.
        unit: the registers.
        flags: flags for gcc and clang, beside the family, to generate the instructions.
        predicate: a preprocessor condition, true if the compiler generates the instructions.
    """

    name: str
    machines: tuple[str, ...]
    feature: str | None
    unit: VectorUnit
    flags: tuple[str, ...]
    predicate: str


NO_VECTORS = VectorUnit(0, 16)
"""No vectors: C for any compiler."""

_X86 = ("x86_64", "AMD64", "i686")
_ARM = ("aarch64", "arm64", "ARM64")
_FOUR_BYTES = frozenset({"avx512_vnni", "avx_vnni"})
"""The instruction sets of x86 multiplying four bytes, with sums of 32 bits."""
_AMD_NBYTES, _AMD_FAR_RATE = 64, 8
"""The registers of the processors of AMD with a measured ``far_rate``, and this rate."""
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")

VECTOR_SETS = (
    VectorSet("avx512", _X86, "avx512f", VectorUnit(64, 32), _AVX512, "defined(__AVX512F__)"),
    VectorSet("avx2", _X86, "avx", VectorUnit(32, 16), ("-mavx2", "-mfma"), "defined(__AVX2__)"),
    VectorSet("sse2", _X86, "", VectorUnit(16, 16), (), "defined(__SSE2__)"),
    VectorSet("neon", _ARM, "", VectorUnit(16, 32), (), "defined(__ARM_NEON)"),
    # Code for one width of SVE computes nonsense on processors of another width, and no feature reveals the width.
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
"""The targets of kernels, the widest of a family first; a new width is one entry."""
