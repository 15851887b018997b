"""Simplification of index arithmetic and control flow by the ranges of loop indices and of values."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace

from byoc_core.authoring.c.expressions import Binary, Buffer, Call, Expression, Literal, Select, Size, Variable
from byoc_core.authoring.c.indices import MAX, MIN
from byoc_core.authoring.c.renewal import without_clashes
from byoc_core.authoring.c.statements import Alias, Block, Dispatch, For, Function, If, Let, Statement, While
from byoc_core.authoring.c.traversal import declared_by, map_expression, map_own, substitute, with_blocks
from byoc_core.authoring.c.types import BOOL, INDEX
from byoc_core.authoring.c.unused import drop_unused
from byoc_core.dims import Dim, is_nonnegative

__all__ = ["Ranges", "constant_of", "range_of", "simplify", "simplify_block"]

Range = tuple[int, int]
Ranges = Mapping[Variable, Range]
"""The least and the largest value of each variable with a known range."""


def simplify(function: Function) -> Function:
    """Return an equivalent function with less index arithmetic.

    Quotients and remainders of positions with a known range become the parts of the position. Variables with a single
    possible value become this number. Conditions that always or never hold leave a single block. Loops without rounds
    are removed, and loops of a single round become their body. Unused values, pointers and arrays are removed.

    Cost: linear in the expressions, times the depth of a sum.
    """
    return replace(function, body=drop_unused(simplify_block(function.body)))


def simplify_block(block: Block, ranges: Ranges | None = None) -> Block:
    """Return an equivalent block with less index arithmetic.

    Args:
        block: the block.
        ranges: the ranges of variables declared outside.
    """
    known_ranges, parts = dict(ranges or {}), []
    is_inlined = False
    for statement in block:
        part = tuple(_simplified(statement, known_ranges))
        parts.append(part)
        is_inlined |= len(part) != 1 or type(part[0]) is not type(statement)
        for item in part:
            found = range_of(item.value, known_ranges) if isinstance(item, Let) else None
            # Sibling blocks may declare the same variable: a range known there does not hold here.
            for declared in declared_by(item):
                if isinstance(declared, Variable):
                    known_ranges.pop(declared, None)
            if isinstance(item, Let) and found is not None:
                known_ranges[item.variable] = found
    if is_inlined:
        return without_clashes(parts)
    statements = tuple(item for part in parts for item in part)
    return block if all(map(operator.is_, statements, block)) else statements


def _simplified(statement: Statement, ranges: Ranges) -> Iterator[Statement]:
    statement = map_own(statement, lambda item: map_expression(item, lambda part: _folded(part, ranges)))
    match statement:
        case If(condition, then, otherwise):
            value = constant_of(condition)
            if value is not None:
                yield from simplify_block(then if value else otherwise, ranges)
                return
        case While(condition, _) if constant_of(condition) is False:
            return
        case For():
            yield from _simplified_loop(statement, ranges)
            return
        case Dispatch(first, end, _, int(count), _, _):
            if count == 0:
                return
            ranges = {**ranges, first: (0, count - 1), end: (1, count)}
        case Dispatch(first, end):
            ranges = _without(ranges, first, end)
        case Alias(buffer, source, offset, Expression() as condition, Buffer() as otherwise):
            value = constant_of(condition)
            if value is not None:
                yield Alias(buffer, source, offset) if value else Alias(buffer, otherwise, Size(0))
                return
    yield with_blocks(statement, lambda block: simplify_block(block, ranges))


def _simplified_loop(loop: For, ranges: Ranges) -> Iterator[Statement]:
    first, end = range_of(loop.start, ranges), range_of(loop.stop, ranges)
    if first is not None and end is not None:
        if first[0] >= end[1]:
            return
        if first[1] < end[0] and first[0] + loop.step >= end[1]:
            yield from simplify_block(substitute(loop.body, {loop.index: loop.start}), ranges)
            return
        last = end[1] - 1
        if first[0] == first[1]:
            last -= (last - first[0]) % loop.step
        ranges = {**ranges, loop.index: (first[0], last)}
    else:
        ranges = _without(ranges, loop.index)
    yield with_blocks(loop, lambda block: simplify_block(block, ranges))


def _without(ranges: Ranges, *variables: Variable) -> Ranges:
    """Return the ranges of all variables except some redeclared variables."""
    return {item: found for item, found in ranges.items() if item not in variables}


def constant_of(expression: Expression) -> int | bool | None:
    """Return the value of a known number or bool, else ``None``."""
    match expression:
        case Size(int(number)):
            return number
        case Literal(value, type_) if type_ == BOOL:
            return bool(value)
    return None


def range_of(expression: Expression, ranges: Ranges) -> Range | None:
    """Return the least and the largest value of an index, if both are known."""
    match expression:
        case Size(int(number)):
            return number, number
        case Variable():
            return ranges.get(expression)
        case Binary(operator, left, right):
            a, b = range_of(left, ranges), range_of(right, ranges)
            return None if a is None or b is None else _combined(operator, a, b)
        case Select(_, then, otherwise) if expression.type == INDEX:
            a, b = range_of(then, ranges), range_of(otherwise, ranges)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        case Call(callee, (left, right)) if callee in (MIN, MAX):
            a, b = range_of(left, ranges), range_of(right, ranges)
            pick = min if callee == MIN else max
            return None if a is None or b is None else (pick(a[0], b[0]), pick(a[1], b[1]))
    return None


def _combined(operator: str, left: Range, right: Range) -> Range | None:
    match operator:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case "*":
            corners = [left_end * right_end for left_end in left for right_end in right]
            return min(corners), max(corners)
        case "/" if left[0] >= 0 and right[0] == right[1] > 0:
            return left[0] // right[0], left[1] // right[0]
        case "%" if left[0] >= 0 and right[0] == right[1] > 0:
            return 0, min(left[1], right[0] - 1)
    return None


def _folded(expression: Expression, ranges: Ranges) -> Expression:
    match expression:
        case Variable():
            least, most = ranges.get(expression, (0, 1))
            return Size(least) if least == most else expression
        case Call(callee, (left, right)) if callee in (MIN, MAX):
            operator = "<=" if callee == MIN else ">="
            for operand, other in ((left, right), (right, left)):
                if constant_of(_compared(operator, operand, other, ranges) or expression):
                    return operand
            return expression
        case Binary(("/" | "%") as operator, left, Size(dim)) if expression.type == INDEX:
            return _divided(operator, left, dim, ranges) or expression
        case Binary(("<" | "<=" | ">" | ">=" | "==" | "!=") as operator, left, right) if left.type == INDEX:
            return _compared(operator, left, right, ranges) or expression
        case Binary(("&&" | "||") as operator, left, right):
            for operand, other in ((left, right), (right, left)):
                if (value := constant_of(operand)) is not None:
                    return other if value == (operator == "&&") else operand
        case Select(condition, then, otherwise):
            value = constant_of(condition)
            return expression if value is None else then if value else otherwise
    return expression


def _divided(operator: str, left: Expression, divisor: Dim, ranges: Ranges) -> Expression | None:
    """Return a quotient or a remainder of a sum with some terms that are multiples of the divisor."""
    quotient: Expression = Size(0)
    rest: Expression = Size(0)
    for term in _terms(left):
        factor = _factor(term, divisor)
        if factor is None:
            rest = rest + term
        else:
            quotient = quotient + factor
    if not _is_below(rest, divisor, ranges) or not _is_nonnegative(quotient, ranges):
        return None
    return quotient if operator == "/" else rest


def _terms(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Binary) and expression.operator == "+":
        yield from _terms(expression.left)
        yield from _terms(expression.right)
    else:
        yield expression


def _factor(term: Expression, divisor: Dim) -> Expression | None:
    """Return a term divided by a divisor, if the term is a multiple."""
    match term:
        case Size(dim):
            if isinstance(dim, int) and isinstance(divisor, int):
                return Size(dim // divisor) if dim % divisor == 0 else None
            return Size(1) if dim == divisor else None
        case Binary("*", left, right):
            for operand, other in ((left, right), (right, left)):
                if (factor := _factor(operand, divisor)) is not None:
                    return factor * other
    return None


def _is_below(expression: Expression, bound: Dim, ranges: Ranges) -> bool:
    """Return whether an index is at least 0 and below a bound, in every round."""
    found = range_of(expression, ranges)
    if found is None or found[0] < 0:
        return False
    return found[1] < bound if isinstance(bound, int) else is_nonnegative(bound - found[1] - 1)


def _is_nonnegative(expression: Expression, ranges: Ranges) -> bool:
    match expression:
        case Size(dim):
            return is_nonnegative(dim)
        case Binary(("+" | "*"), left, right):
            return _is_nonnegative(left, ranges) and _is_nonnegative(right, ranges)
    found = range_of(expression, ranges)
    return found is not None and found[0] >= 0


def _compared(operator: str, left: Expression, right: Expression, ranges: Ranges) -> Expression | None:
    a, b = range_of(left, ranges), range_of(right, ranges)
    if a is None or b is None:
        return None
    always, never = {
        "<": (a[1] < b[0], a[0] >= b[1]),
        "<=": (a[1] <= b[0], a[0] > b[1]),
        ">": (a[0] > b[1], a[1] <= b[0]),
        ">=": (a[0] >= b[1], a[1] < b[0]),
        "==": (
            a[0] == a[1] == b[0] == b[1],
            a[1] < b[0] or b[1] < a[0],
        ),
        "!=": (
            a[1] < b[0] or b[1] < a[0],
            a[0] == a[1] == b[0] == b[1],
        ),
    }[operator]
    return Literal(always, BOOL) if always or never else None
