"""Ops on strings: a tensor of strings is the bytes of all strings, and the number of bytes of each.

See :mod:`byoc_core.runtime.strings`.
"""

from __future__ import annotations

from byoc_core.dims import Dim, product
from byoc_core.kernels.case_change import CASES, change_case
from byoc_core.kernels.ngrams import ngram_counts, prepare_ngrams
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.string_keys import prepare_string_keys, string_key_index
from byoc_core.kernels.text_counts import LETTERS, text_ngram_counts
from byoc_core.kernels.tokens import KINDS, expression_problem, take_spans, token_spans
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example, integers
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.families.data_dependent import data_dependent_op
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import require_rank
from byoc_core.opset.types import TensorType

__all__ = ["OPS"]

_TEXT_OPERANDS = ("data", "lengths", "key_data", "key_lengths", "items", "sizes", "columns")
_LETTERS = integers((6,), 97, 99, "uint8")
_DATA = "``data`` uint8 ``(n,)``: the bytes of the strings in UTF-8; ``lengths`` int64 of any shape: the number of "
_DATA += "bytes of each"


def _require_dtype(context: TypeContext, index: int, dtype: str) -> None:
    if context.tensor(index).dtype != dtype:
        raise context.error("has the wrong dtype", operand=index, got=context.tensor(index).dtype, expected=dtype)


def _require_strings(context: TypeContext, data: int) -> None:
    """Check the operand of bytes, and the operand of lengths behind."""
    _require_dtype(context, data, "uint8")
    require_rank(context, data, 1, "(n,)")
    _require_dtype(context, data + 1, "int64")


def _changed_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    _require_strings(context, 0)
    return (TensorType((size,), "uint8"), TensorType(context.shape(1), "int64"))


def _token_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    _require_strings(context, 0)
    _require_tokens(context)
    pool = context.shape(0)[0] + 2 + len(context.attrs["padding"].encode())
    spans = TensorType((*context.shape(1), size), "int64")
    return (spans, spans, TensorType((pool,), "uint8"))


def _require_tokens(context: TypeContext) -> None:
    """Check the attributes of tokens: their regular expressions, and the padding."""
    count = len(context.attrs["expressions"])
    if context.attrs["kind"] == "matches" and count != 1:
        raise context.error("has another number of expressions of tokens", got=count, expected=1)
    for expression in context.attrs["expressions"]:
        problem = expression_problem(expression)
        if problem is not None:
            raise context.error(f"has a malformed expression: {problem}", got=repr(expression))
    try:
        context.attrs["padding"].encode()
    except UnicodeEncodeError:
        raise context.error("attribute `padding` is no text of UTF-8", got=repr(context.attrs["padding"])) from None


def _taken_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    _require_dtype(context, 0, "uint8")
    require_rank(context, 0, 1, "(n,)")
    for index in (1, 2):
        _require_dtype(context, index, "int64")
    first, second = product(context.shape(1)), product(context.shape(2))
    if isinstance(first - second, int) and first != second:
        raise context.error("has another size than operand `starts`", operand=2, got=second, expected=first)
    return (TensorType((size,), "uint8"),)


def _infer_index(context: TypeContext) -> tuple[TensorType, ...]:
    for index in (0, 2):
        _require_strings(context, index)
    require_rank(context, 3, 1, "(K,)")
    return (TensorType(context.shape(1), "int64"),)


def _infer_counts(context: TypeContext) -> tuple[TensorType, ...]:
    _require_dtype(context, 0, "int64")
    if len(context.shape(0)) not in (1, 2):
        raise context.error("has the wrong rank", operand=0, got=len(context.shape(0)), expected="(N, C) or (C,)")
    _require_ngrams(context, 1)
    return (TensorType((*context.shape(0)[:-1], context.attrs["num_columns"]), "float32"),)


def _infer_text_counts(context: TypeContext) -> tuple[TensorType, ...]:
    for index in (0, 2):
        _require_strings(context, index)
    require_rank(context, 3, 1, "(K,)")
    _require_tokens(context)
    _require_ngrams(context, 4)
    return (TensorType((*context.shape(1), context.attrs["num_columns"]), "float32"),)


def _require_ngrams(context: TypeContext, first: int) -> None:
    """Check the operands ``items``, ``sizes`` and ``columns`` from ``first`` on, and the attributes of n-grams."""
    for index in range(first, first + 3):
        _require_dtype(context, index, "int64")
        require_rank(context, index, 1, "a vector")
    (grams,), (columns,) = context.shape(first + 1), context.shape(first + 2)
    if isinstance(grams - columns, int) and grams != columns:
        raise context.error("has another size than operand `sizes`", operand=first + 2, got=columns, expected=grams)
    for name, least in (("num_columns", 1), ("min_length", 1), ("max_skip", 0)):
        if context.attrs[name] < least:
            raise context.error(f"attribute `{name}` is below {least}", got=context.attrs[name])
    if context.attrs["max_length"] < context.attrs["min_length"]:
        raise context.error("attribute `max_length` is below `min_length`", got=context.attrs["max_length"])


_NGRAMS = (
    AttrSpec("num_columns", AttrKind.INT, doc="The number of columns of the result."),
    AttrSpec("min_length", AttrKind.INT, 1, doc="The least number of items of counted n-grams."),
    AttrSpec("max_length", AttrKind.INT, 1, doc="The largest number of items of counted n-grams."),
    AttrSpec("max_skip", AttrKind.INT, 0, doc="The largest number of items between neighbours."),
)
"""The attributes of counts of n-grams."""

_KIND, _EXPRESSIONS, _MARK, _PADDING = (
    AttrSpec("kind", AttrKind.STR, KINDS[0], KINDS, doc="The kind of tokens."),
    AttrSpec("expressions", AttrKind.STRS, (), doc="The regular expressions of tokens or separators."),
    AttrSpec("mark", AttrKind.BOOL, False, doc="Whether the tokens of a string stand between marks."),
    AttrSpec("padding", AttrKind.STR, "", doc="The text of missing tokens."),
)
"""The attributes of tokens."""

_DATA_DEPENDENT: tuple[OpDef, ...] = (
    data_dependent_op(
        "strings.change_case",
        ("data", "lengths"),
        _changed_types,
        NumpyKernel(change_case, gives=fixed_dtype(None)),
        "Return strings in lower or upper case, by the rules of Unicode. Malformed UTF-8 becomes the replacement "
        "character.\n\n"
        f"Shapes: {_DATA}. The results are the same for the new strings, with ``k`` bytes.",
        attrs=(AttrSpec("case", AttrKind.STR, choices=CASES, doc="The case."),),
        cases=lambda: (
            example(integers((6,), 97, 122, "uint8"), integers((3, 2), 1, 1), case="upper"),
            example(integers((6,), 65, 90, "uint8"), integers((3,), 2, 2), case="lower"),
        ),
    ),
    data_dependent_op(
        "strings.token_spans",
        ("data", "lengths"),
        _token_types,
        NumpyKernel(token_spans, gives=fixed_dtype(None)),
        "Return the places of the tokens of strings: matches of an expression, the text between matches of "
        "separators, or single characters. Classes of expressions are of ASCII. Behind a match shorter than "
        "``min_length``, the search goes on at the second character of the match. A place is the first byte and the "
        "number of bytes, in the third result: the bytes of the strings, then the mark in front of the tokens of a "
        "string (byte 2), the mark behind (byte 3), and the ``padding``, in place of missing tokens. Python's ``re`` "
        "finds matches by backtracking: the time of an expression like ``(a+)+$`` may double with each character.\n\n"
        f"Shapes: {_DATA}, of shape ``S``. The first two results are int64 ``(*S, t)``, with the largest number ``t`` "
        "of tokens of a string, the third is uint8 ``(n + 2 + p,)`` for a padding of ``p`` bytes.",
        attrs=(
            _KIND,
            _EXPRESSIONS,
            AttrSpec("min_length", AttrKind.INT, 1, doc="The least number of characters of a token."),
            _MARK,
            _PADDING,
        ),
        cases=lambda: (
            example(_LETTERS, integers((3,), 2, 2), expressions=("[ab]+",), padding="#"),
            example(_LETTERS, integers((3, 1), 2, 2), kind="characters", mark=True),
            example(_LETTERS, integers((2,), 3, 3), kind="separated", expressions=("b",), padding="pad"),
        ),
    ),
    data_dependent_op(
        "strings.take_spans",
        ("data", "starts", "lengths"),
        _taken_types,
        NumpyKernel(take_spans, fresh=True, gives=fixed_dtype("uint8")),
        "Return the bytes at places, one place after the other. A place is the first byte and the number of bytes.\n\n"
        "Shapes: ``data`` uint8 ``(n,)``; ``starts`` and ``lengths`` int64 of equal shapes; the result is ``(k,)``.",
        cases=lambda: (example(integers((6,), 0, 9, "uint8"), integers((3, 2), 0, 2), integers((3, 2), 0, 4)),),
    ),
)

OPS: tuple[OpDef, ...] = (
    *_DATA_DEPENDENT,
    OpDef(
        "strings.key_index",
        tuple(OperandSpec(name) for name in ("data", "lengths", "key_data", "key_lengths")),
        infer=_infer_index,
        flops=no_flops,
        kernel=NumpyKernel(string_key_index, fresh=True, gives=fixed_dtype("int64"), prepare=prepare_string_keys),
        cases=lambda: (
            example(
                integers((6,), 97, 98, "uint8"),
                integers((3, 2), 1, 1),
                integers((4,), 97, 98, "uint8"),
                integers((4,), 1, 1),
            ),
        ),
        doc="Return the index of the first of the keys equal to each string; the number of keys if none is equal.\n\n"
        f"Shapes: {_DATA}; ``key_data`` uint8 ``(m,)`` and ``key_lengths`` int64 ``(K,)`` the same for the keys; the "
        "result is int64 in the shape of ``lengths``.",
    ),
    OpDef(
        "ngram_counts",
        tuple(OperandSpec(name) for name in ("x", "items", "sizes", "columns")),
        infer=_infer_counts,
        attrs=_NGRAMS,
        flops=no_flops,
        kernel=NumpyKernel(ngram_counts, fresh=True, gives=fixed_dtype("float32"), prepare=prepare_ngrams),
        cases=lambda: (
            example(
                integers((3, 5), 0, 2),
                integers((4,), 0, 2),
                integers((4,), 1, 1),
                integers((4,), 0, 3),
                num_columns=4,
            ),
        ),
        doc="Return the number of occurrences of known n-grams in each row, in the column of the n-gram. Neighbours of "
        "an n-gram have the same number of other items in between: 0, and then each number up to ``max_skip``; n-grams "
        "of a single item count once. Of equal n-grams the last counts.\n\n"
        "Shapes: ``x`` int64 ``(N, C)`` or ``(C,)``; ``items`` int64: the items of all n-grams, one after the other; "
        "``sizes`` and ``columns`` int64 ``(G,)``: the number of items and the column of each; the result is float32 "
        "``(N, num_columns)`` or ``(num_columns,)``.",
    ),
    OpDef(
        "strings.ngram_counts",
        tuple(OperandSpec(name) for name in _TEXT_OPERANDS),
        infer=_infer_text_counts,
        attrs=(
            AttrSpec("letters", AttrKind.STR, LETTERS[0], LETTERS, doc="The change of case in front of tokens."),
            _KIND,
            _EXPRESSIONS,
            AttrSpec("min_characters", AttrKind.INT, 1, doc="The least number of characters of a token."),
            _MARK,
            _PADDING,
            *_NGRAMS,
        ),
        flops=no_flops,
        kernel=NumpyKernel(text_ngram_counts, fresh=True, gives=fixed_dtype("float32")),
        cases=lambda: (
            example(
                integers((3,), 97, 99, "uint8"),
                integers((3,), 1, 1),
                integers((4,), 97, 99, "uint8"),
                integers((4,), 1, 1),
                integers((5,), 0, 3),
                integers((5,), 1, 1),
                integers((5,), 0, 4),
                kind="characters",
                num_columns=5,
            ),
        ),
        doc="Return the number of occurrences of known n-grams of tokens in each string: ``strings.change_case``, "
        "unless ``letters`` is ``keep``, then ``strings.token_spans``, ``strings.key_index`` of the tokens among the "
        "known tokens, and ``ngram_counts`` of these numbers in each row of tokens, marks and padding.\n\n"
        f"Shapes: {_DATA}; ``key_data`` uint8 ``(m,)`` and ``key_lengths`` int64 ``(K,)`` the same for the known "
        "tokens; ``items``, ``sizes`` and ``columns`` as of ``ngram_counts``; the result is float32 in the shape of "
        "``lengths`` and ``num_columns``.",
    ),
)
"""The family's ops."""
