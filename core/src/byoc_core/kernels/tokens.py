"""The reference kernels of tokenisation: the places of tokens in the bytes of strings, and the bytes at places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.strings import split_strings

__all__ = ["KINDS", "compile_expression", "expression_problem", "take_spans", "token_pool", "token_spans"]

Span = tuple[int, int]

_OP = "strings.token_spans"
_MARKS = b"\x02\x03"
"""The marks in front of and behind the tokens of a string."""

KINDS = ("matches", "separated", "characters")
"""The kinds of tokens: matches of an expression, the text between matches of separators, and single characters."""


@lru_cache(maxsize=256)
def compile_expression(expression: str) -> re.Pattern[str]:
    """Return a compiled regular expression; classes of characters, such as words and spaces, are of ASCII.

    Raises:
        re.error: the expression is malformed.
    """
    return re.compile(expression, re.ASCII)


def expression_problem(expression: str) -> str | None:
    """Return why a regular expression is malformed, or ``None``."""
    try:
        compile_expression(expression)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def token_spans(
    data: NDArray,
    lengths: NDArray,
    *,
    kind: str,
    expressions: tuple[str, ...],
    min_length: int,
    mark: bool,
    padding: str,
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the places of the tokens of strings.

    Args:
        data: the bytes of the strings in UTF-8, uint8 ``(n,)``.
        lengths: the number of bytes of each string, of any shape ``S``.
        kind: of ``KINDS``.
        expressions: the regular expression of tokens, or the expressions of separators, applied one after the other.
        min_length: the least number of characters of a token.
        mark: whether the tokens of each string stand between two marks.
        padding: the text of missing tokens, of strings with fewer tokens than others.

    Returns:
        The first byte and the number of bytes of each token, two int64 ``(*S, t)``, with the largest number ``t`` of
        tokens of a string; and the bytes with these places, uint8 ``(n + 2 + padding,)``: ``data``, the two marks, and
        the padding.

    Raises:
        ExecutionError: the lengths do not fit the bytes, or the bytes are not UTF-8.
    """
    find, end = _finder(kind, expressions, min_length), int(data.size)
    texts, pool = split_strings(data, lengths, _OP), token_pool(data, padding)
    firsts = [0, *np.cumsum(lengths.reshape(-1)).tolist()]
    rows = [_byte_spans(text, start, find) for text, start in zip(texts, firsts, strict=False)]
    if mark and any(rows):
        rows = [[(end, end + 1), *row, (end + 1, end + 2)] for row in rows]
    width = max(map(len, rows), default=0)
    missing = (end + 2, int(pool.size))
    spans = np.array([row + [missing] * (width - len(row)) for row in rows], np.int64)
    starts, stops = np.moveaxis(spans.reshape(*lengths.shape, width, 2), -1, 0)
    return np.ascontiguousarray(starts), stops - starts, pool


def token_pool(data: NDArray, padding: str) -> NDArray:
    """Return the bytes of strings, of the two marks around tokens, and of the padding."""
    return np.concatenate([data, np.frombuffer(_MARKS + padding.encode(), np.uint8)])


def take_spans(data: NDArray, starts: NDArray, lengths: NDArray) -> NDArray:
    """Return the elements at places, one place after the other.

    Shapes: ``data`` ``(n,)``; ``starts`` and ``lengths``, the first element and the number of elements of each place,
    int64 of equal shapes; the result is ``(k,)``.

    Raises:
        ExecutionError: a place is outside, or the number of lengths is not the number of starts.
    """
    first, counts = starts.reshape(-1), lengths.reshape(-1)
    if first.size != counts.size:
        raise ExecutionError(
            "op `strings.take_spans`", "has another number of lengths than starts", got=counts.size, expected=first.size
        )
    if first.size and not (first.min() >= 0 and counts.min() >= 0 and (first <= data.size - counts).all()):
        raise ExecutionError("op `strings.take_spans`", "has a place outside the bytes", expected=f"0 to {data.size}")
    positions = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.asarray(data[positions])


def _byte_spans(text: bytes, start: int, find: Callable[[str], Iterator[Span]]) -> list[Span]:
    """Return the places of the tokens of a string that starts at a byte."""
    try:
        characters = text.decode()
    except UnicodeDecodeError as error:
        raise ExecutionError(f"op `{_OP}`", f"has a string other than UTF-8: {error}") from error
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
    position, least = 0, max(min_length, 1)
    while position <= len(text):
        for match in expression.finditer(text, position):  # goes on behind a match, as a new search
            first, stop = match.span()
            if stop - first < least:
                position = first + 1
                break
            yield first, stop
        else:
            return


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
