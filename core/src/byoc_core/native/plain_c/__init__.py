"""Headers of exported C: the support of generated functions without heap, threads and foreign tensors.

A generated source compiled with the macro :data:`PLAIN_C` holds the raw functions ``<symbol>_`` over plain pointers,
without the functions over ``DLTensor*``. The headers in this folder take the place of headers of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from byoc_core.native.compile_units import support_files

__all__ = ["PLAIN_C", "PORTABLE_C", "has_raw_functions", "is_portable", "plain_c_headers"]

PLAIN_C = "BYOC_PLAIN_C"
"""The macro for compiling the raw functions of a source alone."""

PORTABLE_C = "BYOC_PORTABLE_C"
"""The macro defined by a source for any C11 compiler: the constants of its export are arrays."""


def has_raw_functions(source: str) -> bool:
    """Return whether a generated source has raw functions over plain pointers, as written by the kit for C."""
    return f"#ifndef {PLAIN_C}" in source


def is_portable(source: str) -> bool:
    """Return whether a generated source is C11 for any compiler, as marked by its backend."""
    return f"#define {PORTABLE_C} " in source


def plain_c_headers(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the headers needed by generated sources in exported C, by file name."""
    folder = Path(__file__).parent
    own = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.h"))}
    headers = {name: text for name, text in support_files(texts).items() if name.endswith(".h")}
    included = {name: own.get(name, text) for name, text in headers.items()}
    return {name: text for name, text in included.items() if name != "byoc_places.h"}
