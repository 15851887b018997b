"""Texts that are hard on kernels of strings, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

__all__ = ["DAMAGED", "EXPRESSIONS", "as_strings", "texts"]

NDArray = npt.NDArray[Any]

_LETTERS = "abAB01_ ,;\n\t\0\x02\x03#-]^\\"
_OTHERS = "\u00e9\u00df\u0130\u03a3\u03c2\u0301\u00a0\u0660\u1e9e\u01c5\ufb01\uffff\U0001f600\U00010400"
"""Letters with longer or shorter other cases, a combining mark, a digit, and characters of four bytes."""

texts = st.one_of(
    st.text(st.sampled_from(_LETTERS), max_size=12),
    st.text(st.sampled_from(_LETTERS + _OTHERS), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["", "a" * 300, "\u0130" * 40, "ab " * 90]),
)
"""Texts without surrogates, short and long."""

DAMAGED = (
    b"\xff",
    b"a\xc3",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"\x80",
    b"\xf0\x8f\x80\x80",
)
"""Bytes other than UTF-8: surrogates, longer forms, numbers beyond the last, incomplete characters."""

EXPRESSIONS: Sequence[tuple[str, tuple[str, ...]]] = (
    *(
        ("matches", (expression,))
        for expression in (
            *(
                "[a-z]+",
                r"\w+",
                "[^,]+",
                r"\S+",
                "a+",
                r"[\w-]+",
                r"\b\w\w+\b",
                r"\w\w+",
                r"[^\s;]+\b",
                r"\b\w+",
                "aa+",
            ),
            *(
                "a*",
                "a|b",
                r"(?i)[a-z]+",
                "[a-z]",
                "ab+",
                "\u00e9+",
                "[a-\u00e9]+",
                r"[\u0061b]+",
                "[a]b]+",
                ".+",
                r"\.+",
            ),
        )
    ),
    *(
        ("separated", separators)
        for separators in (
            *((",",), (",", ";"), (" ", "[,;]+"), (r"\s",), (r"[^a-z]",), (r"\W",), ("\u00e9",), ("-", "^a"), ("b$",)),
            *((", ",), ("a|b",), (r"\b",), ()),
        )
    ),
    ("characters", ()),
)
"""Kinds and expressions of tokens: runs of members of a class, and others."""


def as_strings(items: Sequence[bytes], shape: tuple[int, ...] = (-1,)) -> tuple[NDArray, NDArray]:
    """Return the bytes and lengths of strings."""
    lengths = np.array([len(item) for item in items], np.int64).reshape(shape)
    return np.frombuffer(b"".join(items), np.uint8), lengths
