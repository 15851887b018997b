"""The peak of a core's multipliers: the operations per second of a loop of multiply-adds without stalls.

In float32 this is the compiler's widest multiply-add. For bfloat16 and 8-bit factors, this is an x86 instruction
summing the products in 32 bits: of the matrix tiles (AMX) if the processor has tiles and Linux grants the tile
registers, else of AVX-512 (``vdpbf16ps``, ``vpdpbusd``).
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from byoc_core.native.toolchain import BuildOptions, find_toolchain

__all__ = ["UnknownPeakError", "peak_contestant"]

NUM_STEPS = 200_000
NUM_SUMS = 16
"""Sums updated in turn by a loop of vectors: at least the latency of a multiply-add times multiply-adds per cycle."""
NUM_SUMS_OF_FEW = 12
"""The same with 16 registers: AVX2 and SSE."""
NUM_TILES = 6
"""The same for a loop of tiles: of eight tiles, two hold factors."""
LANES = 16
"""Sums in a register of 64 bytes, and rows of a tile."""


class UnknownPeakError(Exception):
    """This processor has no instruction for products of these factors, or none known here."""


@dataclass(frozen=True)
class _Instructions:
    """The instructions for products of factors of a dtype.

    Attributes:
        num_factors: the number of factors in 32 bits.
        tile: the instruction for tiles.
        has_tile: the preprocessor's condition for this instruction.
        vector: the instruction for registers of 64 bytes.
        has_vector: the preprocessor's condition for this instruction.
    """

    num_factors: int
    tile: str
    has_tile: str
    vector: str
    has_vector: str


_INSTRUCTIONS: Mapping[str, _Instructions] = {
    "bfloat16": _Instructions(2, "tdpbf16ps", "defined(__AMX_BF16__)", "vdpbf16ps", "defined(__AVX512BF16__)"),
    "int8": _Instructions(4, "tdpbusd", "defined(__AMX_INT8__)", "vpdpbusd", "defined(__AVX512VNNI__)"),
}

_FLOAT32_TEXT = f"""\
#include "byoc_ffi.h"
#include "byoc_scalar.h"
#if defined(__AVX512F__)
enum {{ NBYTES = 64, SUMS = {NUM_SUMS} }};
#elif defined(__x86_64__) || defined(__i386__)
#ifdef __AVX__
enum {{ NBYTES = 32, SUMS = {NUM_SUMS_OF_FEW} }};
#else
enum {{ NBYTES = 16, SUMS = {NUM_SUMS_OF_FEW} }};
#endif
#else
enum {{ NBYTES = 16, SUMS = {NUM_SUMS} }};
#endif
typedef float vec __attribute__((vector_size(NBYTES)));
static volatile float start = 0.5f, result;
BYOC_EXPORT BYOC_CONTRACTED double multiply_add(void) {{
  BYOC_CONTRACT
  vec sums[SUMS], factor = (vec){{0}} + start;
  BYOC_UNROLL
  for (int i = 0; i < SUMS; ++i) sums[i] = (vec){{0}} + start * i;
  for (int k = 0; k < {NUM_STEPS}; ++k) {{
    BYOC_UNROLL
    for (int i = 0; i < SUMS; ++i) sums[i] = sums[i] * factor + factor;
  }}
  for (int i = 1; i < SUMS; ++i) sums[0] += sums[i];
  result = sums[0][0];
  return 2.0 * {NUM_STEPS} * SUMS * (NBYTES / sizeof(float));
}}
"""


def peak_contestant(dtype: str) -> Callable[[], float]:
    """Return a contestant for the operations (multiplications and additions) per second of the loop on one thread.

    Args:
        dtype: the dtype of the factors: ``"float32"``, ``"bfloat16"`` or ``"int8"``.

    Raises:
        ToolchainError: no C can be compiled here.
        UnknownPeakError: no instruction for products of these factors is known for this processor.
    """
    text = _FLOAT32_TEXT if dtype == "float32" else _text(_INSTRUCTIONS[dtype])
    library = find_toolchain().compile(text, BuildOptions())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peak.so"
        path.write_bytes(library.data)
        function = ctypes.CDLL(str(path)).multiply_add
    function.restype = ctypes.c_double

    def contestant() -> float:
        begin = time.process_time()
        num_operations: float = function()
        return num_operations / (time.process_time() - begin)

    if not function():
        raise UnknownPeakError(f"no instruction for products of {dtype} is known for this processor")
    return contestant


def _text(instructions: _Instructions) -> str:
    """Return C with a function returning the number of operations, 0 without an instruction.

    All bytes of factors are 63: the bfloat16 0.747, or the 8-bit number.
    """
    num_operations = 2 * NUM_STEPS * LANES * instructions.num_factors
    tiles = [f"{instructions.tile} %%tmm7, %%tmm6, %%tmm{tile}" for tile in range(NUM_TILES)]
    vectors = [f"{instructions.vector} %%zmm16, %%zmm16, %%zmm{register}" for register in range(NUM_SUMS)]
    zeros = [f"vpxorq %%zmm{register}, %%zmm{register}, %%zmm{register}" for register in range(NUM_SUMS)]
    clobbered = ", ".join(f'"xmm{register}"' for register in range(NUM_SUMS + 1))
    return f"""\
#include <string.h>
#include "byoc_ffi.h"
BYOC_EXPORT double multiply_add(void) {{
  uint8_t factors[{LANES} * 64];
  memset(factors, 63, sizeof factors);
  int64_t count = {NUM_STEPS};
#if {instructions.has_tile} && defined(__linux__) && defined(__LP64__)
  long status = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) */
  __asm__ volatile("syscall" : "+a"(status) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  if (status == 0) {{
    /* all eight tiles have 16 rows of 64 bytes */
    static const uint8_t shape[64] = {{
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile(
{_loop(["ldtilecfg %1", "tileloadd (%2,%3), %%tmm6", "tileloadd (%2,%3), %%tmm7"], tiles, "tilerelease")}
        : "+r"(count) : "m"(shape), "r"(factors), "r"((int64_t)64) : "cc", "memory");
    return {num_operations}.0 * {NUM_TILES} * {LANES} * {LANES};
  }}
#endif
#if {instructions.has_vector}
  __asm__ volatile(
{_loop(["vmovdqu64 (%1), %%zmm16", *zeros], vectors, "vzeroupper")}
      : "+r"(count) : "r"(factors) : "cc", "memory", {clobbered});
  return {num_operations}.0 * {NUM_SUMS};
#else
  (void)count;
  return 0.0;
#endif
}}
"""


def _loop(begin: list[str], body: list[str], end: str) -> str:
    """Return assembly repeating a body; operand 0 is the number of repetitions."""
    return "\n".join(f'        "{line}\\n\\t"' for line in (*begin, "1:", *body, "dec %0", "jnz 1b", end))
