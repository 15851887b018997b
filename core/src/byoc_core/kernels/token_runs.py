"""Tokens that are runs of characters: the kinds and regular expressions of tokens that decide by single characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from byoc_core.kernels.tokens import compile_expression

__all__ = ["TokenRuns", "token_runs"]

_CHARACTER = r"[^\\\[\](){}.*+?^$|]"
_CLASS = r"\[\^?(?:[^\\\[\]]|\\[wdsntrfv]|\\[^\w\s])+\]"
_ATOM = rf"\\[wdsWDS]|\\[^\w\s]|{_CLASS}|{_CHARACTER}"
_RUN = re.compile(rf"(?P<before>\\b)?(?P<atom>{_ATOM})(?P<repeated>(?P=atom))?\+(?P<behind>\\b)?", re.ASCII)
_SEPARATOR = re.compile(rf"(?P<atom>{_ATOM})\+?", re.ASCII)
_WORD = r"\w"
"""The only atom with boundaries of words at the ends of all longest runs."""


class TokenRuns(NamedTuple):
    """The rule of tokens that are the longest runs of member characters.

    Attributes:
        is_member: 1 or 0 for each byte in UTF-8; characters beyond ASCII are all members or none.
        min_length: the least number of characters of a run.
        splits: whether each member character is a token by itself.
    """

    is_member: bytes
    min_length: int
    splits: bool = False


@lru_cache(maxsize=256)
def token_runs(kind: str, expressions: tuple[str, ...], min_length: int) -> TokenRuns | None:
    """Return the rule for tokens of :func:`byoc_core.kernels.tokens.token_spans`; ``None`` if runs are no such rule.

    Tokens are runs if an expression of tokens is a character or a class, repeated, or if all separators are a character
    or a class.
    """
    if kind == "characters":
        return TokenRuns(bytes([1]) * 256, 1, splits=True)
    if not all(map(str.isascii, expressions)):
        return None
    if kind == "separated":
        return _between_separators(expressions, min_length)
    found = _RUN.fullmatch(expressions[0])
    if found is None or ((found["before"] or found["behind"]) and found["atom"] != _WORD):
        return None
    return TokenRuns(_members(found["atom"]), max(min_length, 2 if found["repeated"] else 1))


def _between_separators(separators: Sequence[str], min_length: int) -> TokenRuns | None:
    is_member = [1] * 256
    for separator in separators:
        found = _SEPARATOR.fullmatch(separator)
        if found is None:
            return None
        for byte, separates in enumerate(_members(found["atom"])):
            is_member[byte] &= not separates
    return TokenRuns(bytes(is_member), max(min_length, 1))


def _members(atom: str) -> bytes:
    """Return whether each byte belongs to a character matched by an expression of a single character, of ASCII alone.

    Such an expression matches all characters beyond ASCII, or none.
    """
    expression = compile_expression(atom)
    return bytes([expression.fullmatch(chr(byte)) is not None for byte in range(128)]) + bytes(
        [expression.fullmatch("\x80") is not None] * 128
    )
