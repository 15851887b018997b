"""Fusion of counts of n-grams with the tokens counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.ir import Binding, IRModule, Trait, Value
from byoc_core.opset.attributes import AttrValue
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module
from byoc_core.transform.tensors import shape_of

__all__ = ["FuseTextCounts"]


@dataclass(frozen=True)
class FuseTextCounts(Pass):
    """Fusion of a change of case, tokens, a search for tokens among keys, and counts of n-grams.

    The sizes of tokens and of strings in between depend on the texts; the fused op has no such sizes. The numbers stay
    the same bit for bit. Values with other readers are not fused.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with fused counts. Cost: linear."""
        return rewrite_module(module, _RULES)


def _fuse(counts: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    keys = _only_maker(_origin(counts.operands[0], graph), graph, "strings.key_index")
    spans = None if keys is None else _only_maker(keys.operands[0], graph, "strings.take_spans")
    tokens = None if spans is None else graph.maker(spans.operands[0], "strings.token_spans")
    if keys is None or spans is None or tokens is None:
        return None
    starts, lengths, pool = tokens.results
    if spans.operands != (pool, starts, lengths) or _origin(keys.operands[1], graph) is not lengths:
        return None
    if [graph.num_uses(result) for result in tokens.results] != [1, 2, 1]:
        return None
    if not _has_tokens_in_rows(counts.operands[0], lengths):
        return None
    strings, attrs = _strings_and_case(tokens, graph)
    attrs = {
        **attrs,
        "min_characters": tokens.attrs["min_length"],
        **{name: tokens.attrs[name] for name in ("kind", "expressions", "mark", "padding")},
        **counts.attrs,
    }
    found = graph.emit("strings.ngram_counts", (*strings, *keys.operands[2:], *counts.operands[1:]), attrs)
    return (_reshaped(found, counts.result, graph),)


def _strings_and_case(tokens: Binding, graph: RewriteGraph) -> tuple[tuple[Value, Value], Mapping[str, AttrValue]]:
    """Return the strings divided into tokens, in front of a change of case without other readers, and the case."""
    data, lengths = tokens.operands
    changed = _only_maker(data, graph, "strings.change_case")
    if changed is None or _origin(lengths, graph) is not changed.results[1]:
        return (data, lengths), {"letters": "keep"}
    return (changed.operands[0], _reshaped(changed.operands[1], lengths, graph)), {"letters": changed.attrs["case"]}


def _only_maker(value: Value, graph: RewriteGraph, op: str) -> Binding | None:
    """Return the op of this name producing a value with a single reader."""
    return graph.maker(value, op) if graph.num_uses(value) == 1 else None


def _origin(value: Value, graph: RewriteGraph) -> Value:
    """Return the value in front of changes of shape without other readers."""
    while (binding := graph.maker(value, Trait.RESHAPING)) is not None and graph.num_uses(value) == 1:
        value = binding.operands[0]
    return value


def _has_tokens_in_rows(index: Value, lengths: Value) -> bool:
    """Return whether each row of a matrix, or a vector, has the tokens of a string."""
    shape, tokens = shape_of(index), shape_of(lengths)
    if not shape or not tokens:
        return False
    return shape[-1] == tokens[-1] and (len(shape) == 2 or len(tokens) == 1)


def _reshaped(value: Value, like: Value, graph: RewriteGraph) -> Value:
    """Return a value in the shape of another value of as many elements."""
    shape = shape_of(like)
    assert shape is not None  # of a checked type
    return value if shape_of(value) == shape else graph.emit("reshape", (value,), {"shape": shape})


_RULES: Rules = {"ngram_counts": (_fuse,)}
