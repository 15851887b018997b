"""Importer of the tokenizer of ONNX Runtime, in pipelines of texts exported by skl2onnx."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from byoc_core.dims import Dim
from byoc_core.opset import TensorType

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]


def _import_tokenizer(node: NodeContext) -> Sequence[Imported]:
    """Import the division of strings into tokens: ``(C,)`` or ``(N, C)`` becomes ``(..., tokens)``.

    Strings with fewer tokens than others are padded.
    """
    from byoc_core.frontend.onnx import StringTensor, read_strings

    strings = read_strings(node, 0)
    shape = node.shape_of(strings.lengths)
    if len(shape) not in (1, 2):
        raise node.error("divides neither a vector nor a matrix", got=shape, expected="(C,) or (N, C)")
    padding = node.attr_string("pad_value")
    attrs = {
        **_read_expressions(node),
        "min_length": node.attr_int("mincharnum"),
        "mark": node.attr_flag("mark"),
        "padding": padding,
    }
    count: Dim = node.fresh_size("tokens")
    spans = TensorType((*shape, count), "int64")
    pool_type = TensorType((node.shape_of(strings.data)[0] + 2 + len(padding.encode()),), "uint8")
    starts, lengths, pool = node.emit_all(
        "strings.token_spans", (strings.data, strings.lengths), attrs, out_types=[spans, spans, pool_type]
    )
    data_type = TensorType((node.fresh_size("bytes"),), "uint8")
    (data,) = node.emit_all("strings.take_spans", (pool, starts, lengths), {}, out_types=[data_type])
    return (StringTensor(data, lengths),)


def _read_expressions(node: NodeContext) -> Mapping[str, object]:
    """Return the attributes of the op for the kind of tokens.

    Raises:
        FrontendError: there is neither an expression of tokens nor one of separators, or an expression is malformed.
    """
    if node.has_attr("tokenexp") and (expression := node.attr_string("tokenexp")):
        node.ignore_attrs("separators")
        expressions: tuple[str, ...] = (expression,)
        kind = "characters" if expression == "." else "matches"  # line ends too, as in ONNX Runtime
    else:
        expressions = node.attr_strings("separators") if node.has_attr("separators") else ()
        kind = "characters" if expressions == ("",) else "separated"
        if not expressions or ("" in expressions and len(expressions) > 1):
            expected = "`tokenexp`, or `separators` without an empty one"
            raise node.error("has no expressions of tokens or separators", got=expressions, expected=expected)
    for expression in expressions:
        try:
            re.compile(expression, re.ASCII)
        except re.error as error:
            raise node.error(f"has a malformed regular expression: {error}", got=expression) from error
    return {"kind": kind, "expressions": () if kind == "characters" else expressions}


IMPORTERS: Mapping[str, NodeImporter] = {"Tokenizer": _import_tokenizer}
"""The module's importers, by ONNX name."""
