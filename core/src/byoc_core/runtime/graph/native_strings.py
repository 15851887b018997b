"""Kernels of strings and n-grams in C, with the results of the reference kernels to the last bit.

Operands other than described by the ops are left to the reference kernels: these raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from byoc_core.kernels.case_change import change_case
from byoc_core.kernels.ngrams import ngram_counts, prepare_ngrams
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of, fixed_dtype
from byoc_core.kernels.string_keys import prepare_string_keys, string_key_index
from byoc_core.kernels.text_counts import LETTERS, TextStages, count_texts, text_ngram_counts
from byoc_core.kernels.token_runs import TokenRuns, token_runs
from byoc_core.kernels.tokens import take_spans, token_pool, token_spans
from byoc_core.runtime.module import NDArray

__all__ = ["string_kernels"]

_MAX_COUNT = 1 << 24
"""Counts up to this number are exact in float32."""

Kernel = Callable[..., Any]


def string_kernels(extension: ModuleType, references: Mapping[str, Kernel]) -> Mapping[str, NumpyKernel]:
    """Return the kernels by op.

    Args:
        extension: the C extension.
        references: the reference kernels of ops of other families, by op.
    """
    native = _NativeStrings(extension, references["ragged_take"])
    return {
        "strings.change_case": NumpyKernel(native.change_case, gives=fixed_dtype(None)),
        "strings.token_spans": NumpyKernel(native.token_spans, gives=fixed_dtype(None)),
        "strings.take_spans": NumpyKernel(native.take_spans, fresh=True, gives=fixed_dtype("uint8")),
        "strings.key_index": NumpyKernel(
            string_key_index, fresh=True, gives=fixed_dtype("int64"), prepare=native.prepare_keys
        ),
        "ngram_counts": NumpyKernel(
            ngram_counts, fresh=True, gives=fixed_dtype("float32"), prepare=native.prepare_ngrams
        ),
        "strings.ngram_counts": NumpyKernel(
            text_ngram_counts, fresh=True, gives=fixed_dtype("float32"), prepare=native.prepare_texts
        ),
        "ragged_take": NumpyKernel(native.ragged_take, fresh=True, gives=dtype_of(0)),
    }


class _NativeStrings:
    """The kernels, with the functions of the extension.

    Args:
        extension: the C extension.
        ragged_take: the reference kernel of the op ``ragged_take``.
    """

    def __init__(self, extension: ModuleType, ragged_take: Kernel) -> None:
        self._extension = extension
        self._ragged_take = ragged_take

    def change_case(self, data: NDArray, lengths: NDArray, *, case: str) -> tuple[NDArray, NDArray]:
        """Return strings in another case."""
        new_lengths = np.empty(lengths.shape, np.int64)
        found = self._extension.change_case(_flat(data), _flat(lengths), case == "upper", new_lengths)
        if found is None:
            return change_case(data, lengths, case=case)
        return np.frombuffer(found, np.uint8), new_lengths

    def token_spans(
        self,
        data: NDArray,
        lengths: NDArray,
        *,
        kind: str,
        expressions: tuple[str, ...],
        min_length: int,
        mark: bool,
        padding: str,
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return the places of the tokens of strings."""
        runs, found = token_runs(kind, expressions, min_length), None
        if runs is not None:
            found = self._extension.find_runs(
                _flat(data), _flat(lengths), runs.is_member, runs.min_length, runs.splits, mark, len(padding.encode())
            )
        if found is None:
            return token_spans(
                data,
                lengths,
                kind=kind,
                expressions=expressions,
                min_length=min_length,
                mark=mark,
                padding=padding,
            )
        width, *spans = found
        starts, counts = (np.frombuffer(part, np.int64).reshape(*lengths.shape, width) for part in spans)
        return starts, counts, token_pool(data, padding)

    def take_spans(self, data: NDArray, starts: NDArray, lengths: NDArray) -> NDArray:
        """Return the bytes at places."""
        found = self._extension.take_spans(_flat(data), _flat(starts), _flat(lengths))
        return take_spans(data, starts, lengths) if found is None else np.frombuffer(found, np.uint8)

    def ragged_take(self, elements: NDArray, lengths: NDArray, indices: NDArray) -> NDArray:
        """Return rows of different lengths, by index."""
        row_lengths, row_indices = (np.ascontiguousarray(array, np.int64) for array in (lengths, indices))
        found = self._extension.take_ragged(_bytes(elements), row_lengths, row_indices, elements.itemsize)
        if found is None:
            result: NDArray = self._ragged_take(elements, lengths, indices)
            return result
        return np.frombuffer(found, np.uint8).view(elements.dtype)

    def prepare_keys(self, constants: Sequence[NDArray | None], attrs: Mapping[str, Any]) -> Kernel | None:
        """Return the search for strings among constant keys; ``None`` for other keys, and for malformed keys."""
        table = self._key_table(constants[2:])
        return prepare_string_keys(constants, attrs) if table is None else partial(_find_keys, table.find)

    def prepare_ngrams(self, constants: Sequence[NDArray | None], attrs: Mapping[str, Any]) -> Kernel | None:
        """Return the counts of constant n-grams; ``None`` for other n-grams, and for malformed n-grams."""
        tree = self._gram_tree(constants[1:], attrs["num_columns"])
        return prepare_ngrams(constants, attrs) if tree is None else partial(_count_ngrams, tree.count)

    def prepare_texts(self, constants: Sequence[NDArray | None], attrs: Mapping[str, Any]) -> Kernel | None:
        """Return the counts of constant n-grams of constant tokens; ``None`` for others, and for malformed ones."""
        keys = self._key_table(constants[2:4])
        tree = self._gram_tree(constants[4:], attrs["num_columns"])
        if keys is None or tree is None:
            return None
        stages = TextStages(
            self.change_case,
            self.token_spans,
            self.take_spans,
            partial(_find_keys, keys.find),
            partial(_count_ngrams, tree.count),
        )
        runs = token_runs(attrs["kind"], attrs["expressions"], attrs["min_characters"])
        steps = min(attrs["max_skip"], _MAX_COUNT) + 1
        num_counts = steps * (attrs["max_length"] - attrs["min_length"] + 1)
        if runs is None or num_counts >= _MAX_COUNT:
            return partial(count_texts, stages)
        count = partial(self._extension.count_tokens, keys, tree)
        return partial(_count_texts, count, runs, _MAX_COUNT // num_counts, stages)

    def _key_table(self, constants: Sequence[NDArray | None]) -> Any:
        """Return the table of keys, from their bytes and lengths; ``None`` if these are not constant, or do not fit."""
        operands = [_flat(constant) for constant in constants if constant is not None]
        if len(operands) < len(constants):
            return None
        try:
            return self._extension.KeyTable(*operands)
        except ValueError:
            return None

    def _gram_tree(self, constants: Sequence[NDArray | None], num_columns: int) -> Any:
        """Return the tree of n-grams, from ``items``, ``sizes`` and ``columns``; ``None`` as of :meth:`_key_table`."""
        operands = [_flat(constant) for constant in constants if constant is not None]
        if len(operands) < len(constants):
            return None
        try:
            return self._extension.GramTree(*operands, num_columns)
        except ValueError:
            return None


def _count_texts(
    count: Kernel,
    runs: TokenRuns,
    max_nbytes: int,
    stages: TextStages,
    data: NDArray,
    lengths: NDArray,
    *constants: NDArray,
    **attrs: Any,
) -> NDArray:
    """Return the counts of n-grams of tokens that are runs of characters; at most ``max_nbytes`` of text by C."""
    if data.size + 2 < max_nbytes:
        counts = np.zeros((*lengths.shape, attrs["num_columns"]), np.float32)
        if count(
            _flat(data),
            _flat(lengths),
            LETTERS.index(attrs["letters"]),
            runs.is_member,
            runs.min_length,
            runs.splits,
            attrs["mark"],
            attrs["padding"].encode(),
            attrs["min_length"],
            attrs["max_length"],
            attrs["max_skip"],
            counts,
        ):
            return counts
    return count_texts(stages, data, lengths, *constants, **attrs)


def _find_keys(find: Kernel, data: NDArray, lengths: NDArray, key_data: NDArray, key_lengths: NDArray) -> NDArray:
    index = np.empty(lengths.shape, np.int64)
    if not find(_flat(data), _flat(lengths), index):
        return string_key_index(data, lengths, key_data, key_lengths)
    return index


def _count_ngrams(
    count: Kernel,
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
    *rows, size = x.shape
    steps = min(max_skip, size) + 1
    if size * steps * (max_length - min_length + 1) >= _MAX_COUNT:
        return ngram_counts(
            x,
            items,
            sizes,
            columns,
            num_columns=num_columns,
            min_length=min_length,
            max_length=max_length,
            max_skip=max_skip,
        )
    counts = np.zeros((*rows, num_columns), np.float32)
    if x.size:
        count(_flat(x), x.size // size, min_length, max_length, steps - 1, counts)
    return counts


def _flat(array: NDArray) -> NDArray:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _bytes(array: NDArray) -> NDArray:
    return _flat(array).view(np.uint8)
