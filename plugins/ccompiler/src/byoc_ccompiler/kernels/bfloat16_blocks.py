"""Blocks of products of bfloat16 numbers, summed in float32: C functions that all products of a source share.

A block is :data:`ROWS` rows of factors times a panel of 16 or 32 columns. Both come in steps of :data:`DEPTH` factors:
of a step of the rows, each row's factors lie side by side; of a step of a panel, the 16 columns of one pair of factors
do, pair by pair, first for 16 columns, then for the others. Where fewer are left, zeros fill the step up. So the matrix
tiles of x86 processors (AMX) read them, and ``vdpbf16ps``, the instruction of AVX-512 for pairs of products, as well.

There are three forms with the same meaning. Tiles are used where the C is compiled for a processor that has them and,
when the kernel runs, Linux grants the process the use of their registers; ``vdpbf16ps`` where the C is compiled for it;
else both numbers of a pair are widened to float32, exactly, and multiplied there. Sums differ in their order alone, but
the instructions take subnormal numbers for zero and give zero for subnormal sums, which the last form keeps.
"""

from __future__ import annotations

import re

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH", "LINE", "ROWS", "STEP_PS", "Blocks"]

DEPTH = 32
"""Factors of a step."""

ROWS = 32
"""Rows of a block."""

LINE = 32
"""Numbers in a line of the cache."""

STEP_PS = 60_000
"""Estimated picoseconds of one step of a whole block."""

_HAS_TILES = "defined(__AMX_BF16__) && defined(__linux__) && defined(__LP64__)"

_PERMIT = f"""\
/* Tells whether the matrix tiles of the processor may be used. Linux grants their registers to a process that asks
 * (arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)), for all its threads and for good, and refuses where the processor or
 * the system has none, or where the signal stack of some thread is too small to save them. Every processor that has
 * tiles multiplies bfloat16 numbers in them. */
static inline int {{name}}(void) {{
#if {_HAS_TILES}
  long status = 158;
  __asm__ volatile("syscall" : "+a"(status) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  return status == 0;
#else
  return 0;
#endif
}}
"""

_BEGIN = f"""\
/* Makes the tile registers of this thread ready: each 16 rows of 64 bytes. */
static inline void {{name}}(int tiles) {{
#if {_HAS_TILES}
  if (tiles) {{
    static const uint8_t shape[64] = {{
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  }}
#else
  (void)tiles;
#endif
}}
"""

_END = f"""\
/* Gives the tile registers of this thread back, so that nobody has to save them. */
static inline void {{name}}(int tiles) {{
#if {_HAS_TILES}
  if (tiles) __asm__ volatile("tilerelease" : : : "memory");
#else
  (void)tiles;
#endif
}}
"""

_ROUND = f"""\
/* Rounds `count` numbers that lie side by side to bfloat16, as one row of a block; zeros fill the last step up. Mostly
 * the number is known where it is called. */
static inline __attribute__((always_inline)) void {{name}}(const float *from, int64_t count, uint16_t *restrict to) {{
  int64_t k = 0;
#if defined(__AVX512BF16__)
  typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint16_t halves __attribute__((vector_size(64), aligned(2), may_alias));
  halves both;
  for (; k + {DEPTH} <= count; k += {DEPTH}, to += {ROWS * DEPTH}) {{
    __asm__("vcvtne2ps2bf16 %1, %2, %0"
            : "=v"(both) : "v"(*(const floats *)(from + k)), "v"(*(const floats *)(from + k + 16)));
    *(halves *)to = both;
  }}
  if (k == count) return;
  const uint32_t rest = (1u << (count - k)) - 1;
  const uint16_t first = (uint16_t)rest, second = (uint16_t)(rest >> 16);
  floats low, high;
  __asm__("vmovups %1, %0 %{{%2%}}%{{z%}}" : "=v"(low) : "m"(*(const floats *)(from + k)), "Yk"(first));
  __asm__("vmovups %1, %0 %{{%2%}}%{{z%}}" : "=v"(high) : "m"(*(const floats *)(from + k + 16)), "Yk"(second));
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(low), "v"(high));
  *(halves *)to = both;
#else
  for (; k + {DEPTH} <= count; k += {DEPTH}, to += {ROWS * DEPTH}) {{
    for (int j = 0; j < {DEPTH}; ++j) to[j] = byoc_f32_to_bf16(from[k + j]).bits;
  }}
  if (k == count) return;
  for (int j = 0; j < {DEPTH}; ++j) to[j] = k + j < count ? byoc_f32_to_bf16(from[k + j]).bits : 0;
#endif
}}
"""


def _pack_text(width: int) -> str:
    return f"""\
/* Rounds columns of a matrix to bfloat16 as a panel of {width} columns, zeros behind what there is. */
static void {{name}}(const float *from, int64_t row_step, int64_t column_step, int64_t depth, int64_t num_columns,
    uint32_t *restrict to) {{
  for (int64_t k = 0; k < depth; k += {DEPTH}) {{
    for (int64_t n = 0; n < {width}; n += 16, to += {DEPTH // 2 * 16}) {{
      const float *first = from + k * row_step + n * column_step;
      if (k + {DEPTH} <= depth && n + 16 <= num_columns && column_step == 1) {{
        for (int pair = 0; pair < {DEPTH // 2}; ++pair, first += 2 * row_step) {{
          for (int j = 0; j < 16; ++j) {{
            to[pair * 16 + j] =
                byoc_f32_to_bf16(first[j]).bits | (uint32_t)byoc_f32_to_bf16(first[row_step + j]).bits << 16;
          }}
        }}
        continue;
      }}
      for (int j = 0; j < 16; ++j) {{
        for (int pair = 0; pair < {DEPTH // 2}; ++pair) {{
          const float *low = first + j * column_step + 2 * pair * row_step;
          const int64_t left = n + j < num_columns ? depth - k - 2 * pair : 0;
          to[pair * 16 + j] = (left > 0 ? byoc_f32_to_bf16(low[0]).bits : 0u) |
                              (left > 1 ? (uint32_t)byoc_f32_to_bf16(low[row_step]).bits << 16 : 0u);
        }}
      }}
    }}
  }}
}}
"""


class Blocks:
    """The C names of the functions of blocks by panels of some width.

    Args:
        kernel: whose source they are for.
        width: columns of a panel, 16 or 32.
    """

    def __init__(self, kernel: Kernel, width: int) -> None:
        self._kernel = kernel
        self.width = width

    @property
    def permit(self) -> str:
        """``int (void)``: whether tiles may be used; what the other functions get as ``tiles``."""
        return self._kernel.helper("tiles_are_permitted", _PERMIT)

    @property
    def begin(self) -> str:
        """``(tiles)``: called by each thread before it multiplies."""
        return self._kernel.helper("begin_tiles", _BEGIN)

    @property
    def end(self) -> str:
        """``(tiles)``: called by each thread after it has multiplied."""
        return self._kernel.helper("end_tiles", _END)

    @property
    def round(self) -> str:
        """``(from, count, to)``: rounds a row of factors."""
        return self._kernel.helper("round_row", _ROUND)

    @property
    def pack(self) -> str:
        """``(from, row_step, column_step, depth, num_columns, to)``: rounds a matrix as a panel."""
        return self._kernel.helper(f"pack_bf16_{self.width}", _pack_text(self.width))

    @property
    def multiply(self) -> str:
        """``(rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, tiles)``: gives the sums.

        Those of a row lie side by side, rows ``pitch`` apart; where a block has fewer rows, those behind may be set as
        well. With tiles, so many lines of the cache behind ``ahead`` are fetched in each step.
        """
        unit = self._kernel.unit
        counts = (8, 1) if unit.registers >= 32 else (4, 1)
        names = {
            count: self._kernel.helper(f"pairs_{count}x{self.width}", _pairs_text(unit, count, self.width))
            for count in counts
        }
        return self._kernel.helper(f"block_{self.width}", _multiply_text(self.width, names))


def _pairs_text(unit: VectorUnit, rows: int, width: int) -> str:
    """Gives a function that multiplies some rows of a block by a panel, one or two vectors of columns at a time."""
    lanes = unit.lanes("float32")
    vectors = min(2, width // lanes)
    return f"""\
static BYOC_CONTRACTED void {{name}}(const uint16_t *rows, const uint16_t *panel, int64_t num_steps,
    float *restrict sums, int64_t pitch) {{
  BYOC_CONTRACT
  typedef uint32_t words __attribute__((vector_size({unit.nbytes})));
  typedef uint32_t pairs __attribute__((vector_size({unit.nbytes}), aligned(2), may_alias));
  typedef uint32_t pair __attribute__((aligned(2), may_alias));
  for (int first = 0; first < {width}; first += {vectors * lanes}) {{
    const uint16_t *left = rows, *columns[{vectors}];
    vec_f32 acc[{rows}][{vectors}];
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) {{
      const int column = first + v * {lanes};
      columns[v] = panel + column / 16 * {16 * DEPTH} + column % 16 * 2;
      BYOC_UNROLL
      for (int j = 0; j < {rows}; ++j) acc[j][v] = (vec_f32){{0}};
    }}
    for (int64_t step = 0; step < num_steps; ++step, left += {ROWS * DEPTH}) {{
      for (int k = 0; k < {DEPTH}; k += 2) {{
        words right[{vectors}];
        BYOC_UNROLL
        for (int v = 0; v < {vectors}; ++v) right[v] = *(const pairs *)(columns[v] + k * 16);
#if defined(__AVX512BF16__)
        BYOC_UNROLL
        for (int j = 0; j < {rows}; ++j) {{
          const words factors = (words){{0}} + *(const pair *)(left + j * {DEPTH} + k);
          BYOC_UNROLL
          for (int v = 0; v < {vectors}; ++v) {{
            __asm__("vdpbf16ps %1, %2, %0" : "+v"(acc[j][v]) : "v"(factors), "v"(right[v]));
          }}
        }}
#else
        vec_f32 low[{vectors}], high[{vectors}];
        BYOC_UNROLL
        for (int v = 0; v < {vectors}; ++v) {{
          low[v] = (vec_f32)(right[v] << 16);
          high[v] = (vec_f32)(right[v] & 0xffff0000u);
        }}
        BYOC_UNROLL
        for (int j = 0; j < {rows}; ++j) {{
          const uint32_t factors = *(const pair *)(left + j * {DEPTH} + k);
          const float even = byoc_from_bits_f32(factors << 16), odd = byoc_from_bits_f32(factors & 0xffff0000u);
          BYOC_UNROLL
          for (int v = 0; v < {vectors}; ++v) {{
            acc[j][v] += even * low[v];
            acc[j][v] += odd * high[v];
          }}
        }}
#endif
      }}
      BYOC_UNROLL
      for (int v = 0; v < {vectors}; ++v) columns[v] += {width * DEPTH};
    }}
    BYOC_UNROLL
    for (int j = 0; j < {rows}; ++j) {{
      BYOC_UNROLL
      for (int v = 0; v < {vectors}; ++v) *(vec_f32u *)(sums + j * pitch + first + v * {lanes}) = acc[j][v];
    }}
  }}
}}
"""


def _multiply_text(width: int, names: dict[int, str]) -> str:
    """Gives the function that multiplies a block by a panel; ``names`` has the functions of fewer rows."""
    step = ROWS // 2 * DEPTH
    loops = "\n".join(
        f"  for (; num_rows >= {count}; num_rows -= {count}, rows += {count * DEPTH}, sums += {count} * pitch) "
        f"{name}(rows, panel, num_steps, sums, pitch);"
        for count, name in names.items()
    )
    return f"""\
static BYOC_CONTRACTED void {{name}}(const uint16_t *rows, const uint16_t *panel, int64_t num_steps, int64_t num_rows,
    const uint16_t *ahead, int num_lines, float *restrict sums, int64_t pitch, int tiles) {{
#if {_HAS_TILES}
  /* Registers 0 to 3 hold the sums: of the first 16 rows by each 16 columns, then of the others. */
  if (tiles) {{
    __asm__ volatile("tilezero %%tmm0\\n\\ttilezero %%tmm1\\n\\ttilezero %%tmm2\\n\\ttilezero %%tmm3" : : : "memory");
    if (num_rows > 16) {{
      for (int64_t k = 0; k < num_steps; ++k, rows += {ROWS * DEPTH}, panel += {width * DEPTH}) {{
        for (int line = 0; line < num_lines; ++line, ahead += {LINE}) __builtin_prefetch(ahead, 0, 2);
{_asm(_tile_steps(width, 2), (("rows", 0), (f"rows + {step}", 1), ("panel", 2), (f"panel + {16 * DEPTH}", 3)))}
      }}
{_asm(_tile_stores(width, 2), tuple((f"sums + {_sums_place(t)}", t) for t in range(4)), "pitch * 4")}
    }} else {{
      for (int64_t k = 0; k < num_steps; ++k, rows += {ROWS * DEPTH}, panel += {width * DEPTH}) {{
        for (int line = 0; line < num_lines; ++line, ahead += {LINE}) __builtin_prefetch(ahead, 0, 2);
{_asm(_tile_steps(width, 1), (("rows", 0), ("panel", 2), (f"panel + {16 * DEPTH}", 3)))}
      }}
{_asm(_tile_stores(width, 1), tuple((f"sums + {_sums_place(t)}", t) for t in range(2)), "pitch * 4")}
    }}
    return;
  }}
#else
  (void)tiles;
#endif
  (void)ahead;
  (void)num_lines;
{loops}
}}
"""


def _sums_place(tile: int) -> str:
    return f"{tile // 2 * 16} * pitch + {tile % 2 * 16}"


def _tile_steps(width: int, halves: int) -> list[str]:
    """Gives the instructions of one step of a block of one or two times 16 rows."""
    across = width // 16
    lines = [f"tileloadd (%[at{half}],%[step],1), %%tmm{4 + half}" for half in range(halves)]
    lines += [f"tileloadd (%[at{2 + c}],%[step],1), %%tmm{6 + c}" for c in range(across)]
    return lines + [
        f"tdpbf16ps %%tmm{6 + c}, %%tmm{4 + half}, %%tmm{2 * half + c}" for half in range(halves) for c in range(across)
    ]


def _tile_stores(width: int, halves: int) -> list[str]:
    tiles = [2 * half + c for half in range(halves) for c in range(width // 16)]
    return [f"tilestored %%tmm{tile}, (%[at{tile}],%[step],1)" for tile in tiles]


def _asm(instructions: list[str], places: tuple[tuple[str, int], ...], step: str = "64") -> str:
    """Gives the C statement of some instructions on tiles whose rows lie ``step`` bytes apart."""
    text = "\n".join(f'            "{line}\\n\\t"' for line in instructions)
    used = [(place, k) for place, k in places if re.search(rf"%\[at{k}\]", text)]
    operands = ", ".join(f'[at{k}] "r"({place})' for place, k in used)
    return f'        __asm__ volatile(\n{text}\n            : : {operands}, [step] "r"((int64_t){step}) : "memory");'
