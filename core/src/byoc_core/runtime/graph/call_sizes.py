"""The sizes of the symbols of a graph function in a call, and attributes of nodes at these sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byoc_core.dims import DimExpr, bound_symbols, evaluate
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.graph.document import GraphAttr, GraphFunction, GraphNode
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["attrs_at", "bind_sizes", "call_symbols", "evaluate_attr"]


def call_symbols(function: GraphFunction) -> tuple[str, ...]:
    """Return the symbols whose sizes every call of a function determines, in order of name.

    A shape determines the size of a symbol by a dimension linear in this symbol. The shapes of outputs count too,
    unless the function returns its results.
    """
    return tuple(sorted(bound_symbols(spec.shape for spec in _passed(function))))


def bind_sizes(function: GraphFunction, arrays: Sequence[NDArray]) -> dict[str, int]:
    """Return the sizes of a function's symbols in a call: at least the symbols of :func:`call_symbols`.

    Args:
        function: the function.
        arrays: the arrays of the call: inputs, then outputs unless the function returns its results.

    Raises:
        CallError: a shape does not fit the declared shape, or contradicts another shape; names the argument.

    Cost: a few comparisons for each axis.
    """
    return bind_symbols(_passed(function), arrays)


def attrs_at(node: GraphNode, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a node's attributes with integers in place of symbolic sizes.

    Raises:
        IRTypeError: an attribute needs a missing size, or cannot be computed.
    """
    return {name: evaluate_attr(value, sizes) for name, value in node.attrs.items()}


def evaluate_attr(value: GraphAttr, sizes: Mapping[str, int]) -> Any:
    """Return an attribute with integers in place of symbolic sizes."""
    if isinstance(value, DimExpr):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple([evaluate_attr(item, sizes) for item in value])
    return value


def _passed(function: GraphFunction) -> tuple[TensorSpec, ...]:
    signature = function.signature
    return signature.inputs if signature.new_symbols else (*signature.inputs, *signature.outputs)
