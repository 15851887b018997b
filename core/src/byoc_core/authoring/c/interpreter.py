"""An interpreter of functions over numpy arrays: the expected results of printed C, for tests.

Each operation rounds to the dtype; elementwise ops are the reference kernels. The interpreter finds undefined behaviour
of C: accesses out of bounds are errors, and unwritten memory holds a NaN, or the largest integer.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.expressions import (
    Address,
    Binary,
    Buffer,
    Call,
    Cast,
    Element,
    Expression,
    Literal,
    Load,
    PointerArray,
    Raw,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.operands import COMPARE, operands_of
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Comment,
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
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle
from byoc_core.dims import Dim, evaluate
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.opset.families import find_op
from byoc_core.opset.running import run_kernel
from byoc_core.runtime.module import NDArray

__all__ = ["interpret"]


def interpret(
    function: Function,
    arguments: Mapping[Buffer | Variable, Any],
    sizes: Mapping[str, int] | None = None,
    *,
    order: random.Random | None = None,
) -> Any:
    """Run a function, and return its result.

    Args:
        function: the function.
        arguments: for each parameter an array with a single axis and the buffer's dtype, changed by stores, or a value.
        sizes: the symbolic sizes.
        order: draws the order of the rounds of parallel and vector loops; by default rounds run in order.

    Raises:
        ExecutionError: an access is out of bounds, a copy overlaps its source, an integer is divided by 0, a float is
            cast to an integer type too small for the value, or a text or a call has no meaning.
    """
    with np.errstate(all="ignore"):
        frame = _Frame(dict(sizes or {}), order)
        for parameter in function.parameters:
            argument = arguments[parameter]
            if isinstance(parameter, Buffer):
                _check_array(parameter, argument)
                frame.arrays[parameter] = (argument, 0)
            else:
                frame.values[parameter] = _element(argument, parameter.type)
        try:
            frame.run(function.body)
        except _ReturnSignal as found:
            return found.value
    return None


class _ReturnSignal(Exception):  # noqa: N818
    """An exception for leaving the blocks of a function."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@dataclass(slots=True)
class _Frame:
    """A running function: the values of variables, and the first elements of buffers."""

    sizes: dict[str, int]
    order: random.Random | None
    values: dict[Variable, Any] = field(default_factory=dict)
    arrays: dict[Buffer, tuple[NDArray, int]] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Run the statements of a block."""
        for statement in block:
            self._run(statement)

    def _run(self, statement: Statement) -> None:
        match statement:
            case Let(variable, value) | Declare(variable, value) | Assign(variable, value):
                self.values[variable] = self.value(value)
            case LocalArray():
                self.arrays[statement.buffer] = (self._new_array(statement), 0)
            case Alias():
                array, first = self._pointed_into(statement)
                if statement.buffer.dtype != statement.source.dtype:
                    array, first = _as_dtype(array, first, to_numpy(statement.buffer.dtype)), 0
                self.arrays[statement.buffer] = (array, first)
            case Store(buffer, index, value):
                found = self.value(value)
                elements = self._elements(buffer, self.value(index), value.type.lanes)
                elements[0 if isinstance(buffer, PointerArray) else ...] = found
            case For() | While():
                self._loop(statement)
            case If():
                self.run(statement.then if self.value(statement.condition) else statement.otherwise)
            case Evaluate(call):
                self.value(call)
            case Return(value):
                raise _ReturnSignal(None if value is None else self.value(value))
            case Fail(kind, message, values):
                text = message.format(*map(self.value, values))
                raise ExecutionError(kind, text)
            case Dispatch():
                self._dispatch(statement)
            case RawStatement():
                self._run_raw(statement)
            case _:
                self._move(statement)

    def _move(self, statement: Statement) -> None:
        match statement:
            case Copy():
                count = self.value(statement.count)
                source = self._elements(statement.source, self.value(statement.source_index), count)
                target = self._elements(statement.target, self.value(statement.target_index), count)
                if np.may_share_memory(source, target):
                    raise ExecutionError(f"buffer `{statement.target.name}`", "overlaps the source of the copy")
                target[...] = source
            case Clear(target, index, count):
                self._elements(target, self.value(index), self.value(count))[...] = 0
            case Comment():
                pass
            case _:
                raise ExecutionError("interpreter", "unknown statement", got=repr(statement))

    def _loop(self, statement: For | While) -> None:
        if isinstance(statement, While):
            while self.value(statement.condition):
                self.run(statement.body)
            return
        rounds: Sequence[int] = range(self.value(statement.start), self.value(statement.stop), statement.step)
        if self.order is not None and statement.kind in (LoopKind.PARALLEL, LoopKind.VECTOR):
            rounds = self.order.sample(rounds, len(rounds))
        for index in rounds:
            self.values[statement.index] = index
            self.run(statement.body)

    def _dispatch(self, statement: Dispatch) -> None:
        count, grain = self.size(statement.count), self.size(statement.grain)
        parts = [(first, min(first + grain, count)) for first in range(0, count, grain)]
        if self.order is not None:
            self.order.shuffle(parts)
        for first, end in parts:
            self.values[statement.first], self.values[statement.end] = first, end
            self.run(statement.body)

    def _run_raw(self, statement: RawStatement) -> None:
        if statement.evaluate is None:
            raise ExecutionError("raw text", "cannot be interpreted", got=statement.lines[0])
        reads = [self.value(item) for item in statement.reads]
        arrays = [self._full_array(item) for item in statement.writes if isinstance(item, Buffer)]
        returned = statement.evaluate(*reads, *arrays)
        targets = [item for item in (*statement.writes, *statement.declares) if isinstance(item, Variable)]
        results = returned if isinstance(returned, tuple) else (returned,)
        self.values.update(zip(targets, results, strict=False))

    def _new_array(self, statement: LocalArray) -> NDArray:
        assert isinstance(statement.buffer.size, int)
        if isinstance(statement.buffer, PointerArray):
            return np.empty(statement.buffer.size, object)
        dtype = to_numpy(statement.buffer.dtype)
        if statement.is_zeroed:
            return np.zeros(statement.buffer.size, dtype)
        is_float = dtype_info(statement.buffer.dtype).kind not in ("int", "uint", "bool")
        return np.full(statement.buffer.size, np.nan if is_float else _largest(dtype), dtype)

    def _pointed_into(self, statement: Alias) -> tuple[NDArray, int]:
        """Return the target array of a pointer, and the offset."""
        condition, otherwise = statement.condition, statement.otherwise
        if condition is not None and otherwise is not None and not self.value(condition):
            return self.arrays[otherwise]
        if statement.reads_pointer:
            entry = self._elements(statement.source, self.value(statement.offset), 1)[0]
            if entry is None:
                raise ExecutionError(
                    f"array `{statement.source.name}`", "the element read as a pointer holds no pointer"
                )
            return entry, 0
        array, first = self.arrays[statement.source]
        return array, first + self.value(statement.offset)

    def _full_array(self, buffer: Buffer) -> NDArray:
        return self._from(buffer, 0)

    def _from(self, buffer: Buffer, index: int) -> NDArray:
        """Return the elements from an offset to the end; the offset may be the end."""
        self._elements(buffer, index, 0)
        array, first = self.arrays[buffer]
        return array[first + index :]

    def _elements(self, buffer: Buffer, index: int, count: int) -> NDArray:
        array, first = self.arrays[buffer]
        begin = first + index
        if count < 0 or not (begin >= 0 and begin + count <= len(array)):
            got = f"{count} elements from {index} on"
            raise ExecutionError(f"buffer `{buffer.name}`", "is accessed out of bounds", got=got, expected=len(array))
        return array[begin : begin + count]

    def size(self, dim: Dim) -> int:
        """Return a size as a number."""
        return dim if isinstance(dim, int) else evaluate(dim, self.sizes)

    def value(self, expression: Expression) -> Any:
        """Return the value of an expression: a number, or an array with an element for each lane."""
        match expression:
            case Variable():
                return self.values[expression]
            case Size(dim):
                return self.size(dim)
            case Literal(value, type_):
                return _element(value, type_)
            case Load(buffer, index, lanes):
                found = self._elements(buffer, self.value(index), lanes)
                return _element(found[0], expression.type) if lanes == 1 else found.copy()
            case Address(buffer, index):
                return self._from(buffer, self.value(index))
            case Select(condition, then, otherwise) if then.type.lanes == 1:
                return self.value(then if self.value(condition) else otherwise)
            case Binary(("&&" | "||"), left, right) if expression.type.lanes == 1:
                first = bool(self.value(left))
                return bool(self.value(right)) if first == (expression.operator == "&&") else first
        operands = [self.value(operand) for operand in operands_of(expression)]
        return _computed(expression, operands)


def _computed(expression: Expression, operands: Sequence[Any]) -> Any:
    """Return the value of an expression from the values of the operands."""
    match expression:
        case Unary(("!"), _):
            return not operands[0]
        case Unary(sign, _):
            return (operator.neg if sign == "-" else operator.invert)(operands[0])
        case Binary(symbol, _, _):
            return _OPERATORS[symbol](*operands)
        case Select():
            return np.where(*operands)
        case Cast(_, type_):
            return _cast(operands[0], type_)
        case Broadcast(_, lanes):
            return np.full(lanes, operands[0])
        case Lane(vector, _):
            if not 0 <= operands[1] < vector.type.lanes:
                raise ExecutionError("lane", "is not in the vector", got=operands[1], expected=str(vector.type))
            return _element(operands[0][operands[1]], expression.type)
        case Shuffle():
            return np.concatenate(operands)[list(expression.order)]
        case Element(op, _, type_, attributes):
            inputs = [
                np.asarray(_element(value, item.type))
                for value, item in zip(operands, expression.operands, strict=True)
            ]
            definition = find_op(op)
            assert definition is not None
            return _element(run_kernel(definition, inputs, attributes)[0], type_)
        case Call(callee, _, result):
            returned = _called(callee, operands)
            return None if result is None else _element(returned, result)
        case Raw(text, type_, _, evaluate_text):
            if evaluate_text is None:
                raise ExecutionError("raw text", "cannot be interpreted", got=text)
            return _element(evaluate_text(*operands), type_)
    raise ExecutionError("interpreter", "unknown expression", got=repr(expression))


def _called(callee: Callee, operands: Sequence[Any]) -> Any:
    """Return the result of a C function."""
    if callee.function is not None:
        return interpret(callee.function, dict(zip(callee.function.parameters, operands, strict=True)))
    if callee.evaluate is None:
        raise ExecutionError(f"C function `{callee.name}`", "cannot be interpreted")
    return callee.evaluate(*operands)


def _element(value: Any, type_: CType) -> Any:
    """Return a value of a type: a Python int for an index, else a numpy scalar, or an array for a vector."""
    if type_.lanes > 1:
        return np.broadcast_to(np.asarray(value).astype(to_numpy(type_.dtype)), (type_.lanes,)).copy()
    if type_.dtype == "int64":
        return int(value)
    return np.asarray(value).astype(to_numpy(type_.dtype))[()]


def _cast(value: Any, type_: CType) -> Any:
    """Return a value converted by the rules of C."""
    dtype: np.dtype[Any] = to_numpy(type_.dtype)
    if type_.is_integer and np.asarray(value).dtype.kind == "f":
        limits = np.iinfo(dtype)
        truncated = np.trunc(np.asarray(value, np.longdouble))
        if not np.all((truncated >= limits.min) & (truncated <= limits.max)):
            raise ExecutionError("cast", "the integer type cannot hold the float", got=value, expected=str(type_))
    return _element(np.asarray(value).astype(dtype), type_)


def _check_array(buffer: Buffer, array: NDArray) -> None:
    dtype = np.dtype(object) if isinstance(buffer, PointerArray) else to_numpy(buffer.dtype)
    if array.ndim != 1 or array.dtype != dtype:
        got = f"{array.ndim} axes of {array.dtype}"
        raise ExecutionError(
            f"buffer `{buffer.name}`", "has another dtype or number of axes", got=got, expected=f"1 axis of {dtype}"
        )


def _as_dtype(array: NDArray, first: int, dtype: np.dtype[Any]) -> NDArray:
    """Return the memory from an element to the end as elements of another dtype."""
    rest = array[first:]
    count = rest.nbytes // dtype.itemsize
    return rest.view(np.uint8)[: count * dtype.itemsize].view(dtype)


def _largest(dtype: np.dtype[Any]) -> Any:
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _quotient(left: Any, right: Any) -> Any:
    """Return a quotient by the rules of C: integers truncate towards zero."""
    if np.asarray(left).dtype.kind == "f":
        return left / right
    if np.any(np.equal(right, 0)):
        raise ExecutionError("interpreter", "an integer is divided by 0")
    quotient = left // right
    # Python and numpy round down.
    return quotient + ((quotient < 0) & (quotient * right != left))


def _remainder(left: Any, right: Any) -> Any:
    return left - _quotient(left, right) * right


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
    **COMPARE,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&&": np.logical_and,
    "||": np.logical_or,
}
