"""Memory that is fetched before it is read."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dtypes import dtype_info

__all__ = ["fetch", "fetch_line"]

_LINE_NBYTES = 64

_DEFINITION = """
/* Fetches lines of memory so many bytes behind a pointer, perhaps behind the end of what it points into. */
static inline void {name}(const void *x, int64_t offset, int64_t lines) {
  for (int64_t line = 0; line < lines; ++line) {
    __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset + 64 * (uintptr_t)line));
  }
}
"""

_LINE_DEFINITION = """
/* Fetches a line of memory so many bytes behind a pointer into a cache that is not the nearest one. */
static inline void {name}(const void *x, int64_t offset) {
  __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset), 0, 2);
}
"""


def _evaluate(x: object, offset: int, lines: int = 1) -> None:
    """Do nothing: fetching changes no value."""


_FETCH = c.Callee("vec_fetch", _evaluate, definition=_DEFINITION)
_FETCH_LINE = c.Callee("vec_fetch_line", _evaluate, definition=_LINE_DEFINITION)


def fetch(buffer: c.Buffer, offset: c.Expression, nbytes: int) -> c.Evaluate:
    """Return the statement that fetches so many bytes of a buffer, from an element on that may lie behind its end."""
    return _fetched(_FETCH, buffer, offset, c.Size(nbytes // _LINE_NBYTES))


def fetch_line(buffer: c.Buffer, offset: c.Expression) -> c.Evaluate:
    """Return the statement that fetches an element that may lie behind a buffer's end, for some time later."""
    return _fetched(_FETCH_LINE, buffer, offset)


def _fetched(callee: c.Callee, buffer: c.Buffer, offset: c.Expression, *lines: c.Expression) -> c.Evaluate:
    place = offset * dtype_info(buffer.dtype).itemsize
    return c.Evaluate(c.Call(callee, (c.Address(buffer, c.Size(0)), place, *lines)))
