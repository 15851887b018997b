"""Translation units: the C files that are compiled one by one, in several processes, and then linked.

One text may be several units. Lines :data:`UNIT_MARK` part it: what stands before the first mark belongs to each unit
(includes, types, ``static`` definitions, declarations), what stands behind one is compiled once. Such a text is a
translation unit as it is, too. What one unit defines and another uses is declared before the first mark, and is not
``static``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["UNIT_MARK", "has_parallel_loops", "include_directory", "split_units", "support_files"]

UNIT_MARK = "/* ---- the next unit ---- */"
"""A line of its own that parts the units of one text."""

# A unit need not use all that is shared.
_MAY_BE_UNUSED = "".join(
    f'#pragma GCC diagnostic ignored "-Wunused-{what}"\n' for what in ("function", "const-variable")
)
_PARALLEL_HEADER = "byoc_parallel.h"
_SCALARS = (
    "byoc_scalar.h",
    "byoc_floats.h",
    "byoc_half.h",
    "byoc_math_f32.h",
    "byoc_math_f64.h",
    "byoc_activations.h",
)
_ALWAYS = ("byoc_ffi.h", *_SCALARS, "byoc_ffi.c")
# What comes with a header that a source includes.
_WITH_HEADER = {
    _PARALLEL_HEADER: (_PARALLEL_HEADER, "byoc_parallel.c"),
    "byoc_program.h": ("byoc_executor.h", "byoc_executor.c", "byoc_program.h", "byoc_program.c"),
    "byoc_python.h": ("byoc_python.h", "byoc_python.c"),
}


def include_directory() -> Path:
    """Gives the folder of ``byoc_ffi.h``, ``byoc_ffi.c`` and their like, for compiling generated C by hand."""
    return Path(__file__).parent


def has_parallel_loops(source: str) -> bool:
    """Tells whether a C text may run loops on several threads: it includes ``byoc_parallel.h``."""
    return _includes(source, _PARALLEL_HEADER)


def support_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Gives the files that are compiled with these: most of them only where a text includes their header."""
    wanted = [name for name in _WITH_HEADER if any(_includes(text, name) for text in texts.values())]
    return _read_files((*_ALWAYS, *(file for name in wanted for file in _WITH_HEADER[name])))


def split_units(name: str, text: str) -> dict[str, str]:
    """Gives the units of a text by file name; compilers name places in them by file and line of the whole text.

    Args:
        name: the text's file name, which ends in ``.c``.
        text: the text.
    """
    mark = f"{UNIT_MARK}\n"
    if mark not in text:
        return {name: text}
    shared, *parts = text.split(mark)
    units = {}
    line = shared.count("\n") + 2
    for index, part in enumerate(parts):
        units[f"{name[:-2]}.{index}.c"] = f'{_MAY_BE_UNUSED}#line 1 "{name}"\n{shared}#line {line} "{name}"\n{part}'
        line += part.count("\n") + 1
    return units


def _includes(source: str, header: str) -> bool:
    return f'#include "{header}"' in source


@cache
def _read_files(names: tuple[str, ...]) -> dict[str, str]:
    return {name: (include_directory() / name).read_text(encoding="utf-8") for name in names}
