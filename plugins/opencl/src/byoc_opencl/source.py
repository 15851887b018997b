"""The text given to OpenCL drivers: kernels behind the headers of the core, in a single text.

Drivers look for headers in different ways, and some refuse folders with blanks in their names.
"""

from __future__ import annotations

import re
from functools import cache

from byoc_core.native.toolchain import include_directory

__all__ = ["HEADER", "complete_source"]

HEADER = '#include "byoc_cl.h"\n'
"""The first line of a source."""

_INCLUDE = re.compile(r'^#include "(byoc_\w+\.h)"$', re.MULTILINE)


def complete_source(source: str) -> str:
    """Return a source with the text of the core's headers in place of their names."""
    return _INCLUDE.sub(lambda match: _header(match[1]), source)


@cache
def _header(name: str) -> str:
    """Return the text of a header, with the text of its own headers."""
    path = include_directory() / name
    return complete_source(path.read_text(encoding="utf-8")) if path.is_file() else f'#error "{name} is missing"\n'
