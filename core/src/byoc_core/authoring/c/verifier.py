"""The verifier: the laws that a function must obey before printing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from byoc_core.authoring.c.expressions import (
    Address,
    Buffer,
    Call,
    Expression,
    Load,
    PointerArray,
    Raw,
    Select,
    Variable,
)
from byoc_core.authoring.c.operands import operands_of
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
from byoc_core.authoring.c.traversal import declared_by, expressions_of, variables_in
from byoc_core.authoring.c.type_rules import (
    address_of,
    c_type_problems,
    differing_types,
    is_mask,
    known_number,
    placeholder_problems,
    type_problems,
)
from byoc_core.authoring.c.types import BOOL, INDEX, CType
from byoc_core.authoring.csource_types import C_LIBRARY_NAMES
from byoc_core.errors import InternalError
from byoc_core.native.c_text import c_identifier

__all__ = ["problems_of", "verify"]


def verify(function: Function) -> Function:
    """Return the function if all laws hold.

    Raises:
        InternalError: a law is broken; names the first statement at fault.
    """
    for problem in problems_of(function):
        raise InternalError(f"C function `{function.name}`", problem)
    return function


def problems_of(function: Function) -> list[str]:
    """Return the problems of a function, in the order of its statements; empty if all laws hold.

    The laws: reads follow declarations; types and lanes agree; constant offsets are inside their buffers; read-only
    memory is not stored to; only variables of :class:`Declare` change; rounds of a parallel loop do not write to the
    same place.
    """
    checker = _Checker(function)
    return list(checker.problems())


class _Checker:
    """A checker of a function, with the items declared at the current place."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._declared: set[Buffer | Variable] = set()
        self._mutable: set[Variable] = set()
        self._vector_arrays: dict[Buffer, int] = {}
        self._parallel: list[tuple[set[Buffer | Variable], Variable | None]] = []

    def problems(self) -> Iterator[str]:
        function = self._function
        if not re.fullmatch(r"[A-Za-z_]\w*", function.name, re.ASCII) or c_identifier(function.name) != function.name:
            yield "the name is not a C identifier"
        elif function.name in C_LIBRARY_NAMES:
            yield "the name belongs to a function of the C library"
        for parameter in function.parameters:
            if parameter in self._declared:
                yield f"parameter `{parameter.name}`: occurs twice"
            self._declared.add(parameter)
            type_ = CType(parameter.dtype) if isinstance(parameter, Buffer) else parameter.type
            for problem in c_type_problems(type_):
                yield f"parameter `{parameter.name}`: {problem}"
        yield from self._block(function.body)
        ends = function.body[-1] if function.body else None
        if function.result is not None and not isinstance(ends, Return | Fail):
            yield f"ends without returning {function.result}"

    def _block(self, block: Block) -> Iterator[str]:
        before = set(self._declared)
        for statement in block:
            yield from self._statement(statement)
        self._declared = before

    def _statement(self, statement: Statement) -> Iterator[str]:
        where = type(statement).__name__
        problems = [found for item in expressions_of(statement) for found in self._operand(statement, item)]
        # If an expression is wrong, its type is wrong too.
        for problem in problems or self._own(statement):
            yield f"{where}: {problem}"
        before = set(self._declared)
        for item in declared_by(statement):
            if item in self._declared:
                yield f"{where}: `{item.name}` is already declared"
            self._declared.add(item)
        match statement:
            case For() | Dispatch():
                is_parallel = isinstance(statement, Dispatch) or statement.kind is LoopKind.PARALLEL
                if is_parallel:
                    if self._parallel:
                        yield f"{where}: is parallel inside a parallel loop"
                    index = statement.index if isinstance(statement, For) and not _runs_once(statement) else None
                    self._parallel.append((before, index))
                yield from self._block(statement.body)
                if is_parallel:
                    self._parallel.pop()
                self._declared = before
            case While():
                yield from self._block(statement.body)
            case If():
                yield from self._block(statement.then)
                yield from self._block(statement.otherwise)

    def _own(self, statement: Statement) -> Iterator[str]:
        """Yield the problems of a statement with correct expressions."""
        match statement:
            case Let(variable, value) | Declare(variable, value):
                yield from differing_types(variable.type, value.type, f"`{variable.name}`")
                if isinstance(statement, Declare):
                    self._mutable.add(variable)
            case Assign(variable, value):
                yield from self._assignment(variable, value.type)
            case LocalArray():
                yield from self._array(statement)
            case Alias():
                yield from self._alias(statement)
            case Store(buffer, index, value):
                yield from self._access(buffer, index, value.type.lanes, value.type.lanes)
                yield from differing_types(CType(buffer.dtype, value.type.lanes), value.type, f"`{buffer.name}`")
                if isinstance(buffer, PointerArray) and address_of(value) is None:
                    yield f"`{buffer.name}` holds pointers, but is set to a value"
                yield from self._write(buffer, index)
            case Copy():
                yield from self._copy(statement)
            case Clear(target, index, count):
                yield from self._numbers(target)
                yield from self._access(target, index, max(known_number(count) or 0, 0))
                if count.type != INDEX:
                    yield f"the count is {count.type}, not an index"
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
                    yield f"the condition is {statement.condition.type}, not a bool"
            case Evaluate(call):
                if not isinstance(call, Call | Raw):
                    yield "the expression has no effect"
            case Fail():
                yield from self._fail(statement)
            case Return(value):
                returned = None if value is None else value.type
                if self._parallel:
                    yield "leaves the function from inside a parallel loop"
                if returned != self._function.result:
                    yield f"returns {returned} instead of {self._function.result}"

    def _fail(self, statement: Fail) -> Iterator[str]:
        if self._parallel:
            yield "leaves the function from inside a parallel loop"
        if self._function.result != CType("int32"):
            yield f"fails, but the function returns {self._function.result} instead of a status"
        if statement.message.count("{}") != len(statement.values):
            yield f"has {len(statement.values)} values for {statement.message.count('{}')} placeholders"
        for value in statement.values:
            if not value.type.is_integer:
                yield f"has a value of {value.type}, not an integer"

    def _raw(self, statement: RawStatement) -> Iterator[str]:
        yield from placeholder_problems("".join(statement.lines), statement)
        for item in statement.writes:
            if item not in self._declared:
                yield f"`{item.name}` is not declared"
            elif isinstance(item, Variable):
                yield from self._assignment(item, item.type)
            else:
                yield from self._write(item, None)

    def _assignment(self, variable: Variable, type_: CType) -> Iterator[str]:
        if variable not in self._declared:
            yield f"`{variable.name}` is not declared"
        elif variable not in self._mutable:
            yield f"`{variable.name}` cannot be assigned"
        yield from differing_types(variable.type, type_, f"`{variable.name}`")
        if self._parallel and variable in self._parallel[-1][0]:
            yield f"`{variable.name}` is changed by every round of a parallel loop"

    def _array(self, statement: LocalArray) -> Iterator[str]:
        buffer = statement.buffer
        yield from c_type_problems(CType(buffer.dtype, statement.lanes))
        if not isinstance(buffer.size, int) or buffer.size <= 0:
            yield f"`{buffer.name}` has no known size above 0"
        elif buffer.size % statement.lanes:
            yield f"`{buffer.name}` has a size not divisible by the {statement.lanes} lanes"
        if not buffer.is_writable and not statement.is_zeroed:
            yield f"`{buffer.name}` is a local array without permission to write"
        if statement.lanes > 1 or statement.is_zeroed:
            yield from self._numbers(buffer)
        if statement.lanes > 1:
            self._vector_arrays[buffer] = statement.lanes

    def _alias(self, statement: Alias) -> Iterator[str]:
        buffer, source, condition = statement.buffer, statement.source, statement.condition
        yield from self._access(source, statement.offset, 0)
        for other in statement.sources:
            yield from self._buffer(other)
            if buffer.is_writable and not other.is_writable:
                yield f"`{buffer.name}` may write to the read-only `{other.name}`"
            if other.dtype != source.dtype:
                yield f"`{buffer.name}` points to {source.dtype} or {other.dtype}"
        if (condition is None) != (statement.otherwise is None) or (condition is not None and condition.type != BOOL):
            yield f"`{buffer.name}` needs both a bool condition and a second buffer"
        if isinstance(buffer, PointerArray) and not isinstance(source, PointerArray):
            yield f"`{buffer.name}` holds pointers, but `{source.name}` holds numbers"
        if isinstance(source, PointerArray):
            if condition is not None:
                yield f"`{buffer.name}` is a choice of pointers of an array"
            if statement.reads_pointer and (buffer.is_writable or buffer.dtype != source.dtype):
                yield f"`{buffer.name}` must be a read-only pointer to {source.dtype}, the target of `{source.name}`"
        elif buffer.dtype != source.dtype and not source.is_writable:
            yield f"`{buffer.name}` is {buffer.dtype}, but `{source.name}` is {source.dtype}"

    def _copy(self, statement: Copy) -> Iterator[str]:
        target, source = statement.target, statement.source
        if target.dtype != source.dtype:
            yield f"copies {source.dtype} to {target.dtype}"
        count = known_number(statement.count)
        for buffer, index in ((target, statement.target_index), (source, statement.source_index)):
            yield from self._numbers(buffer)
            yield from self._access(buffer, index, max(count or 0, 0))
        if count is not None and count < 0:
            yield f"the count is {count}"
        if statement.count.type != INDEX:
            yield f"the count is {statement.count.type}, not an index"
        yield from self._write(target, statement.target_index)

    def _loop(self, statement: For) -> Iterator[str]:
        if statement.step < 1:
            yield f"the step is {statement.step}"
        if statement.index.type != INDEX or statement.start.type != INDEX or statement.stop.type != INDEX:
            yield "the bounds are not indices"
        is_known = known_number(statement.start) is not None and known_number(statement.stop) is not None
        if statement.kind is LoopKind.UNROLLED and not is_known:
            yield "is unrolled with an unknown number of rounds"

    def _write(self, buffer: Buffer, index: Expression | None) -> Iterator[str]:
        if not buffer.is_writable:
            yield f"`{buffer.name}` is read-only"
        if not self._parallel or buffer not in self._parallel[-1][0] or index is None:
            return
        outside, loop_index = self._parallel[-1]
        # An index independent of the round is the same place for all rounds.
        if loop_index is not None and all(item in outside for item in variables_in(index)):
            yield f"every round of a parallel loop stores to the same element of `{buffer.name}`"

    def _buffer(self, buffer: Buffer) -> Iterator[str]:
        if buffer not in self._declared:
            yield f"`{buffer.name}` is not declared"

    def _numbers(self, buffer: Buffer) -> Iterator[str]:
        if isinstance(buffer, PointerArray):
            yield f"`{buffer.name}` holds pointers, but is used as numbers"

    def _access(self, buffer: Buffer, index: Expression, count: int, lanes: int = 0) -> Iterator[str]:
        """Yield the problems of an access to `count` elements; ``lanes`` is 0 unless loaded or stored as a value."""
        yield from self._buffer(buffer)
        if index.type != INDEX:
            yield f"an offset into `{buffer.name}` is {index.type}, not an index"
        first, size = known_number(index), buffer.size
        if first is not None and (first < 0 or (isinstance(size, int) and first + count > size)):
            yield f"`{buffer.name}` has {size} elements: access to {count} from {first} on is out of bounds"
        if buffer not in self._vector_arrays:
            return
        if lanes != self._vector_arrays[buffer]:
            yield f"`{buffer.name}` holds vectors of {self._vector_arrays[buffer]}"
        elif self._parallel and buffer in self._parallel[-1][0]:
            yield f"`{buffer.name}` holds vectors, but is declared outside a parallel loop"

    def _operand(self, user: Statement | Expression, operand: Expression) -> Iterator[str]:
        """Yield the problems of an expression, or of its place in a statement or in another expression."""
        if isinstance(operand, Call) and operand.result is None and not isinstance(user, Evaluate):
            yield f"`{operand.callee.name}` has no result, but is used as a value"
        elif (address := address_of(operand)) is not None and not _takes_address(user):
            yield f"the address of `{address.buffer.name}` is used as a value"
        elif is_mask(operand) and not (isinstance(user, Select) and user.condition is operand):
            yield "a comparison of vectors is used as a value"
        else:
            yield from self._expression(operand)

    def _expression(self, expression: Expression) -> Iterator[str]:
        problems = [found for item in operands_of(expression) for found in self._operand(expression, item)]
        yield from problems or self._expression_itself(expression)

    def _expression_itself(self, expression: Expression) -> Iterator[str]:
        match expression:
            case Variable():
                if expression not in self._declared:
                    yield f"`{expression.name}` is not declared"
            case Load(buffer, index, lanes):
                yield from self._numbers(buffer)
                yield from self._access(buffer, index, lanes, lanes)
                yield from c_type_problems(expression.type)
            case Address(buffer, index):
                yield from self._access(buffer, index, 0)
            case Call():
                yield from self._call(expression)
            case Raw():
                yield from placeholder_problems(expression.text, expression)
            case _:
                yield from type_problems(expression)

    def _call(self, call: Call) -> Iterator[str]:
        for number in call.callee.writes:
            argument = call.arguments[number] if number < len(call.arguments) else None
            if not isinstance(argument, Address):
                yield f"`{call.callee.name}` writes argument {number}, not an address"
            else:
                yield from self._write(argument.buffer, argument.index)


def _runs_once(loop: For) -> bool:
    """Return whether a loop is known to have at most one round."""
    start, stop = known_number(loop.start), known_number(loop.stop)
    return start is not None and stop is not None and stop - start <= loop.step


def _takes_address(user: Statement | Expression) -> bool:
    if isinstance(user, Store):
        return isinstance(user.buffer, PointerArray)
    return isinstance(user, Call | Raw | RawStatement | Select)
