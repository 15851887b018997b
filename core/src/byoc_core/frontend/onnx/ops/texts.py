"""Importers for operators on words: the cases of letters, the removal of words, and counts of n-grams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from byoc_core.dims import product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.strings import emit_key_index, in_order
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value
from byoc_core.opset.type_rules import shape_text

__all__ = ["IMPORTERS", "STRING_READERS"]

_ACTIONS = ("NONE", "LOWER", "UPPER")
_MODES = ("TF", "IDF", "TFIDF")


def _import_string_normalizer(node: NodeContext) -> Sequence[Imported]:
    """Import a change of case, and the removal of stop words; a single empty string if no string is left.

    The cases of letters are those of Unicode in all locales.
    """
    strings = node.imported(0)
    if not isinstance(strings, StringTensor):
        raise node.error(f"needs `{node.input_names[0]}` as a tensor of strings")
    shape = node.shape_of(strings)
    if len(shape) not in (1, 2) or (len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1):
        raise node.error("needs other strings", got=shape_text(shape), expected="(C,) or (1, C)")
    node.ignore_attrs("locale")
    action = node.attr_string("case_change_action", "NONE")
    if action not in _ACTIONS:
        raise node.error("has an unknown case", got=action, expected=", ".join(_ACTIONS))
    is_case_sensitive = node.attr_flag("is_case_sensitive")
    removed = node.attr_strings("stopwords") if node.has_attr("stopwords") else ()
    changed = strings if action == "NONE" else _change_case(node, strings, action.lower())
    if not removed:
        return (changed,)
    folded = strings
    if not is_case_sensitive:
        removed = tuple(word.lower() for word in removed)
        folded = changed if action == "LOWER" else _change_case(node, strings, "lower")
    return (_without_words(node, changed, folded, sorted(set(removed))),)


def _change_case(node: NodeContext, strings: StringTensor, case: str) -> StringTensor:
    data, lengths = emit_sized(node, "strings.change_case", strings.data, strings.lengths, case=case)
    return StringTensor(data, lengths, strings.index)


def _without_words(
    node: NodeContext, strings: StringTensor, folded: StringTensor, words: Sequence[str]
) -> StringTensor:
    """Return the strings whose folded strings are none of the words, as a vector or a row."""
    strings = in_order(node, strings)
    shape = node.shape_of(strings.lengths)
    count = product(shape)
    index = node.reshape(emit_key_index(node, folded, node.strings(words)), (count,))
    is_kept = node.emit("equal", index, node.constant(np.int64(len(words))))
    is_empty = node.emit("logical_not", node.emit("any", is_kept, axis=(0,), keepdims=True))
    (positions,) = emit_sized(node, "nonzero", node.emit("concat", is_kept, is_empty, axis=0))
    lengths = node.emit("concat", node.reshape(strings.lengths, (count,)), node.constant(np.zeros(1, np.int64)), axis=0)
    index = positions if len(shape) == 2 else node.reshape(positions, node.shape_of(positions)[1:])
    return StringTensor(strings.data, lengths, index)


@dataclass(frozen=True)
class _NGrams:
    """The n-grams of a node: strings or integers of a pool.

    Attributes:
        items: positions in the pool of the items of all n-grams, one n-gram after the other.
        sizes: the number of items of each n-gram.
        columns: the column of each n-gram.
        num_columns: the number of columns.
    """

    items: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    num_columns: int

    @classmethod
    def read(cls, node: NodeContext, pool_size: int, min_length: int, max_length: int) -> _NGrams:
        """Read the n-grams with the wished numbers of items.

        Raises:
            FrontendError: the attributes do not fit each other.
        """
        starts, indexes = node.attr_ints("ngram_counts"), node.attr_ints("ngram_indexes")
        if not indexes or min(indexes) < 0:
            raise node.error("attribute `ngram_indexes` has no columns", got=indexes, expected="columns of 0 or more")
        bounds = [*starts, pool_size]
        if not starts or starts[0] < 0 or bounds != sorted(bounds):
            raise node.error("attribute `ngram_counts` does not fit the pool", got=starts, expected="rising positions")
        items: list[npt.NDArray[np.int64]] = []
        sizes: list[npt.NDArray[np.int64]] = []
        columns: list[npt.NDArray[np.int64]] = []
        number = 0
        for size, (start, stop) in enumerate(pairwise(bounds), 1):
            count, rest = divmod(stop - start, size)
            if rest:
                raise node.error("attribute `ngram_counts` does not fit the pool", got=starts, expected=f"{size}-grams")
            if number + count > len(indexes):
                raise node.error("attribute `ngram_indexes` has the wrong size", got=len(indexes))
            if min_length <= size <= max_length:
                items.append(np.arange(start, stop, dtype=np.int64))
                sizes.append(np.full(count, size, np.int64))
                columns.append(np.array(indexes[number : number + count], np.int64))
            number += count
        none = np.zeros(0, np.int64)
        all_items, all_sizes, all_columns = (np.concatenate([none, *arrays]) for arrays in (items, sizes, columns))
        return cls(all_items, all_sizes, all_columns, max(indexes) + 1)


def _import_tfidf_vectorizer(node: NodeContext) -> Sequence[Imported]:
    """Import counts of n-grams of strings or integers, perhaps with weights."""
    mode = node.attr_string("mode")
    if mode not in _MODES:
        raise node.error("attribute `mode` is unknown", got=mode, expected=", ".join(_MODES))
    min_length, max_length = node.attr_int("min_gram_length"), node.attr_int("max_gram_length")
    max_skip = node.attr_int("max_skip_count")
    if not (1 <= min_length <= max_length and max_skip >= 0):
        raise node.error("has lengths or skips of n-grams out of range", got=(min_length, max_length, max_skip))
    strings = node.imported(0)
    if isinstance(strings, StringTensor):
        words = node.attr_strings("pool_strings")
        vocabulary = [*dict.fromkeys(words)]
        numbers = {word: number for number, word in enumerate(vocabulary)}
        pool = np.array([numbers[word] for word in words], np.int64)
        x: Value = emit_key_index(node, strings, node.strings(vocabulary))
    else:
        pool = np.array(node.attr_ints("pool_int64s"), np.int64)
        x = node.value(0)
        if node.type(0).dtype != "int64":
            x = node.emit("cast", x, dtype="int64")
    grams = _NGrams.read(node, len(pool), min_length, max_length)
    shape = node.shape_of(x)
    if len(shape) > 2:
        raise node.error("needs another rank", got=shape_text(shape), expected="(C,) or (N, C)")
    counts = node.emit(
        "ngram_counts",
        node.reshape(x, shape or (1,)),
        *map(node.constant, (pool[grams.items], grams.sizes, grams.columns)),
        num_columns=grams.num_columns,
        min_length=min_length,
        max_length=max_length,
        max_skip=max_skip,
    )
    return (_weighted(node, counts, mode, grams.num_columns),)


def _weighted(node: NodeContext, counts: Value, mode: str, num_columns: int) -> Value:
    """Return counts, presences (1 or 0) or their products with weights, by the mode."""
    weights = _column_weights(node, num_columns)
    if mode == "TF":
        return counts
    if mode == "TFIDF":
        return counts if weights is None else node.emit("multiply", counts, node.constant(weights))
    zero, ones = node.constant(np.float32(0)), np.ones(num_columns, np.float32)
    found = node.constant(ones if weights is None else weights)
    return node.emit("where", node.emit("greater", counts, zero), found, zero)


def _column_weights(node: NodeContext, num_columns: int) -> npt.NDArray[np.float32] | None:
    """Return the weight of each column, from the weights of n-grams in the order of the pool; ``None`` without weights.

    Raises:
        FrontendError: n-grams of a column have different weights, or the number of weights is wrong.
    """
    weights = np.array(node.attr_floats("weights") if node.has_attr("weights") else (), np.float32)
    if not len(weights):
        return None
    columns = np.array(node.attr_ints("ngram_indexes"), np.int64)
    if len(weights) != len(columns):
        raise node.error("attribute `weights` has the wrong size", got=len(weights), expected=len(columns))
    found: npt.NDArray[np.float32] = np.zeros(num_columns, np.float32)
    found[columns] = weights
    if (found[columns] != weights).any():
        raise node.error("attribute `weights` has several weights for a column")
    return found


IMPORTERS: Mapping[str, NodeImporter] = {
    "StringNormalizer": _import_string_normalizer,
    "TfIdfVectorizer": _import_tfidf_vectorizer,
}
"""The family's importers, by ONNX name."""

STRING_READERS = frozenset(IMPORTERS)
"""The operators whose importers read strings."""
