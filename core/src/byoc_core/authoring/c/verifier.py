"""The verifier: laws that a function keeps before it is printed."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from byoc_core.authoring.c.expression_printer import has_c_form
from byoc_core.authoring.c.expressions import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    LOGIC,
    Address,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Element,
    Expression,
    Lane,
    Literal,
    Load,
    Raw,
    Select,
    Shuffle,
    Size,
    Unary,
    Variable,
    operands_of,
)
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Copy,
    Declare,
    Dispatch,
    Evaluate,
    Fail,
    For,
    Function,
    If,
    Let,
    LocalArray,
    LoopKind,
    RawStatement,
    Return,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.traversal import declared_by, expressions_of
from byoc_core.authoring.c.types import BOOL, INDEX, CType
from byoc_core.authoring.csource_types import C_TYPES
from byoc_core.errors import InternalError

__all__ = ["problems_of", "verify"]


def verify(function: Function) -> Function:
    """Return the function, which keeps the laws.

    Raises:
        InternalError: it breaks one; names the first statement that does.
    """
    for problem in problems_of(function):
        raise InternalError(f"C function `{function.name}`", problem)
    return function


def problems_of(function: Function) -> list[str]:
    """Return what is wrong with a function, in the order of its statements; nothing where it keeps the laws.

    The laws: what is read is declared before; types and lanes agree; constant offsets are inside their buffers; nothing
    stores to what may only be read; only variables of :class:`Declare` change; rounds of a parallel loop do not write
    to one place.
    """
    checker = _Checker(function)
    return list(checker.problems())


class _Checker:
    """Checks one function; knows what is declared at the place where it is."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._known: set[Buffer | Variable] = set()
        self._mutable: set[Variable] = set()
        self._vector_arrays: dict[Buffer, int] = {}
        self._parallel: list[tuple[set[Buffer | Variable], Variable | None]] = []

    def problems(self) -> Iterator[str]:
        function = self._function
        if not re.fullmatch(r"[A-Za-z_]\w*", function.name, re.ASCII):
            yield "has a name that is no C identifier"
        for parameter in function.parameters:
            if parameter in self._known:
                yield f"parameter `{parameter.name}`: stands twice"
            self._known.add(parameter)
            dtype = parameter.dtype if isinstance(parameter, Buffer) else parameter.type.dtype
            if dtype not in C_TYPES:
                yield f"parameter `{parameter.name}`: C has no type for {dtype}"
        yield from self._block(function.body)
        ends = function.body[-1] if function.body else None
        if function.result is not None and not isinstance(ends, Return | Fail):
            yield f"gives no {function.result} at its end"

    def _block(self, block: Block) -> Iterator[str]:
        before = set(self._known)
        for statement in block:
            yield from self._statement(statement)
        self._known = before

    def _statement(self, statement: Statement) -> Iterator[str]:
        where = type(statement).__name__
        for expression in expressions_of(statement):
            for problem in self._expression(expression):
                yield f"{where}: {problem}"
        for problem in self._own(statement):
            yield f"{where}: {problem}"
        before = set(self._known)
        for item in declared_by(statement):
            if item in self._known:
                yield f"{where}: `{item.name}` is declared already"
            self._known.add(item)
        match statement:
            case For() | Dispatch():
                is_parallel = isinstance(statement, Dispatch) or statement.kind is LoopKind.PARALLEL
                if is_parallel:
                    if self._parallel:
                        yield f"{where}: is parallel inside a parallel loop"
                    index = statement.index if isinstance(statement, For) else None
                    self._parallel.append((before, index))
                yield from self._block(statement.body)
                if is_parallel:
                    self._parallel.pop()
                self._known = before
            case While():
                yield from self._block(statement.body)
            case If():
                yield from self._block(statement.then)
                yield from self._block(statement.otherwise)

    def _own(self, statement: Statement) -> Iterator[str]:
        """Yield what is wrong with a statement whose expressions are right."""
        match statement:
            case Let(variable, value) | Declare(variable, value):
                yield from _differing(variable.type, value.type, f"`{variable.name}`")
                if isinstance(statement, Declare):
                    self._mutable.add(variable)
            case Assign(variable, value):
                yield from self._assignment(variable, value.type)
            case LocalArray():
                yield from self._array(statement)
            case Alias():
                yield from self._alias(statement)
            case Store(buffer, index, value):
                yield from self._access(buffer, index, value.type.lanes)
                yield from _differing(CType(buffer.dtype, value.type.lanes), value.type, f"`{buffer.name}`")
                yield from self._write(buffer, index)
            case Copy():
                yield from self._copy(statement)
            case Clear(target, index, count):
                yield from self._access(target, index, max(_constant(count) or 0, 0))
                if count.type != INDEX:
                    yield f"the count is {count.type}, no index"
                yield from self._write(target, index)
            case For():
                yield from self._loop(statement)
            case RawStatement():
                yield from self._raw(statement)
            case _:
                yield from self._control(statement)

    def _control(self, statement: Statement) -> Iterator[str]:
        match statement:
            case While() | If():
                if statement.condition.type != BOOL:
                    yield f"the condition is {statement.condition.type}, no bool"
            case Evaluate(call):
                if not isinstance(call, Call | Raw):
                    yield "the expression has no effect"
            case Fail():
                yield from self._fail(statement)
            case Return(value):
                given = None if value is None else value.type
                if given != self._function.result:
                    yield f"gives {given}, where the function gives {self._function.result}"

    def _fail(self, statement: Fail) -> Iterator[str]:
        if self._function.result != CType("int32"):
            yield f"fails, where the function gives {self._function.result} and no status"
        if statement.message.count("{}") != len(statement.values):
            yield f"shows {len(statement.values)} values in {statement.message.count('{}')} places"
        for value in statement.values:
            if not value.type.is_integer:
                yield f"shows {value.type}, no integer"

    def _raw(self, statement: RawStatement) -> Iterator[str]:
        yield from _placeholders("".join(statement.lines), statement)
        for item in statement.writes:
            if item not in self._known:
                yield f"`{item.name}` is not declared"
            elif isinstance(item, Variable):
                yield from self._assignment(item, item.type)
            else:
                yield from self._write(item, None)

    def _assignment(self, variable: Variable, type_: CType) -> Iterator[str]:
        if variable not in self._known:
            yield f"`{variable.name}` is not declared"
        elif variable not in self._mutable:
            yield f"`{variable.name}` keeps its value"
        yield from _differing(variable.type, type_, f"`{variable.name}`")
        if self._parallel and variable in self._parallel[-1][0]:
            yield f"`{variable.name}` is changed by every round of a parallel loop"

    def _array(self, statement: LocalArray) -> Iterator[str]:
        buffer = statement.buffer
        if not isinstance(buffer.size, int) or buffer.size <= 0:
            yield f"`{buffer.name}` has no known size above 0"
        elif buffer.size % statement.lanes:
            yield f"`{buffer.name}` is no whole number of vectors of {statement.lanes}"
        if not buffer.is_writable:
            yield f"`{buffer.name}` is an array that nothing may write"
        if statement.lanes > 1:
            self._vector_arrays[buffer] = statement.lanes

    def _alias(self, statement: Alias) -> Iterator[str]:
        buffer, source, condition = statement.buffer, statement.source, statement.condition
        for other in statement.sources:
            yield from self._buffer(other)
            if buffer.is_writable and not other.is_writable:
                yield f"`{buffer.name}` may write to `{other.name}`, which may only be read"
            if other.dtype != source.dtype:
                yield f"`{buffer.name}` points to {source.dtype} or {other.dtype}"
        if (condition is None) != (statement.otherwise is None) or (condition is not None and condition.type != BOOL):
            yield f"`{buffer.name}` is no choice by a bool of two buffers"
        if buffer.dtype != source.dtype and not source.is_writable:
            yield f"`{buffer.name}` is {buffer.dtype}, `{source.name}` is {source.dtype}"
        if statement.offset.type != INDEX:
            yield f"the offset is {statement.offset.type}, no index"

    def _copy(self, statement: Copy) -> Iterator[str]:
        target, source = statement.target, statement.source
        if target.dtype != source.dtype:
            yield f"copies {source.dtype} to {target.dtype}"
        count = _constant(statement.count)
        for buffer, index in ((target, statement.target_index), (source, statement.source_index)):
            yield from self._access(buffer, index, count if count is not None and count > 0 else 1)
        if statement.count.type != INDEX:
            yield f"the count is {statement.count.type}, no index"
        yield from self._write(target, statement.target_index)

    def _loop(self, statement: For) -> Iterator[str]:
        if statement.step < 1:
            yield f"the step is {statement.step}"
        if statement.index.type != INDEX or statement.start.type != INDEX or statement.stop.type != INDEX:
            yield "the bounds are no indices"
        is_known = _constant(statement.start) is not None and _constant(statement.stop) is not None
        if statement.kind is LoopKind.UNROLLED and not is_known:
            yield "is unrolled, and the number of its rounds is not known"

    def _write(self, buffer: Buffer, index: Expression | None) -> Iterator[str]:
        if not buffer.is_writable:
            yield f"`{buffer.name}` may only be read"
        if not self._parallel or buffer not in self._parallel[-1][0] or index is None:
            return
        outside, loop_index = self._parallel[-1]
        # A place that says nothing of the round is one place for all rounds.
        if loop_index is not None and all(item in outside for item in _variables(index)):
            yield f"every round of a parallel loop stores to one place of `{buffer.name}`"

    def _buffer(self, buffer: Buffer) -> Iterator[str]:
        if buffer not in self._known:
            yield f"`{buffer.name}` is not declared"

    def _access(self, buffer: Buffer, index: Expression, count: int) -> Iterator[str]:
        yield from self._buffer(buffer)
        if index.type != INDEX:
            yield f"an offset into `{buffer.name}` is {index.type}, no index"
        first, size = _constant(index), buffer.size
        if first is not None and (first < 0 or (isinstance(size, int) and first + count > size)):
            yield f"`{buffer.name}` has {size} elements, and {count} from {first} on are asked for"

    def _expression(self, expression: Expression) -> Iterator[str]:
        for operand in operands_of(expression):
            yield from self._expression(operand)
        match expression:
            case Variable():
                if expression not in self._known:
                    yield f"`{expression.name}` is not declared"
            case Load(buffer, index, lanes):
                yield from self._access(buffer, index, lanes)
                if lanes != self._vector_arrays.get(buffer, lanes):
                    yield f"`{buffer.name}` holds vectors of {self._vector_arrays[buffer]}"
            case Address(buffer, index):
                yield from self._access(buffer, index, 0)
            case Call():
                yield from self._call(expression)
            case Raw():
                yield from _placeholders(expression.text, expression)
            case _:
                yield from _types(expression)

    def _call(self, call: Call) -> Iterator[str]:
        for number in call.callee.writes:
            argument = call.arguments[number]
            if not isinstance(argument, Address):
                yield f"`{call.callee.name}` writes argument {number}, which is no address"
            else:
                yield from self._write(argument.buffer, argument.index)


def _types(expression: Expression) -> Iterator[str]:
    """Yield what is wrong with the types of an expression's operands."""
    match expression:
        case Literal(_, type_) | Cast(_, type_):
            if type_.dtype not in C_TYPES:
                yield f"C has no type for {type_.dtype}"
            if isinstance(expression, Cast) and type_.lanes != expression.operand.type.lanes:
                yield f"a cast of {expression.operand.type} to {type_}"
        case Unary(operator, operand):
            yield from _unary(operator, operand.type)
        case Binary():
            yield from _binary(expression)
        case Select(condition, then, otherwise):
            if condition.type.dtype != "bool" or condition.type.lanes not in (1, then.type.lanes):
                yield f"a choice by {condition.type}"
            yield from _differing(then.type, otherwise.type, "a choice")
        case Broadcast() | Lane() | Shuffle():
            yield from _vector(expression)
        case Element():
            yield from _element(expression)


def _vector(expression: Expression) -> Iterator[str]:
    """Yield what is wrong with an expression that makes or takes a vector."""
    match expression:
        case Broadcast(operand, lanes):
            if operand.type.lanes != 1 or lanes < 2:
                yield f"{operand.type} in {lanes} lanes"
        case Lane(operand, index):
            if operand.type.lanes == 1 or index.type != INDEX:
                yield f"lane {index.type} of {operand.type}"
        case Shuffle(left, right, order):
            yield from _differing(left.type, right.type, "a shuffle")
            if len(order) != left.type.lanes or not all(0 <= lane < 2 * left.type.lanes for lane in order):
                yield f"a shuffle of {left.type} by {order}"


def _unary(operator: str, type_: CType) -> Iterator[str]:
    fits = {"-": type_.is_float or type_.is_integer, "!": type_ == BOOL}
    if not fits.get(operator, type_.is_integer):
        yield f"`{operator}` of {type_}"


def _binary(expression: Binary) -> Iterator[str]:
    operator, left, right = expression.operator, expression.left.type, expression.right.type
    yield from _differing(left, right, f"`{operator}`")
    if operator in LOGIC:
        is_right = left.dtype == "bool"
    elif operator in BITWISE:
        is_right = left.is_integer or left.dtype == "bool"
    elif operator in COMPARISONS:
        is_right = True
    else:
        is_right = operator in ARITHMETIC and (left.is_integer or (left.is_float and operator != "%"))
    if not is_right:
        yield f"`{operator}` of {left}"


def _element(expression: Element) -> Iterator[str]:
    if not all(isinstance(item, Literal | Variable) for item in expression.operands):
        yield f"an operand of `{expression.op}` is neither a literal nor a variable"
    if any(item.type.lanes > 1 for item in (expression, *expression.operands)):
        yield f"`{expression.op}` of vectors"
        return
    if not has_c_form(expression):
        dtypes = ", ".join(item.type.dtype for item in expression.operands)
        yield f"`{expression.op}` has no C expression for {dtypes}"


def _placeholders(text: str, raw: Raw | RawStatement) -> Iterator[str]:
    """Yield what is wrong with the places of a raw text that stand for names and reads."""
    found = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    reads = {str(number) for number in range(len(raw.reads))}
    others: set[str] = set()
    if isinstance(raw, RawStatement):
        others |= {f"w{number}" for number in range(len(raw.writes))}
        others |= {f"d{number}" for number in range(len(raw.declares))}
    for name in sorted(found - reads - others):
        yield f"raw text has {{{name}}}, which stands for nothing"
    for name in sorted(reads - found):
        yield f"raw text says that it reads {{{name}}}, and does not"


def _differing(wanted: CType, given: CType, what: str) -> Iterator[str]:
    if wanted != given:
        yield f"{what}: {wanted} and {given}"


def _constant(expression: Expression) -> int | None:
    return expression.dim if isinstance(expression, Size) and isinstance(expression.dim, int) else None


def _variables(expression: Expression) -> Iterator[Variable]:
    if isinstance(expression, Variable):
        yield expression
    for operand in operands_of(expression):
        yield from _variables(operand)
