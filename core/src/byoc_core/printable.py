"""Printable text for terminals, made from text of models, artifacts and plugins.

Names come from strangers. A name may hold the start of a terminal's escape sequence, or marks to turn the direction of
writing. Letters of all languages pass; a replacement character stands for any other unprintable character.
"""

from __future__ import annotations

__all__ = ["to_printable", "to_printable_lines"]


def to_printable(text: str) -> str:
    """Return a text on one line without control, format, surrogate, private or unassigned characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def to_printable_lines(text: str) -> str:
    """Return a text with the same lines, each printable; blanks replace tabs."""
    if text.isprintable():
        return text
    return "\n".join(map(to_printable, text.expandtabs().split("\n")))
