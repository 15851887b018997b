"""Text from models, artifacts and plugins as a terminal may show it.

Names come from strangers. One may hold the start of a terminal's escape sequence, or marks that turn the direction of
writing. Letters of all languages pass; a replacement character stands for anything else that is not printed.
"""

from __future__ import annotations

__all__ = ["to_printable", "to_printable_lines"]


def to_printable(text: str) -> str:
    """Return a text on one line without control, format, surrogate, private or unassigned characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def to_printable_lines(text: str) -> str:
    """Return a text with the same lines, each printable; blanks stand for its tabs."""
    if text.isprintable():
        return text
    return "\n".join(map(to_printable, text.expandtabs().split("\n")))
