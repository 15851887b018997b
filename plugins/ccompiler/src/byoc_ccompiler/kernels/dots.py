"""The inner product of two rows, for kernels whose sums are not worth packed panels."""

from __future__ import annotations

__all__ = ["dot_function"]

_DOT = """\
/* The inner product of two rows; elements that stand {lanes} apart are added up together. */
static inline {ctype} {{name}}_dot(const {ctype} *a, const {ctype} *b, int64_t count) {{
  {ctype} part[{lanes}] = {{0}};
  int64_t k = 0;
  for (; k + {lanes} <= count; k += {lanes}) {{
    for (int64_t lane = 0; lane < {lanes}; ++lane) part[lane] += a[k + lane] * b[k + lane];
  }}
  {ctype} total = 0;
  for (int64_t lane = 0; lane < {lanes}; ++lane) total += part[lane];
  for (; k < count; ++k) total += a[k] * b[k];
  return total;
}}
"""


def dot_function(ctype: str) -> str:
    """Gives the C definition of ``{name}_dot(a, b, count)`` on a C type of floats."""
    return _DOT.format(ctype=ctype, lanes=16)
