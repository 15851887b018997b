"""ONNX's ``StringNormalizer``: the cases of letters, and the removal of words.

The package ``onnx`` computes something else: it removes empty strings and accents, looks for words inside strings, and
changes the locale of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["normalize_strings"]

_CASES: Mapping[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def normalize_strings(
    strings: NDArray, case_change_action: str, stopwords: Sequence[str], *, is_case_sensitive: bool
) -> NDArray:
    """Return strings without stop words, in the wished case; a single empty string if no string is left.

    Args:
        strings: strings ``(C,)`` or ``(1, C)``.
        case_change_action: ``NONE``, ``LOWER`` or ``UPPER``.
        stopwords: the strings to remove.
        is_case_sensitive: whether stop words equal strings with the same cases of letters only.

    Raises:
        ExecutionError: the strings have another shape, or the case is unknown.
    """
    where = "op `StringNormalizer` of ONNX"
    if strings.ndim not in (1, 2) or (strings.ndim == 2 and len(strings) != 1):
        raise ExecutionError(where, "needs other strings", got=strings.shape, expected="(C,) or (1, C)")
    if case_change_action not in _CASES:
        raise ExecutionError(where, "has an unknown case", got=case_change_action, expected=", ".join(_CASES))
    fold = _CASES["NONE" if is_case_sensitive else "LOWER"]
    removed = {fold(word) for word in stopwords}
    change = _CASES[case_change_action]
    words = [change(text) for text in strings.reshape(-1).tolist() if fold(text) not in removed]
    if not words and removed:
        words = [""]
    return np.array(words, object).reshape((len(words),) if strings.ndim == 1 else (1, len(words)))
