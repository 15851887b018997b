"""The reference kernel of counts of n-grams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.strings import have_total

__all__ = ["ngram_counts", "prepare_ngrams"]

_OP = "ngram_counts"
_Columns = Mapping[tuple[int, ...], int]


def ngram_counts(
    x: NDArray,
    items: NDArray,
    sizes: NDArray,
    columns: NDArray,
    *,
    num_columns: int,
    min_length: int,
    max_length: int,
    max_skip: int,
) -> NDArray:
    """Return the number of occurrences of known n-grams in each row.

    Neighbours of an n-gram have the same number of other items in between: 0, and then each number up to ``max_skip``.
    N-grams of a single item are counted once.

    Args:
        x: the items, int64 ``(N, C)`` or ``(C,)``.
        items: the items of all known n-grams, one after the other, int64.
        sizes: the number of items of each n-gram, 1 or more, int64 ``(G,)``.
        columns: the column of each n-gram, int64 ``(G,)``; of equal n-grams the last counts.
        num_columns: the number of columns.
        min_length: the least number of items of counted n-grams, 1 or more.
        max_length: the largest number of items of counted n-grams.
        max_skip: the largest number of items between neighbours.

    Returns:
        float32 ``(N, num_columns)`` or ``(num_columns,)``.

    Raises:
        ExecutionError: the sizes do not fit the items, or a column is outside.
    """
    found = _columns(items, sizes, columns, num_columns)
    attrs = {"num_columns": num_columns, "min_length": min_length, "max_length": max_length, "max_skip": max_skip}
    return _count(found, x, items, sizes, columns, **attrs)


def prepare_ngrams(constants: Sequence[NDArray | None], attrs: Mapping[str, Any]) -> Callable[..., NDArray] | None:
    """Return the kernel for constant n-grams; ``None`` for other n-grams, and for malformed n-grams."""
    _, items, sizes, columns = constants
    if items is None or sizes is None or columns is None:
        return None
    try:
        return partial(_count, _columns(items, sizes, columns, attrs["num_columns"]))
    except ExecutionError:
        return None  # each call reports the error


def _columns(items: NDArray, sizes: NDArray, columns: NDArray, num_columns: int) -> _Columns:
    """Return the column of each n-gram."""
    if not have_total(sizes, items.size, least=1) or sizes.shape != columns.shape:
        got = sum(sizes.tolist())
        raise ExecutionError(f"op `{_OP}`", "has sizes that do not fit the items", got=got)
    if sizes.size and not (columns.min() >= 0 and columns.max() < num_columns):
        raise ExecutionError(f"op `{_OP}`", "has a column outside", expected=f"0 to {num_columns - 1}")
    stops, numbers = np.cumsum(sizes).tolist(), items.tolist()
    grams = [tuple(numbers[start:stop]) for start, stop in zip([0, *stops], stops, strict=False)]
    return dict(zip(grams, columns.tolist(), strict=True))


def _count(
    gram_columns: _Columns,
    x: NDArray,
    items: NDArray,
    sizes: NDArray,
    columns: NDArray,
    *,
    num_columns: int,
    min_length: int,
    max_length: int,
    max_skip: int,
) -> NDArray:
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    counts = np.zeros((len(rows), num_columns), np.int64)
    lengths = sorted({len(gram) for gram in gram_columns if min_length <= len(gram) <= max_length})
    for row, found in zip(rows.tolist(), counts, strict=True):
        for length in lengths:
            steps = range(1, 2 if length == 1 else max_skip + 2)
            for step in steps:
                reach = step * (length - 1)
                if reach >= len(row):
                    break
                for start in range(len(row) - reach):
                    column = gram_columns.get(tuple(row[start : start + reach + 1 : step]))
                    if column is not None:
                        found[column] += 1
    return counts.astype(np.float32).reshape((*x.shape[:-1], num_columns))
