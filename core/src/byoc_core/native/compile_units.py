"""Translation units: byoc's own C files, compiled with generated files, each in a separate process.

The code generator (:mod:`byoc_core.authoring.csource_units`) decides on the number of units and begins the text with
:func:`unit_count_line`. ``byoc_scalar.h`` selects the definitions of a unit by ``BYOC_UNIT``. Files of byoc are
found by the exact text ``#include "<header>"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = [
    "MAX_UNITS",
    "has_parallel_loops",
    "include_directory",
    "support_files",
    "translation_units",
    "unit_count_line",
]

MAX_UNITS = 8
"""The maximum number of translation units for a text."""

_UNIT_COUNT = "#define BYOC_NUM_UNITS "
_PARALLEL_HEADER = "byoc_parallel.h"
_SCALARS = (
    "byoc_scalar.h",
    "byoc_floats.h",
    "byoc_half.h",
    "byoc_math_f32.h",
    "byoc_math_f64.h",
    "byoc_trigonometry_f32.h",
    "byoc_activations.h",
)
_ALWAYS = ("byoc_ffi.h", "byoc_sizes.h", *_SCALARS, "byoc_ffi.c")
# What comes with a header that a source includes.
_WITH_HEADER = {
    _PARALLEL_HEADER: (_PARALLEL_HEADER, "byoc_parallel.c", "byoc_places.h", "byoc_places.c"),
    "byoc_fork_gate.h": ("byoc_fork_gate.h",),
    "byoc_program.h": ("byoc_program.h", "byoc_program.c"),
    "byoc_stepwise_softmax.h": ("byoc_stepwise_softmax.h",),
    "byoc_python.h": ("byoc_python.h", "byoc_python.c"),
}


def include_directory() -> Path:
    """Return the folder of ``byoc_ffi.h``, ``byoc_ffi.c`` and related files, for compiling generated C by hand."""
    return Path(__file__).parent


def has_parallel_loops(source: str) -> bool:
    """Return whether a C text includes ``byoc_parallel.h``, and may therefore run loops on several threads."""
    return _includes(source, _PARALLEL_HEADER)


def unit_count_line(count: int) -> str:
    """Return the first line of a C text for compilation as the given number of translation units at once."""
    return f"{_UNIT_COUNT}{count}"


def translation_units(source: str) -> dict[str, str]:
    """Return the files for compiling a C text, by name: the text, or units including it, selected by ``BYOC_UNIT``."""
    counts = {unit_count_line(count): count for count in range(1, MAX_UNITS + 1)}
    count = counts.get(source.partition("\n")[0])
    if count is None:
        return {"module.c": source}
    units = {f"module_{k}.c": f'#define BYOC_UNIT {k}\n#include "module.h"\n' for k in range(count)}
    return {**units, "module.h": source}


def support_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Return byoc's files to compile with the given texts, most of them only if a text includes the header."""
    headers = [name for name in _WITH_HEADER if any(_includes(text, name) for text in texts.values())]
    return _read_files((*_ALWAYS, *(file for name in headers for file in _WITH_HEADER[name])))


def _includes(source: str, header: str) -> bool:
    return f'#include "{header}"' in source


@cache
def _read_files(names: tuple[str, ...]) -> dict[str, str]:
    return {name: (include_directory() / name).read_text(encoding="utf-8") for name in names}
