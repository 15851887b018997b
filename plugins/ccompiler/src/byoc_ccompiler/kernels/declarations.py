"""Variables of a block of generated C, declared where something reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["declared"]


def declared(variables: Sequence[tuple[str, str]], body: Sequence[str], indent: str) -> list[str]:
    """Gives a block behind the declarations of the variables that it, or one of them, reads.

    Args:
        variables: declarations without the value (``const int64_t n``), and values, which may read those before.
        body: the lines of the block.
        indent: before each declaration.
    """
    lines = list(body)
    words = set(re.findall(r"\w+", "\n".join(lines)))
    for declaration, value in reversed(variables):
        name = re.findall(r"\w+", declaration)[-1]
        if name in words:
            lines.insert(0, f"{indent}{declaration} = {value};")
            words |= set(re.findall(r"\w+", value))
    return lines
