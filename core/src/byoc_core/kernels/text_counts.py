"""The reference kernel of counts of n-grams of the tokens of strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from byoc_core.kernels.case_change import CASES, change_case
from byoc_core.kernels.ngrams import ngram_counts
from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.string_keys import string_key_index
from byoc_core.kernels.tokens import take_spans, token_spans

__all__ = ["LETTERS", "TextStages", "count_texts", "text_ngram_counts"]

LETTERS = ("keep", *CASES)
"""The changes of case in front of tokens."""


class TextStages(NamedTuple):
    """The kernels of the stages: of the ops of the same names."""

    change_case: Callable[..., tuple[NDArray, NDArray]]
    token_spans: Callable[..., tuple[NDArray, NDArray, NDArray]]
    take_spans: Callable[..., NDArray]
    key_index: Callable[..., NDArray]
    ngram_counts: Callable[..., NDArray]


_REFERENCE = TextStages(change_case, token_spans, take_spans, string_key_index, ngram_counts)


def count_texts(
    stages: TextStages,
    data: NDArray,
    lengths: NDArray,
    key_data: NDArray,
    key_lengths: NDArray,
    items: NDArray,
    sizes: NDArray,
    columns: NDArray,
    *,
    letters: str,
    kind: str,
    expressions: tuple[str, ...],
    min_characters: int,
    mark: bool,
    padding: str,
    num_columns: int,
    min_length: int,
    max_length: int,
    max_skip: int,
) -> NDArray:
    """Return the counts of n-grams of the tokens of each string, by the kernels of the stages.

    Args:
        stages: the kernels.
        data: the bytes of the strings in UTF-8, uint8 ``(n,)``.
        lengths: the number of bytes of each string, of any shape.
        key_data: the bytes of the known tokens, uint8.
        key_lengths: the number of bytes of each known token.
        items: the numbers of the known tokens of all n-grams, one n-gram after the other.
        sizes: the number of tokens of each n-gram.
        columns: the column of each n-gram.
        letters: of :data:`LETTERS`.
        kind: the kind of tokens.
        expressions: the regular expressions of tokens or separators.
        min_characters: the least number of characters of a token.
        mark: whether the tokens of a string stand between marks.
        padding: the text of missing tokens, of strings with fewer tokens than others.
        num_columns: the number of columns.
        min_length: the least number of tokens of counted n-grams.
        max_length: the largest number of tokens of counted n-grams.
        max_skip: the largest number of tokens between neighbours.

    Returns:
        float32 in the shape of ``lengths`` and ``num_columns``.

    Raises:
        ExecutionError: operands do not fit each other, or the bytes are not UTF-8.
    """
    if letters != LETTERS[0]:
        data, lengths = stages.change_case(data, lengths, case=letters)
    starts, counts, pool = stages.token_spans(
        data, lengths, kind=kind, expressions=expressions, min_length=min_characters, mark=mark, padding=padding
    )
    index = stages.key_index(stages.take_spans(pool, starts, counts), counts, key_data, key_lengths)
    found = stages.ngram_counts(
        index.reshape(lengths.size, index.shape[-1]),
        items,
        sizes,
        columns,
        num_columns=num_columns,
        min_length=min_length,
        max_length=max_length,
        max_skip=max_skip,
    )
    return found.reshape(*lengths.shape, num_columns)


def text_ngram_counts(
    data: NDArray,
    lengths: NDArray,
    key_data: NDArray,
    key_lengths: NDArray,
    items: NDArray,
    sizes: NDArray,
    columns: NDArray,
    *,
    letters: str,
    kind: str,
    expressions: tuple[str, ...],
    min_characters: int,
    mark: bool,
    padding: str,
    num_columns: int,
    min_length: int,
    max_length: int,
    max_skip: int,
) -> NDArray:
    """Return the counts of :func:`count_texts`, by the reference kernels."""
    return count_texts(
        _REFERENCE,
        data,
        lengths,
        key_data,
        key_lengths,
        items,
        sizes,
        columns,
        letters=letters,
        kind=kind,
        expressions=expressions,
        min_characters=min_characters,
        mark=mark,
        padding=padding,
        num_columns=num_columns,
        min_length=min_length,
        max_length=max_length,
        max_skip=max_skip,
    )
