"""The reference kernels of tokenisation: the places of tokens in the bytes of strings, and the bytes at places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ExecutionError

__all__ = ["KINDS", "compile_expression", "take_spans", "token_spans"]

NDArray = npt.NDArray[Any]
Span = tuple[int, int]

KINDS = ("matches", "separated", "characters")
"""The kinds of tokens: matches of an expression, the text between matches of separators, and single characters."""


@lru_cache(maxsize=256)
def compile_expression(expression: str) -> re.Pattern[str]:
    """Return a compiled regular expression; classes of characters, such as words and spaces, are of ASCII.

    Raises:
        re.error: the expression is malformed.
    """
    return re.compile(expression, re.ASCII)


def token_spans(
    data: NDArray,
    lengths: NDArray,
    *,
    kind: str = KINDS[0],
    expressions: tuple[str, ...] = (),
    min_length: int = 1,
    mark: bool = False,
    pad_nbytes: int = 0,
) -> NDArray:
    """Return the places of the tokens of strings.

    Args:
        data: the bytes of the strings in UTF-8, uint8 ``(n,)``.
        lengths: the number of bytes of each string, of any shape ``S``.
        kind: of ``KINDS``.
        expressions: the regular expression of tokens, or the expressions of separators, applied one after the other.
        min_length: the least number of characters of a token.
        mark: whether the tokens of each string stand between two marks.
        pad_nbytes: the number of bytes of the padding.

    Returns:
        The first byte of each token and the byte behind, int64 ``(*S, t, 2)``, with the largest number ``t`` of tokens
        of a string. Byte ``n`` is the mark in front, byte ``n + 1`` the mark behind, and then comes the padding.

    Raises:
        ExecutionError: the lengths do not fit the bytes, or the bytes are not UTF-8.
    """
    count = lengths.reshape(-1)
    if (count < 0).any() or count.sum() != data.size:
        problem = "has lengths that do not fit the bytes"
        raise ExecutionError("op `mlops.token_spans`", problem, got=int(count.sum()), expected=data.size)
    find, text, end = _finder(kind, expressions, min_length), data.tobytes(), int(data.size)
    stops = np.cumsum(count).tolist()
    rows = [_byte_spans(text[start:stop], start, find) for start, stop in zip([0, *stops], stops, strict=False)]
    if mark and any(rows):
        rows = [[(end, end + 1), *row, (end + 1, end + 2)] for row in rows]
    width = max(map(len, rows), default=0)
    padding = (end + 2, end + 2 + pad_nbytes)
    spans = np.array([row + [padding] * (width - len(row)) for row in rows], np.int64)
    return spans.reshape(*lengths.shape, width, 2)


def take_spans(data: NDArray, spans: NDArray) -> NDArray:
    """Return the bytes at places, one place after the other.

    Shapes: ``data`` ``(n,)``, ``spans`` ``(..., 2)``: the first byte and the byte behind; the result is ``(k,)``.

    Raises:
        ExecutionError: a place is outside.
    """
    starts, stops = spans.reshape(-1, 2).T
    if spans.size and not (starts.min() >= 0 and (starts <= stops).all() and stops.max() <= data.size):
        raise ExecutionError("op `mlops.take_spans`", "has a place outside the bytes", expected=f"0 to {data.size}")
    counts = stops - starts
    positions = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.asarray(data[positions])


def _byte_spans(text: bytes, start: int, find: Callable[[str], Iterator[Span]]) -> list[Span]:
    """Return the places of the tokens of a string that starts at a byte."""
    try:
        characters = text.decode()
    except UnicodeDecodeError as error:
        raise ExecutionError("op `mlops.token_spans`", f"has a string other than UTF-8: {error}") from error
    spans = find(characters)
    if len(characters) == len(text):
        return [(start + first, start + stop) for first, stop in spans]
    offsets = list(accumulate((len(character.encode()) for character in characters), initial=start))
    return [(offsets[first], offsets[stop]) for first, stop in spans]


def _finder(kind: str, expressions: Sequence[str], min_length: int) -> Callable[[str], Iterator[Span]]:
    """Return the function yielding the places of the tokens of a text, in characters."""
    if kind == "characters":
        return lambda text: ((index, index + 1) for index in range(len(text)))
    compiled = [compile_expression(expression) for expression in expressions]
    if kind == "separated":
        return lambda text: iter(_separated(text, compiled, min_length))
    return lambda text: _matches(text, compiled[0], min_length)


def _matches(text: str, expression: re.Pattern[str], min_length: int) -> Iterator[Span]:
    """Yield the matches; behind a match that is too short, the search goes on at its second character."""
    position = 0
    while position <= len(text) and (match := expression.search(text, position)) is not None:
        first, stop = match.span()
        if stop - first >= max(min_length, 1):
            yield first, stop
            position = stop
        else:
            position = first + 1


def _separated(text: str, separators: Sequence[re.Pattern[str]], min_length: int) -> list[Span]:
    """Return the text between separators. Each separator splits all spans left by the separators before."""
    spans = [(0, len(text))]
    for separator in separators:
        found: list[Span] = []
        for first, stop in spans:
            position = first
            for match in separator.finditer(text[first:stop]):
                if match.end() > match.start():
                    found.append((position, first + match.start()))
                    position = first + match.end()
            found.append((position, stop))
        spans = [(first, stop) for first, stop in found if stop - first >= min_length]
    return [(first, stop) for first, stop in spans if stop - first >= max(min_length, 1)]
