"""C functions that give the largest or the smallest of floats side by side; a NaN wins over every number.

Registers of what is best so far, in which a NaN may get lost, and sums, in which it does not: where a sum is NaN, the
best is taken to be infinite, and where the result is, every element is looked at again. So neither the loop nor what
combines the lanes need look for NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import c_literal, c_suffix, c_type
from byoc_core.dtypes import dtype_info

__all__ = ["extreme_function"]


def extreme_function(name: str, op: str, dtype: str, widths: Sequence[int], fetch: str) -> str:
    """Gives a C function ``(const T *x, int64_t count)`` and what it calls.

    Args:
        name: of the function.
        op: ``max`` or ``min``.
        dtype: of the elements.
        widths: lanes of the registers, the widest first, which is used four at a time.
        fetch: C statement that fetches what lies ahead of ``x + k``.
    """
    ctype, lanes = c_type(dtype), widths[0]
    none, limit = (c_literal(float(f"{sign}inf"), dtype) for sign in (("-", "") if op == "max" else ("", "-")))
    combine = f"byoc_{op}imum_{c_suffix(dtype)}"
    parts = [_register(f"{name}_{width}", op, dtype, width, none, limit) for width in widths]
    short = "".join(
        f" else if (count >= {width}) {{\n    best = {name}_{width}_row(x, count);\n  }}" for width in widths[1:]
    )
    vector = f"{name}_{lanes}"
    return f"""{"".join(parts)}
static __attribute__((noinline)) {ctype} {name}_exact(const {ctype} *x, int64_t count) {{
  {ctype} best = {none};
  for (int64_t k = 0; k < count; ++k) best = {combine}(best, x[k]);
  return best;
}}

static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  {ctype} best;
  if (count >= {4 * lanes}) {{
    {vector} bests[4], sums[4];
    int64_t k = 0;
    BYOC_UNROLL
    for (int v = 0; v < 4; ++v) {{
      bests[v] = ({vector}){{0}} + {none};
      sums[v] = ({vector}){{0}};
    }}
    for (; k + {4 * lanes} <= count; k += {4 * lanes}) {{
      {fetch}
      BYOC_UNROLL
      for (int v = 0; v < 4; ++v) {{
        const {vector} x_v = *(const {vector}u *)(x + k + v * {lanes});
        bests[v] = {vector}_better(bests[v], x_v);
        sums[v] += x_v;
      }}
    }}
    bests[0] = {vector}_better({vector}_better(bests[0], bests[1]), {vector}_better(bests[2], bests[3]));
    sums[0] += sums[1] + (sums[2] + sums[3]);
    best = {vector}_rest(bests[0], sums[0], x, k, count);
  }} else if (count >= {lanes}) {{
    best = {vector}_row(x, count);
  }}{short} else {{
    return {name}_exact(x, count);
  }}
  return best == {limit} ? {name}_exact(x, count) : best;
}}
"""


def _register(name: str, op: str, dtype: str, lanes: int, none: str, limit: str) -> str:
    """Gives a type of vectors, and functions for rows that fill one."""
    ctype, bits = c_type(dtype), dtype_info(dtype).bits
    nbytes = lanes * bits // 8
    folds, width = [], lanes // 2
    while width:
        order = ", ".join(str((lane + width) % lanes) for lane in range(lanes))
        folds.append(f"  best = {name}_better(best, BYOC_SHUFFLE(best, best, {order}));")
        width //= 2
    lines = "\n".join(folds)
    return f"""
typedef {ctype} {name} __attribute__((vector_size({nbytes})));
typedef {ctype} {name}u __attribute__((vector_size({nbytes}), aligned({bits // 8}), may_alias));
typedef int{bits}_t {name}_mask __attribute__((vector_size({nbytes})));

static inline {name} {name}_better({name} a, {name} b) {{
  const {name}_mask keep = a {">" if op == "max" else "<"} b;
  return ({name})((keep & ({name}_mask)a) | (~keep & ({name}_mask)b));
}}

/* The best of two registers and of what is left of a row: its last elements, some of them again. */
static inline {ctype} {name}_rest({name} best, {name} sum, const {ctype} *x, int64_t k, int64_t count) {{
  for (; k + {lanes} <= count; k += {lanes}) {{
    best = {name}_better(best, *(const {name}u *)(x + k));
    sum += *(const {name}u *)(x + k);
  }}
  if (k < count) {{
    best = {name}_better(best, *(const {name}u *)(x + count - {lanes}));
    sum += *(const {name}u *)(x + count - {lanes});
  }}
  const {name}_mask odd = sum != sum;
  best = ({name})((odd & ({name}_mask)(({name}){{0}} + {limit})) | (~odd & ({name}_mask)best));
{lines}
  return best[0];
}}

static inline {ctype} {name}_row(const {ctype} *x, int64_t count) {{
  const {name} first = *(const {name}u *)x;
  return {name}_rest(first, first, x, {lanes}, count);
}}
"""
