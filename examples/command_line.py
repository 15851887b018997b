"""Types of command-line arguments."""

from __future__ import annotations

__all__ = ["positive"]


def positive(text: str) -> int:
    """Return a positive number of the command line.

    Raises:
        ValueError: the text is no positive integer.
    """
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
