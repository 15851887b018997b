"""Dimensions as text: Python syntax, read from the syntax tree and never executed.

The bounds on untrusted text also bound the text written into programs, by :func:`read_problem`. Smaller bounds make
stored programs, reports and graph documents unreadable.
"""

from __future__ import annotations

import ast

from byoc_core.dims.algebra import MAX_TERMS, Dim, DimExpr, check_product, symbol, total
from byoc_core.dims.division import floordiv, mod
from byoc_core.dims.selection import CALLS
from byoc_core.errors import IRTypeError

__all__ = ["parse_dim", "read_dim", "read_problem"]

_MAX_READ_CHARS = 1 << 16
_MAX_READ_OPERATORS = 1 << 11  # Python's parser gives up beyond some 2,500 nested operators
_MAX_READ_DEPTH = 64
_MAX_READ_TERMS = 64


def parse_dim(text: str | Dim) -> Dim:
    """Parse a dimension from Python syntax; ints and expressions pass through.

    Raises:
        IRTypeError: the text is not an integer expression over symbols.
    """
    if isinstance(text, bool):
        raise IRTypeError("dim", "a bool is not a size", got=text)
    if isinstance(text, int | DimExpr):
        return text
    return _parse(text, MAX_TERMS)


def read_dim(text: str) -> Dim:
    """Parse a dimension from an untrusted file: text with a high cost of parsing is refused.

    Every text produced by ``str`` of a dimension and accepted by :func:`read_problem` can be parsed.

    Raises:
        IRTypeError: the text is too long or nested too deep, multiplies sums of many terms, or is not an integer
            expression over symbols.
    """
    problem = read_problem(text)
    if problem is not None:
        raise IRTypeError("dim", problem)
    return _parse(text, _MAX_READ_TERMS)


def read_problem(text: str) -> str | None:
    """Return the reason for which :func:`read_dim` refuses text before parsing, or ``None``."""
    if len(text) > _MAX_READ_CHARS:
        return f"a size is longer than {_MAX_READ_CHARS} characters"
    if sum(map(text.count, "+-*/%")) > _MAX_READ_OPERATORS:
        return f"a size has more than {_MAX_READ_OPERATORS} operators"
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth > _MAX_READ_DEPTH:
            return f"a size is nested more than {_MAX_READ_DEPTH} levels deep"
    return None


def _parse(text: str, max_terms: int) -> Dim:
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body, max_terms)
    except (SyntaxError, ValueError, RecursionError, AttributeError, MemoryError) as error:
        raise IRTypeError("dim", f"cannot read {text!r} as an integer expression") from error


def _from_ast(node: ast.expr, max_terms: int) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand, max_terms)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _sum(node, max_terms)
        case ast.BinOp(left=left, op=operator, right=right):
            return _apply_operator(operator, _from_ast(left, max_terms), _from_ast(right, max_terms), max_terms)
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in CALLS:
            return CALLS[name](_from_ast(left, max_terms), _from_ast(right, max_terms))
    raise ValueError(ast.dump(node))


def _sum(node: ast.expr, max_terms: int) -> Dim:
    """Return a sum of any length, with all terms collected at once: adding term by term is quadratic."""
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        part = _from_ast(node.right, max_terms)
        parts.append(-part if isinstance(node.op, ast.Sub) else part)
        node = node.left
    return total([_from_ast(node, max_terms), *parts])


def _apply_operator(operator: ast.operator, left: Dim, right: Dim, max_terms: int) -> Dim:
    match operator:
        case ast.Mult():
            check_product(left, right, max_terms)
            return left * right
        case ast.FloorDiv():
            return floordiv(left, right)
        case ast.Mod():
            return mod(left, right)
    raise ValueError(ast.dump(operator))
