"""The C of the backend for a library: the files of the folder ``c``, with the names of a dtype and of the library."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from byoc_cblas.library import Library

__all__ = ["C_TYPES", "sources"]

C_TYPES = {"float32": "float", "float64": "double"}
"""The supported dtypes, and the elements' types in C."""

_LETTERS = {"float32": "s", "float64": "d"}
_WAKING_PS, _SHARING_PS = 20_000_000, 1_500_000
"""The least work to wake byoc's threads for, and to share with awake threads, in picoseconds (``docs/threads.md``)."""


def sources(library: Library, dtype: str, *, convolution: bool = False) -> Iterator[str]:
    """Yield the C texts for a dtype, each behind the texts in use there.

    Args:
        library: the BLAS.
        dtype: ``"float32"`` or ``"float64"``.
        convolution: whether convolutions are needed.
    """
    yield _read(f"{library.threads.value}.c").replace("PREFIX_", library.prefix)
    for name in ("products", "convolution") if convolution else ("products",):
        text = _read(f"{name}.c").replace("CBLAS_ge", f"{library.prefix}cblas_{_LETTERS[dtype]}ge")
        text = text.replace("WAKING_PS", f"{_WAKING_PS}.0").replace("SHARING_PS", f"{_SHARING_PS}.0")
        yield text.replace("REAL", C_TYPES[dtype])


@cache
def _read(name: str) -> str:
    return (files("byoc_cblas") / "c" / name).read_text("utf-8")
