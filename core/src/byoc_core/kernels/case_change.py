"""The reference kernel of changes of case: strings in lower or upper case, by the rules of Unicode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.strings import split_strings

__all__ = ["CASES", "change_case"]

_CHANGES: Mapping[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper}
CASES = tuple(_CHANGES)
"""The cases."""


def change_case(data: NDArray, lengths: NDArray, *, case: str) -> tuple[NDArray, NDArray]:
    """Return strings in another case; malformed UTF-8 becomes the replacement character.

    Args:
        data: the bytes of the strings in UTF-8, uint8 ``(n,)``.
        lengths: the number of bytes of each string, of any shape.
        case: of :data:`CASES`.

    Returns:
        The bytes of the strings, uint8 ``(k,)``, and the number of bytes of each, int64 in the shape of ``lengths``.

    Raises:
        ExecutionError: the lengths do not fit the bytes.
    """
    change = _CHANGES[case]
    texts = [
        change(text.decode(errors="replace")).encode() for text in split_strings(data, lengths, "strings.change_case")
    ]
    counts = np.fromiter(map(len, texts), np.int64, len(texts)).reshape(lengths.shape)
    return np.frombuffer(bytearray().join(texts), np.uint8), counts
