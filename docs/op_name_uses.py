"""Decisions in the code by the name of an op, instead of a trait or a field of the op.

An *op name* is an expression ending in ``op.name`` (``binding.op.name``, ``op.name``), or a local variable set to an op
name by the same function. A *known name* is a string literal, a constant (upper case, such as ``_CONVOLUTIONS`` or
``kinds.SPLIT``), or a literal collection holding a known name. The decisions are

- a comparison (``==``, ``!=``, ``in``, ``not in``) of an op name with a known name;
- each case with a string literal or a constant in a ``match`` of an op name;
- a subscript, or a call of ``get``, of a constant or a literal dict with an op name as the key, alone or in a tuple.

Lookups in attributes (``self._rules[op.name]``), in parameters and in results of calls do not count: there the names
are data handed in by the caller.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

__all__ = ["op_name_lines"]

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
OP_NAME = re.compile(r"\bop\s*\.\s*name\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def op_name_lines(source: str) -> list[int]:
    """Return the line of each decision of a module, in order; a line with two decisions is listed twice."""
    return sorted(_lines(ast.parse(source), frozenset())) if OP_NAME.search(source) else []


def _lines(node: ast.AST, aliases: frozenset[str]) -> Iterator[int]:
    if isinstance(node, FUNCTIONS):
        aliases |= frozenset(_aliases(node))
    if isinstance(node, ast.Match) and _is_op_name(node.subject, aliases):
        yield from (case.pattern.lineno for case in node.cases if _names_an_op(case.pattern))
    elif _is_decision(node, aliases):
        assert isinstance(node, ast.expr)
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _lines(child, aliases)


def _aliases(function: ast.AST) -> Iterator[str]:
    """Yield the local variables set to an op name by a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.NamedExpr):
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, of in zip(target.elts, value.elts, strict=False):
            yield from _pairs(part, of)
    elif isinstance(target, ast.Name) and _is_op_name(value, frozenset()):
        yield target.id


def _is_decision(node: ast.AST, aliases: frozenset[str]) -> bool:
    match node:
        case ast.Compare(left=left, ops=operators, comparators=right):
            sides = [left, *right]
            return any(
                isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn)
                and ((_is_op_name(a, aliases) and _is_known(b)) or (_is_known(a) and _is_op_name(b, aliases)))
                for operator, a, b in zip(operators, sides, right, strict=False)
            )
        case ast.Subscript(value=table, slice=key):
            return _is_table(table) and _is_key(key, aliases)
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]):
            return _is_table(table) and _is_key(key, aliases)
    return False


def _is_op_name(node: ast.expr, aliases: frozenset[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="op") | ast.Attribute(attr="op"), attr="name"):
            return True
        case ast.Name(id=name):
            return name in aliases
        case ast.NamedExpr(value=value):
            return _is_op_name(value, aliases)
    return False


def _is_key(node: ast.expr, aliases: frozenset[str]) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(_is_op_name(part, aliases) for part in parts)


def _is_constant(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return CONSTANT.fullmatch(name) is not None
    return False


def _is_table(node: ast.expr) -> bool:
    return _is_constant(node) or isinstance(node, ast.Dict)


def _is_known(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return _any_known(parts)
        case ast.Dict(keys=keys):
            return _any_known(key for key in keys if key is not None)
        case ast.Starred(value=value):
            return _is_known(value)
    return node is not None and _is_constant(node)


def _any_known(nodes: Iterable[ast.expr]) -> bool:
    return any(map(_is_known, nodes))


def _names_an_op(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchValue(value=value):
            return _is_known(value)
        case ast.MatchOr(patterns=parts):
            return any(map(_names_an_op, parts))
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _names_an_op(inner)
    return False
