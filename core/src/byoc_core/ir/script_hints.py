"""Hints for nearly correct script: replacements for words of other systems, and of plain Python."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from byoc_core.errors import near_names

__all__ = ["DECORATORS", "hint_for", "literal_hint", "statement_hint"]

DECORATORS = ("function", "region", "ir_module")
"""Decorators of script."""
_STATEMENTS = ("dataflow", "func_attr", "module_attrs", "output", *DECORATORS)
_OPERATORS: Mapping[type[ast.AST], str] = MappingProxyType(
    {
        ast.Add: "add",
        ast.Sub: "subtract",
        ast.Mult: "multiply",
        ast.Div: "divide",
        ast.MatMult: "matmul",
        ast.Pow: "power",
        ast.USub: "negative",
    }
)
_DPS = '`R.call_dps_packed("symbol", (x, ...), out_types=[R.Tensor(...)])`'
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "call_tir": f"A function filling results passed as arguments is called by {_DPS}.",
        "call_dps": f"A function filling results passed as arguments is called by {_DPS}.",
        "emit": "A binding needs no keyword: write `y = R.<op>(...)`.",
        "emit_output": "Return the values.",
        "extern": (
            f"A function filling results passed as arguments is called by {_DPS}, a function returning the results by "
            "`R.call_packed`; "
            '`R.extern("symbol")` may stand for the symbol.'
        ),
        "func": "Did you mean 'function'?",
        "match_cast": 'Types are inferred; symbols of shapes are strings: `R.Tensor(("n", 4))`.',
        "prim_func": "Loop functions are not script: backends generate the loops.",
        "shape": 'Shapes are tuples: `R.Tensor((2, "n"))`.',
        "tuple": "There are no tuples: return several values.",
    }
)


def hint_for(name: str, valid_names: Iterable[str] = (), ops: Iterable[str] = ()) -> str:
    """Return the suggested replacement of a name behind ``R.``; empty if nothing is near.

    Args:
        name: the written name, without ``R.``.
        valid_names: names valid at this point of the script.
        ops: names of ops.
    """
    plain = name.removeprefix("op.").removeprefix("relax.")
    if plain in _WORDS:
        return _WORDS[plain]
    names = [*ops]
    last = plain.rpartition(".")[2]
    same = [op for op in names if op.rpartition(".")[2] == last]
    if same:
        return f"Did you mean {' or '.join(repr(f'R.{op}') for op in same)}?"
    return near_names(plain, [*valid_names, *names])


def literal_hint(node: ast.expr, dtype: str) -> str | None:
    """Return the correct form of a number as an operand; ``None`` if the node is no number."""
    match node:
        case (
            ast.Constant(value=int() | float())
            | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()))
        ):
            text = ast.unparse(node)
            return f'A number among operands is `R.const({text}, "{dtype}")`; attributes are passed by name.'
    return None


def statement_hint(node: ast.stmt) -> str | None:
    """Return the suggested replacement of a statement other than a binding; ``None`` if nothing is near."""
    match node:
        case ast.Assign(value=ast.BinOp(op=operator)) | ast.Assign(value=ast.UnaryOp(op=operator)):
            op = _OPERATORS.get(type(operator))
            return f"Write the op in place of the operator: `R.{op}(...)`." if op else None
        case ast.AugAssign(op=operator):
            op = _OPERATORS.get(type(operator))
            return (
                f"Write the op in place of the operator, with a name for the result: `y = R.{op}(...)`." if op else None
            )
        case ast.Assign(value=ast.Subscript()):
            return "Parts of a tensor are taken by `R.strided_slice` or `R.take`."
        case ast.Assign(value=ast.Constant()):
            return 'A constant is `R.const(values, "dtype")`.'
        case ast.If():
            return "A branch is `R.if_(condition, ..., regions=[...])`."
        case ast.For() | ast.While():
            return "A loop is `R.loop(..., regions=[...])`."
        case (
            ast.Expr(value=ast.Call(func=function))
            | ast.With(items=[ast.withitem(context_expr=ast.Call(func=function))])
        ) if ast.unparse(function).startswith("R."):
            name = ast.unparse(function).removeprefix("R.")
            return (
                _WORDS.get(name) or near_names(name, _STATEMENTS) or "A result is bound to a name: `y = R.<op>(...)`."
            )
    return None
