"""Products of bfloat16 numbers in the matrix tiles of x86 processors (AMX).

The tiles are used if the C is compiled for a processor with tiles and, at run time, Linux grants the tile registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernels.bfloat16 import STEP_PITCH, STEP_WORDS, numbers_of

__all__ = ["BEGIN", "END", "PERMIT", "TILES", "tile_product"]

_HAS_TILES = "defined(__AMX_BF16__) && defined(__linux__) && defined(__LP64__)"

_PERMIT = f"""\
/* Return whether the process may use the matrix tiles of the processor. Linux grants the tile registers on request
 * (arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)), permanently and for all threads. Linux refuses if the processor or the
 * system has no tiles, or if the signal stack of a thread is too small for the registers. Every processor with tiles
 * multiplies bfloat16 numbers in tiles. */
static inline int32_t {{name}}(void) {{
#if {_HAS_TILES}
  long status = 158;
  __asm__ volatile("syscall" : "+a"(status) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  return status == 0;
#else
  return 0;
#endif
}}
"""


def _of_thread(name: str, comment: str, *lines: str) -> c.Evaluate:
    """Return the call of a C function changing no memory, made by each thread if tiles are permitted."""
    head = f"/* {comment} */\nstatic inline void {{name}}(int32_t tiles) {{\n#if {_HAS_TILES}"
    text = "\n".join((head, *lines, "#else", "  (void)tiles;", "#endif", "}", ""))
    return c.Evaluate(c.Call(c.Callee(name, lambda _: None, definition=text), (TILES,)))


_STEP_PS = 60_000
"""Estimated picoseconds of a step of a whole block."""

PERMIT = c.Callee("vec_permit_tiles", lambda: 0, definition=_PERMIT)
TILES = c.Variable("tiles", c.CType("int32"))
"""The permission check for tiles, ``int32_t (void)``, and the variable holding the result."""

BEGIN = _of_thread(
    "vec_begin_tiles",
    "Configure the tile registers of this thread: 16 rows of 64 bytes each.",
    "  if (tiles) {",
    "    static const uint8_t shape[64] = {",
    "        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,",
    "        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16};",
    '    __asm__ volatile("ldtilecfg %0" : : "m"(shape));',
    "  }",
)
END = _of_thread(
    "vec_end_tiles",
    "Release the tile registers of this thread, so that the system need not save the registers.",
    '  if (tiles) __asm__ volatile("tilerelease" : : : "memory");',
)
"""The statements of each thread before and after multiplication.

:func:`tile_product` needs the shapes of the tile registers set by ``BEGIN``.
"""


def tile_product(width: int) -> c.Callee:
    """Return the C function multiplying up to 32 rows of pairs, cut into steps, by a panel of 16 or 32 columns.

    C signature: ``(rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch)``. Each step prefetches
    ``num_lines`` cache lines behind ``ahead``. With fewer than 16 rows, or 32, the sums behind the rows are set as
    well.
    """
    full_case, half_case = (_case(width, halves) for halves in (2, 1))
    definition = f"""\
/* Registers 0 to 3 hold the sums: the first 16 rows by each 16 columns, then the remaining rows. */
static inline void {{name}}(const uint32_t *rows, const uint32_t *panel, int64_t num_steps, int64_t num_rows,
    const uint32_t *ahead, int64_t num_lines, float *sums, int64_t pitch) {{
#if {_HAS_TILES}
  __asm__ volatile("tilezero %%tmm0\\n\\ttilezero %%tmm1\\n\\ttilezero %%tmm2\\n\\ttilezero %%tmm3" : : : "memory");
  if (num_rows > 16) {{
{full_case}
  }} else {{
{half_case}
  }}
#else
  (void)rows, (void)panel, (void)num_steps, (void)num_rows, (void)ahead, (void)num_lines, (void)sums, (void)pitch;
#endif
}}
"""

    def evaluate(*arguments: Any) -> None:
        rows, panel, steps, count, _, _, sums, pitch = arguments
        left = numbers_of(rows[: steps * STEP_PITCH].reshape(steps, -1, STEP_WORDS))
        right = numbers_of(panel[: steps * STEP_WORDS * width].reshape(steps, STEP_WORDS, width))
        for row in range(16 if count <= 16 else 32):
            sums[row * pitch :][:width] = np.einsum("skp,sknp->n", left[:, row], right)

    def time(*arguments: Dim | None) -> Dim:
        num_steps = arguments[2]
        return _STEP_PS * (1 if num_steps is None else num_steps)

    return c.Callee(f"vec_tile_product_{width}", evaluate, writes=(6,), definition=definition, ps=time)


def _case(width: int, halves: int) -> str:
    """Return the C of a product of 16 or 32 rows."""
    tiles = [(half, across) for half in range(halves) for across in range(width // 16)]
    loads = [f"tileloadd {half * 16 * STEP_WORDS * 4}(%0,%2,1), %%tmm{4 + half}" for half in range(halves)]
    loads += [f"tileloadd {across * 64}(%1,%3,1), %%tmm{6 + across}" for across in range(width // 16)]
    products = [f"tdpbf16ps %%tmm{6 + across}, %%tmm{4 + half}, %%tmm{2 * half + across}" for half, across in tiles]
    stores = [f"tilestored %%tmm{2 * half + across}, {across * 64}(%{half},%2,1)" for half, across in tiles]
    loop, end = ('"' + "\\n\\t".join(part) + '"' for part in (loads + products, stores))
    row_nbytes, column_nbytes = (f'"r"((int64_t){nbytes})' for nbytes in (STEP_WORDS * 4, width * 4))
    return f"""\
    for (int64_t k = 0; k < num_steps; ++k, rows += {STEP_PITCH}, panel += {STEP_WORDS * width}) {{
      for (int64_t line = 0; line < num_lines; ++line, ahead += 16) __builtin_prefetch(ahead, 0, 2);
      __asm__ volatile({loop}
                       : : "r"(rows), "r"(panel), {row_nbytes}, {column_nbytes} : "memory");
    }}
    __asm__ volatile({end} : : "r"(sums), "r"(sums + 16 * pitch), "r"(pitch * 4) : "memory");"""
