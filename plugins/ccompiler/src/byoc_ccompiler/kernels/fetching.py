"""Memory that is fetched before it is read."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dtypes import dtype_info

__all__ = ["fetch"]

_LINE_NBYTES = 64

_DEFINITION = """
/* Fetches lines of memory so many bytes behind a pointer, perhaps behind the end of what it points into. */
static inline void {name}(const void *x, int64_t offset, int64_t lines) {
  for (int64_t line = 0; line < lines; ++line) {
    __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset + 64 * (uintptr_t)line));
  }
}
"""


def _evaluate(x: object, offset: int, lines: int) -> None:
    """Do nothing: fetching changes no value."""


_FETCH = c.Callee("vec_fetch", _evaluate, definition=_DEFINITION)


def fetch(buffer: c.Buffer, offset: c.Expression, nbytes: int) -> c.Evaluate:
    """Return the statement that fetches so many bytes of a buffer, from an element on that may lie behind its end."""
    place = offset * dtype_info(buffer.dtype).itemsize
    return c.Evaluate(c.Call(_FETCH, (c.Address(buffer, c.Size(0)), place, c.Size(nbytes // _LINE_NBYTES))))
